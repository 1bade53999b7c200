#include <algorithm>

#include "candidates.h"
#include "sparse.h"

namespace thinwire {
namespace {

constexpr int kSteps = 20;           // of the search

// A threshold between the mean and the largest magnitude, by bisection: until between k and 2k values are above it. A step needs to know only whether
// its count is below k or above 2k, so what more than 2k values reach, by a sample, need not be looked at again: one pass finds those, mean and maximum.
template <Order order, class T, class Index> size_t search(const T* u, size_t n, size_t k, Index* index, T* value) {
  Candidates<order, T, Index> list(u, n, 2 * k);
  if (!list.good()) return kNoMemory;
  const Sums all = list.scan(0, [](const T*, size_t) {});
  const Key<T> top = list.largest();
  if (top < Real<T>::infinity && n) {
    const double most = double(float_of(top)), mean = all.sum / double(n) / list.scale();
    double left = 0, right = 1;
    for (int step = 0; step < kSteps; ++step) {
      const double middle = 0.5 * (left + right);
      const Key<T> least = std::max<Key<T>>(key_above<T>(mean + middle * (most - mean)), kLeastKey<order>);
      const size_t count = list.count(least, 2 * k);
      if (count >= k && count <= 2 * k) return list.filter(least, index, value);
      (count < k ? right : left) = middle;
    }
  }
  return top_k<order>(u, n, k, index, value);
}

struct RedSync {
  enum Sign : int32_t { kBoth, kPositive, kNegative, kAlternate };
  struct __attribute__((packed, aligned(4))) Params { double ratio; int32_t trimmed, sign, codec; uint8_t then[64]; };

  static LeftOut left_out(const Params& p) { return p.sign == kBoth ? LeftOut::kSmaller : LeftOut::kAnything; }
  static size_t capacity(const Params& p, size_t n) {
    const size_t k = wanted(p.ratio, 0, n);
    return p.trimmed ? k : std::min(n, 2 * k);
  }
  template <Order order, class T, class Index> static size_t select_in(const Params& p, const T* u, size_t n, Index* index, T* value) {
    const size_t k = wanted(p.ratio, 0, n);
    return p.trimmed ? top_k<order>(u, n, k, index, value) : search<order>(u, n, k, index, value);
  }
  template <class T, class Index> static size_t select(const Params& p, const T*, const T* u, size_t n, uint64_t seed, Index* index, T* value) {
    const int32_t sign = p.sign == kAlternate ? (seed & 1 ? kNegative : kPositive) : p.sign;
    if (sign == kPositive) return select_in<Order::positive>(p, u, n, index, value);
    if (sign == kNegative) return select_in<Order::negative>(p, u, n, index, value);
    return select_in<Order::magnitude>(p, u, n, index, value);
  }
};

}  // namespace
}  // namespace thinwire

TW_SPARSE_CODEC(redsync, RedSync)
