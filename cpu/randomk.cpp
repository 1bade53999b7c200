#include <algorithm>
#include <cmath>

#include "scratch.h"
#include "select.h"
#include "sparse.h"

namespace thinwire {
namespace {

constexpr size_t kPiece = 4096;
constexpr int kKeyBits = 30;                 // random keys are the bits of finite floats from 0 up, so that they are ranked like others

// keys[j] = a random key of index first + j, j < n; the high half of the index goes into the seed's key.
TW_CLONES void draw(uint32_t seed_key, uint64_t first, size_t n, float* keys) {
  const uint32_t key = seed_key + uint32_t(first >> 32) * 0x85ebca77u, base = uint32_t(first);
  for (size_t j = 0; j < n; ++j) keys[j] = float_of(random_bits(key, base + uint32_t(j)) >> (32 - kKeyBits));
}

struct RandomK {
  struct __attribute__((packed, aligned(4))) Params { double ratio; int64_t k; int32_t codec; uint8_t then[64]; };
  static LeftOut left_out(const Params&) { return LeftOut::kForgiven; }
  static size_t capacity(const Params& p, size_t n) { return wanted(p.ratio, p.k, n); }

  // The k indices with the largest random keys. Nothing is stored for the others: those with keys of at least `least`, slightly more than k, are ranked.
  template <class Index> static size_t shared(const Params& p, size_t n, uint64_t seed, Index* index) {
    const size_t k = wanted(p.ratio, p.k, n);
    if (k == n) {
      for (size_t i = 0; i < n; ++i) index[i] = Index(i);
      return n;
    }
    const uint32_t key = random_key(seed);
    for (double margin = 6 * std::sqrt(double(k)) + 16;; margin *= 2) {
      const double part = 1 - (double(k) + margin) / double(n);
      const uint32_t least = part > 0 ? uint32_t(part * (1 << kKeyBits)) : 0;
      Scratch scratch;
      const size_t room = std::min(n, k + size_t(2 * margin)) + kPiece;
      auto* const from = scratch.take<Index>(room + kSelectSlack);
      auto* const keys = scratch.take<float>(room + kSelectSlack);
      auto* const drawn = scratch.take<float>(kPiece);
      if (!from || !keys || !drawn) return kNoMemory;
      size_t found = 0;
      for (size_t at = 0; at < n && room - found >= kPiece; at += kPiece) {
        const size_t m = std::min(kPiece, n - at);
        draw(key, at, m, drawn);
        const size_t hits = filter<Order::magnitude>(drawn, 0, m, least, from + found, keys + found);
        for (size_t j = found; j < found + hits; ++j) from[j] += Index(at);
        found += hits;
      }
      if (found >= k && found <= room - kPiece) return best<Order::magnitude>(from, keys, found, k, index, keys);
    }
  }
  template <class T, class Index> static size_t select(const Params& p, const T*, const T* u, size_t n, uint64_t seed, Index* index, T* value) {
    const size_t k = shared<Index>(p, n, seed, index);
    if (k != kNoMemory) for (size_t i = 0; i < k; ++i) value[i] = u[index[i]];
    return k;
  }
};

}  // namespace
}  // namespace thinwire

TW_SPARSE_CODEC(randomk, RandomK)
