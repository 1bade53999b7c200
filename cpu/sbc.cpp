#include <algorithm>

#include "select.h"
#include "sparse.h"

namespace thinwire {
namespace {

template <class T> double mean_magnitude(const T* values, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += double(float_of(magnitude_bits(values[i]))) / double(count);
  return sum;
}
// All values that reach the least of the chosen ones, which may be more than those where it is tied.
template <Order order, class T, class Index> size_t with_ties(const T* u, size_t n, const T* chosen, size_t count, Index* index, T* value) {
  Key<T> least = kNanKey<T>;
  for (size_t i = 0; i < count; ++i) least = std::min(least, key_of<order>(chosen[i]));
  return filter<order>(u, 0, n, least, index, value);
}

struct Sbc {
  struct __attribute__((packed, aligned(4))) Params { double ratio; int32_t codec; uint8_t then[64]; };
  static size_t capacity(const Params&, size_t n) { return n; }

  template <class T, class Index> static size_t select(const Params& p, const T*, const T* u, size_t n, uint64_t, Index* index, T* value) {
    const size_t k = wanted(p.ratio, 0, n);
    Scratch scratch;
    auto* const positive = scratch.take<T>(k + kSelectSlack);
    auto* const negative = scratch.take<T>(k + kSelectSlack);
    if (!positive || !negative) return kNoMemory;
    const size_t above = top_k<Order::positive>(u, n, k, index, positive), below = top_k<Order::negative>(u, n, k, index, negative);
    if (above == kNoMemory || below == kNoMemory) return kNoMemory;
    if (mean_magnitude(positive, above) > mean_magnitude(negative, below)) return with_ties<Order::positive>(u, n, positive, above, index, value);
    return with_ties<Order::negative>(u, n, negative, below, index, value);
  }
};

}  // namespace
}  // namespace thinwire

TW_SPARSE_CODEC(sbc, Sbc)
