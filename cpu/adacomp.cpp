#include <algorithm>
#include <cmath>

#include "select.h"
#include "sparse.h"

namespace thinwire {
namespace {

// The magnitude that a value of a bin is judged by, |u + (factor - 1) x|: that of u in the next step if x came once more. None for zeros, which have
// nothing to send, and infinity for non-finite values, which are always sent. Gives the bin's largest finite |u|.
template <class T> TW_CLONES T judge(const T* __restrict x, const T* __restrict u, size_t n, T more, T* __restrict judged) {
  using R = Real<T>;
  Key<T> top = 0;
  for (size_t j = 0; j < n; ++j) {
    const Key<T> own = magnitude_bits(u[j]), next = magnitude_bits(T(u[j] + more * x[j]));
    const bool good = own < R::infinity;
    top = good & (own > top) ? own : top;
    judged[j] = float_of(select(own == 0, Key<T>(0), select(good & (next < R::infinity), next, Key<T>(R::infinity))));
  }
  return float_of(top);
}

struct AdaComp {
  struct __attribute__((packed, aligned(4))) Params { int32_t bin; double factor; int32_t codec; uint8_t then[64]; };
  static LeftOut left_out(const Params&) { return LeftOut::kFinite; }
  static constexpr bool alters = true;
  static size_t capacity(const Params&, size_t n) { return n; }

  template <class T, class Index> static size_t select(const Params& p, const T* x, const T* u, size_t n, uint64_t, Index* index, T* value) {
    const size_t bin = size_t(p.bin), bins = n / bin + (n % bin != 0);
    Scratch scratch;
    auto* const judged = scratch.take<T>(bin);
    if (!judged) return kNoMemory;
    size_t kept = 0;
    double mean = 0;
    for (size_t at = 0; at < n; at += bin) {
      const size_t m = std::min(bin, n - at);
      const T top = judge(x + at, u + at, m, T(p.factor - 1), judged);
      const size_t hits = filter<Order::magnitude>(judged, 0, m, std::max(bits_of(top), Key<T>(1)), index + kept, value + kept);
      for (size_t j = kept; j < kept + hits; ++j) {
        index[j] = Index(index[j] + at);
        value[j] = u[index[j]];
      }
      kept += hits;
      mean += double(top) / double(bins);   // no sum that could overflow
    }
    const T scale = T(mean);
    for (size_t j = 0; j < kept; ++j) value[j] = finite(value[j]) ? std::copysign(scale, value[j]) : value[j];
    return kept;
  }
};

}  // namespace
}  // namespace thinwire

TW_SPARSE_CODEC(adacomp, AdaComp)
