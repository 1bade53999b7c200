// Lossless by AVX-512 with VBMI2 (Ice Lake, Zen 4 and later): 64 values a step, escapes compacted and expanded by one instruction each.
#include "lossless.h"

#if THINWIRE_CLONES
#pragma GCC diagnostic ignored "-Wuninitialized"          // gcc 12's own _mm512_undefined_epi32
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#define TW_VBMI2 __attribute__((target("arch=x86-64-v4,avx512vbmi,avx512vbmi2")))
#define TW_VBMI2_INLINE TW_VBMI2 inline __attribute__((always_inline))

namespace thinwire {
namespace lossless {
namespace {

// Places for the permutations of two registers: the low and high halves of 16-bit and of 32-bit words, and words from such halves.
struct Places {
  alignas(64) uint8_t low[64], high[64], words[2][64];
  alignas(64) uint16_t low32[32], high32[32], words32[2][32];
  constexpr Places() : low(), high(), words(), low32(), high32(), words32() {
    for (unsigned i = 0; i < 64; ++i) {
      low[i] = uint8_t(2 * i);
      high[i] = uint8_t(2 * i + 1);
      for (unsigned h = 0; h < 2; ++h) words[h][i] = uint8_t(32 * h + i / 2 + 64 * (i % 2));
    }
    for (unsigned i = 0; i < 32; ++i) {
      low32[i] = uint16_t(2 * i);
      high32[i] = uint16_t(2 * i + 1);
      for (unsigned h = 0; h < 2; ++h) words32[h][i] = uint16_t(16 * h + i / 2 + 32 * (i % 2));
    }
  }
};
constexpr Places kPlaces;

TW_VBMI2_INLINE __m512i load(const void* p) { return _mm512_loadu_si512(p); }
TW_VBMI2_INLINE void store(void* p, __m512i v) { _mm512_storeu_si512(p, v); }
TW_VBMI2_INLINE size_t ones(uint64_t m) { return size_t(__builtin_popcountll(m)); }

// How many of n words are not 0, if `least` has the least of them: that saves the counting where there is no zero.
template <class T> TW_VBMI2_INLINE size_t count_nonzero(const T* x, size_t n, __m512i least) {
  const uint64_t zero = sizeof(T) == 2 ? _mm512_testn_epi16_mask(least, least) : _mm512_testn_epi32_mask(least, least);
  if (!zero) return n;
  T count = 0;
  for (size_t i = 0; i < n; ++i) count = T(count + (x[i] != 0));
  return count;
}

TW_VBMI2 size_t split16(const uint16_t* x, size_t n, uint8_t* low, uint8_t* symbols, Ahead ahead) {
  const __m512i l = load(kPlaces.low), h = load(kPlaces.high);
  __m512i least = _mm512_set1_epi16(-1);
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    prefetch(ahead);
    __m512i a = load(x + i), b = load(x + i + 32);
    least = _mm512_min_epu16(least, _mm512_min_epu16(a, b));
    a = _mm512_shldi_epi16(a, a, 1);
    b = _mm512_shldi_epi16(b, b, 1);
    store(low + i, _mm512_permutex2var_epi8(a, l, b));
    store(symbols + i, _mm512_permutex2var_epi8(a, h, b));
  }
  return count_nonzero(x, i, least) + split(x + i, n - i, low + i, symbols + i);
}
TW_VBMI2 size_t split32(const uint32_t* x, size_t n, uint8_t* low, uint8_t* middle, uint8_t* symbols, Ahead ahead) {
  const __m512i l = load(kPlaces.low), h = load(kPlaces.high), l32 = load(kPlaces.low32), h32 = load(kPlaces.high32);
  __m512i least = _mm512_set1_epi32(-1);
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    prefetch(ahead);
    __m512i half[2];
    for (int k = 0; k < 2; ++k) {
      __m512i a = load(x + i + 32 * k), b = load(x + i + 32 * k + 16);
      least = _mm512_min_epu32(least, _mm512_min_epu32(a, b));
      a = _mm512_rol_epi32(a, 1);
      b = _mm512_rol_epi32(b, 1);
      store(low + 2 * i + 64 * k, _mm512_permutex2var_epi16(a, l32, b));
      half[k] = _mm512_permutex2var_epi16(a, h32, b);
    }
    store(middle + i, _mm512_permutex2var_epi8(half[0], l, half[1]));
    store(symbols + i, _mm512_permutex2var_epi8(half[0], h, half[1]));
  }
  return count_nonzero(x, i, least) + split(x + i, n - i, low + 2 * i, middle + i, symbols + i);
}
// Words, around the caches or not: for arrays out of cache that is 9.7 instead of 5.5 GB/s of bfloat16 decoded, where memcpy has 10.5, since no line is read
// before it is written. Plain stores up to the first whole line.
template <bool Around, class T> TW_VBMI2_INLINE void put(T* x, __m512i v) {
  if constexpr (Around) _mm512_stream_si512(reinterpret_cast<__m512i*>(x), v); else store(x, v);
}
template <class T> size_t up_to_line(const T* x, size_t n) {
  const size_t k = (64 - reinterpret_cast<uintptr_t>(x) % 64) % 64 / sizeof(T);
  return k < n ? k : n;
}
template <bool Around> TW_VBMI2_INLINE void join_to(const uint8_t* low, const uint8_t* symbols, size_t n, uint16_t* x, Ahead ahead) {
  const __m512i w[2] = {load(kPlaces.words[0]), load(kPlaces.words[1])};
  size_t i = Around ? up_to_line(x, n) : 0;
  join(low, symbols, i, x);
  for (; i + 64 <= n; i += 64) {
    prefetch(ahead);
    const __m512i l = load(low + i), s = load(symbols + i);
    for (int k = 0; k < 2; ++k) {
      const __m512i t = _mm512_permutex2var_epi8(l, w[k], s);
      put<Around>(x + i + 32 * k, _mm512_shrdi_epi16(t, t, 1));
    }
  }
  join(low + i, symbols + i, n - i, x + i);
  if (Around) _mm_sfence();
}
template <bool Around> TW_VBMI2_INLINE void join_to(const uint8_t* low, const uint8_t* middle, const uint8_t* symbols, size_t n, uint32_t* x, Ahead ahead) {
  const __m512i w[2] = {load(kPlaces.words[0]), load(kPlaces.words[1])}, w32[2] = {load(kPlaces.words32[0]), load(kPlaces.words32[1])};
  size_t i = Around ? up_to_line(x, n) : 0;
  join(low, middle, symbols, i, x);
  for (; i + 64 <= n; i += 64) {
    prefetch(ahead);
    const __m512i m = load(middle + i), s = load(symbols + i);
    for (int k = 0; k < 2; ++k) {
      const __m512i l = load(low + 2 * i + 64 * k), h = _mm512_permutex2var_epi8(m, w[k], s);
      for (int j = 0; j < 2; ++j) put<Around>(x + i + 32 * k + 16 * j, _mm512_ror_epi32(_mm512_permutex2var_epi16(l, w32[j], h), 1));
    }
  }
  join(low + 2 * i, middle + i, symbols + i, n - i, x + i);
  if (Around) _mm_sfence();
}
TW_VBMI2 void join16(const uint8_t* low, const uint8_t* symbols, size_t n, uint16_t* x, Ahead ahead, bool around) {
  if (around) join_to<true>(low, symbols, n, x, ahead); else join_to<false>(low, symbols, n, x, ahead);
}
TW_VBMI2 void join32(const uint8_t* low, const uint8_t* middle, const uint8_t* symbols, size_t n, uint32_t* x, Ahead ahead, bool around) {
  if (around) join_to<true>(low, middle, symbols, n, x, ahead); else join_to<false>(low, middle, symbols, n, x, ahead);
}

// Codes 64 ranks, or as many as there are bits in `valid`. vpcompressb in its register form and a whole store: the form that stores is microcoded on Zen 4.
template <int W> TW_VBMI2_INLINE size_t code(__m512i v, size_t bytes, uint8_t* planes, size_t stride, uint8_t* rest) {
  const __m512i e = _mm512_set1_epi8((1 << W) - 1), c = _mm512_min_epu8(v, e);
  uint64_t escaped = ~uint64_t(0);
  for (int p = 0; p < W; ++p) {
    const uint64_t plane = _mm512_test_epi8_mask(c, _mm512_set1_epi8(1 << p));
    if (bytes == 8) memcpy(planes + size_t(p) * stride, &plane, 8); else memcpy(planes + size_t(p) * stride, &plane, bytes);
    escaped &= plane;
  }
  store(rest, _mm512_maskz_compress_epi8(escaped, _mm512_sub_epi8(v, e)));
  return ones(escaped);
}

template <int W> TW_VBMI2 size_t first(const Plan& plan, const uint8_t* symbols, size_t n, uint8_t* planes, uint8_t* ranks, uint8_t* unlisted, size_t* lost, Ahead ahead) {
  const __m512i t[4] = {load(plan.rank), load(plan.rank + 64), load(plan.rank + 128), load(plan.rank + 192)}, none = _mm512_set1_epi8(64);
  const size_t stride = plane_bytes(n);
  size_t escapes = 0, i = 0;
  uint8_t* at = unlisted;
  const auto step = [&](__mmask64 valid, size_t bytes) __attribute__((target("arch=x86-64-v4,avx512vbmi,avx512vbmi2"), always_inline)) {
    const __m512i v = load(symbols + i);
    __m512i r = _mm512_permutex2var_epi8(t[0], v, t[1]);
    const __mmask64 high = _mm512_movepi8_mask(v);
    if (__builtin_expect(high != 0, 0)) r = _mm512_mask_mov_epi8(r, high, _mm512_permutex2var_epi8(t[2], v, t[3]));   // magnitudes of 2 and more
    r = _mm512_maskz_mov_epi8(valid, r);
    const __mmask64 u = _mm512_test_epi8_mask(r, none);
    if (__builtin_expect(u != 0, 0)) {
      store(at, _mm512_maskz_compress_epi8(u, v));
      at += ones(u);
    }
    escapes += code<W>(r, bytes, planes + i / 8, stride, ranks + escapes);
  };
  for (; i + 64 <= n; i += 64) {
    prefetch(ahead);
    step(~__mmask64(0), 8);
  }
  if (i < n) step((__mmask64(1) << (n - i)) - 1, plane_bytes(n - i));
  *lost = size_t(at - unlisted);
  return escapes;
}
template <int W> TW_VBMI2 size_t level(uint8_t* ranks, size_t m, uint8_t* planes) {
  const size_t stride = plane_bytes(m);
  size_t escapes = 0, i = 0;
  for (; i + 64 <= m; i += 64) escapes += code<W>(load(ranks + i), 8, planes + i / 8, stride, ranks + escapes);
  if (i < m) escapes += code<W>(_mm512_maskz_loadu_epi8((__mmask64(1) << (m - i)) - 1, ranks + i), plane_bytes(m - i), planes + i / 8, stride, ranks + escapes);
  return escapes;
}

template <int W> TW_VBMI2 size_t expand(const uint8_t* planes, size_t m, const uint8_t* named, const uint8_t* escaped, uint8_t* symbols, Ahead ahead) {
  const size_t stride = plane_bytes(m);
  alignas(16) uint8_t leaf[16] = {};
  memcpy(leaf, named, (1u << W) - 1);
  const __m512i one = _mm512_set1_epi8(char(leaf[0])), two = _mm512_set1_epi8(char(leaf[1])), three = _mm512_set1_epi8(char(leaf[2]));
  const __m512i leaves = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(leaf)));
  const uint8_t* const start = escaped;
  size_t i = 0;
  const auto step = [&](uint64_t x, size_t bytes) __attribute__((target("arch=x86-64-v4,avx512vbmi,avx512vbmi2"), always_inline)) {
    uint64_t plane[W];
    for (int p = 0; p < W; ++p) {
      plane[p] = 0;
      if (bytes == 8) memcpy(&plane[p], planes + size_t(p) * stride + i / 8, 8); else memcpy(&plane[p], planes + size_t(p) * stride + i / 8, bytes);
      x &= plane[p];
    }
    __m512i s;
    if constexpr (W == 1) s = one;
    else if constexpr (W == 2) s = _mm512_mask_mov_epi8(_mm512_mask_mov_epi8(one, plane[0], two), plane[1], three);
    else {
      __m512i c = _mm512_maskz_set1_epi8(plane[0], 1);
      for (int p = 1; p < W; ++p) c = _mm512_mask_add_epi8(c, plane[p], c, _mm512_set1_epi8(1 << p));
      s = _mm512_shuffle_epi8(leaves, c);
    }
    store(symbols + i, _mm512_mask_expand_epi8(s, x, load(escaped)));
    escaped += ones(x);
  };
  for (; i + 64 <= m; i += 64) {
    prefetch(ahead);
    step(~uint64_t(0), 8);
  }
  if (i < m) step((uint64_t(1) << (m - i)) - 1, plane_bytes(m - i));
  return size_t(escaped - start);
}

