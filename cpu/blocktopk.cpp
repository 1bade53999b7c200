#include <algorithm>
#include <cmath>

#include "select.h"
#include "sparse.h"

namespace thinwire {
namespace {

constexpr size_t kLanes = 16;

// The Euclidean norm of a block, a power of two near its largest magnitude divided out, so that no square overflows; in a fixed order.
template <class T> TW_CLONES double norm(const T* u, size_t n) {
  using R = Real<T>;
  Key<T> top = 0;
  for (size_t i = 0; i < n; ++i) { const Key<T> key = magnitude_bits(u[i]); top = key > top ? key : top; }
  if (top == 0) return 0;
  if (top >= R::infinity) return top > R::infinity ? nan<double>() : HUGE_VAL;
  const double scale = double(reciprocal<T>(top));
  double squares[kLanes] = {}, sum = 0;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) for (size_t j = 0; j < kLanes; ++j) { const double v = double(u[i + j]) * scale; squares[j] += v * v; }
  for (size_t j = 0; i + j < n; ++j) { const double v = double(u[i + j]) * scale; squares[j] += v * v; }
  for (double s : squares) sum += s;
  return std::sqrt(sum) / scale;
}

struct BlockTopK {
  struct __attribute__((packed, aligned(4))) Params { double ratio; int32_t block, nonzero, codec; uint8_t then[64]; };

  static size_t blocks(const Params& p, size_t n) { return n / size_t(p.block) + (n % size_t(p.block) != 0); }
  static size_t capacity(const Params& p, size_t n) { return p.nonzero ? n : std::min(n, wanted(p.ratio, 0, blocks(p, n)) * size_t(p.block)); }

  template <class T, class Index> static size_t select(const Params& p, const T*, const T* u, size_t n, uint64_t, Index* index, T* value) {
    const size_t block = size_t(p.block), count = blocks(p, n);
    size_t kept = 0;
    const auto keep = [&](size_t b) {
      const size_t at = b * block, m = std::min(block, n - at);
      memcpy(value + kept, u + at, m * sizeof(T));
      for (size_t j = 0; j < m; ++j) index[kept + j] = Index(at + j);
      kept += m;
    };
    if (p.nonzero) {
      for (size_t b = 0; b < count; ++b) if (largest_key<Order::magnitude>(u + b * block, std::min(block, n - b * block))) keep(b);
      return kept;
    }
    const size_t k = wanted(p.ratio, 0, count);
    Scratch scratch;
    auto* const norms = scratch.take<double>(count);
    auto* const chosen = scratch.take<Index>(k + kSelectSlack);
    auto* const of = scratch.take<double>(k + kSelectSlack);
    if (!norms || !chosen || !of) return kNoMemory;
    for (size_t b = 0; b < count; ++b) norms[b] = norm(u + b * block, std::min(block, n - b * block));
    if (top_k<Order::magnitude>(norms, count, k, chosen, of) == kNoMemory) return kNoMemory;
    for (size_t b = 0; b < k; ++b) keep(chosen[b]);
    return kept;
  }
};

}  // namespace
}  // namespace thinwire

TW_SPARSE_CODEC(blocktopk, BlockTopK)
