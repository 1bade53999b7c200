#include <algorithm>

#include "select.h"
#include "sparse.h"

namespace thinwire {
namespace {

constexpr size_t kChunk = size_t(1) << 16;   // positions in a chunk are compared as numbers of the keys' width

// The first place of the largest key of u[0..n).
template <class T> TW_CLONES size_t largest(const T* u, size_t n) {
  using K = Key<T>;
  K top = 0;
  size_t best = 0;
  for (size_t at = 0; at < n; at += kChunk) {
    const size_t m = std::min(kChunk, n - at);
    K here = 0, place = K(m);
    for (size_t j = 0; j < m; ++j) { const K key = key_of<Order::magnitude>(u[at + j]); here = key > here ? key : here; }
    if (at && here <= top) continue;
    top = here;
    for (size_t j = 0; j < m; ++j) { const K p = select(key_of<Order::magnitude>(u[at + j]) == here, K(j), K(m)); place = p < place ? p : place; }
    best = at + place;
  }
  return best;
}

struct CltK {
  struct __attribute__((packed, aligned(4))) Params { double ratio; int64_t k; int32_t exact; int32_t codec; uint8_t then[64]; };
  static LeftOut left_out(const Params& p) { return p.exact ? LeftOut::kSmaller : LeftOut::kAnything; }
  static size_t capacity(const Params& p, size_t n) { return wanted(p.ratio, p.k, n); }
  template <class T, class Index> static size_t select(const Params& p, const T*, const T* u, size_t n, uint64_t, Index* index, T* value) {
    const size_t k = wanted(p.ratio, p.k, n);
    if (p.exact) return top_k<Order::magnitude>(u, n, k, index, value);
    // Chunk i is [n * i / k, n * (i + 1) / k), the division carried along.
    for (size_t i = 0, at = 0, carry = 0; i < k; ++i) {
      carry += n % k;
      const size_t size = n / k + (carry >= k);
      carry -= carry >= k ? k : 0;
      const size_t chosen = at + largest(u + at, size);
      index[i] = Index(chosen);
      value[i] = u[chosen];
      at += size;
    }
    return k;
  }
};

}  // namespace
}  // namespace thinwire

TW_SPARSE_CODEC(clt_k, CltK)