size_t any_first(const Plan& plan, const uint8_t* symbols, size_t n, uint8_t* planes, uint8_t* ranks, uint8_t* unlisted, size_t* lost, Ahead ahead) {
  return TW_WITH_WIDTH(plan.width[0], first, plan, symbols, n, planes, ranks, unlisted, lost, ahead);
}
size_t any_level(int width, uint8_t* ranks, size_t m, uint8_t* planes) { return TW_WITH_WIDTH(width, level, ranks, m, planes); }
size_t any_expand(int width, const uint8_t* planes, size_t m, const uint8_t* named, const uint8_t* escaped, uint8_t* symbols, Ahead ahead) {
  return TW_WITH_WIDTH(width, expand, planes, m, named, escaped, symbols, ahead);
}

// Sparse groups.
TW_VBMI2 uint64_t close_up16(const uint16_t* x, uint16_t* to) {
  uint64_t bits = 0;
  for (int j = 0; j < 64; j += 32) {
    const __m512i v = load(x + j);
    const __mmask32 k = _mm512_test_epi16_mask(v, v);
    store(to, _mm512_maskz_compress_epi16(k, v));
    to += ones(k);
    bits |= uint64_t(k) << j;
  }
  return bits;
}
TW_VBMI2 uint64_t close_up32(const uint32_t* x, uint32_t* to) {
  uint64_t bits = 0;
  for (int j = 0; j < 64; j += 16) {
    const __m512i v = load(x + j);
    const __mmask16 k = _mm512_test_epi32_mask(v, v);
    store(to, _mm512_maskz_compress_epi32(k, v));
    to += ones(k);
    bits |= uint64_t(k) << j;
  }
  return bits;
}
TW_VBMI2 void spread16(const uint16_t* words, uint64_t bits, uint16_t* x) {
  for (int j = 0; j < 64; j += 32) {
    const __mmask32 k = __mmask32(bits >> j);
    store(x + j, _mm512_maskz_expand_epi16(k, load(words)));
    words += ones(k);
  }
}
TW_VBMI2 void spread32(const uint32_t* words, uint64_t bits, uint32_t* x) {
  for (int j = 0; j < 64; j += 16) {
    const __mmask16 k = __mmask16(bits >> j);
    store(x + j, _mm512_maskz_expand_epi32(k, load(words)));
    words += ones(k);
  }
}

}  // namespace

const Loops* avx512_loops() {
  static const Loops loops = {split16, split32, join16, join32, any_first, any_level, any_expand, close_up16, close_up32, spread16, spread32};
  static const bool here = __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
  return here ? &loops : nullptr;
}

}  // namespace lossless
}  // namespace thinwire
#else
const thinwire::lossless::Loops* thinwire::lossless::avx512_loops() { return nullptr; }
#endif
