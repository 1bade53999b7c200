// Lossless by AVX2 and BMI2: masks by movemask, compaction and expansion by pext and pdep, ranks by byte shuffles.
#include "lossless.h"

#if THINWIRE_CLONES
#include <immintrin.h>

#define TW_V3 __attribute__((target("arch=x86-64-v3")))

namespace thinwire {
namespace lossless {
namespace {

constexpr uint64_t kOnes = 0x0101010101010101u;

// Ranks of n symbols (with slack), and those of no rank. Listed exponents usually span less than 32 (zero aside): two shuffles of 16.
TW_V3 size_t rank(const Plan& plan, const uint8_t* symbols, size_t n, uint8_t* ranks, uint8_t* unlisted) {
  size_t lost = 0;
  unsigned low = 255, high = 0;
  for (int i = 0; i < plan.slots; ++i)
    if (const unsigned s = plan.symbol[i]) { low = s < low ? s : low; high = s > high ? s : high; }
  if (high > low + 31) {
    for (size_t i = 0; i < n; ++i) {
      ranks[i] = plan.rank[symbols[i]];
      unlisted[lost] = symbols[i];
      lost += ranks[i] == kUnlisted;
    }
    return lost;
  }
  alignas(32) uint8_t window[32];
  for (unsigned i = 0; i < 32; ++i) window[i] = low + i < 256 ? plan.rank[low + i] : kUnlisted;
  const __m256i first = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(window)));
  const __m256i second = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(window + 16)));
  const __m256i base = _mm256_set1_epi8(char(low)), none = _mm256_set1_epi8(char(kUnlisted)), of_zero = _mm256_set1_epi8(char(plan.rank[0]));
  const __m256i fifteen = _mm256_set1_epi8(15), last = _mm256_set1_epi8(31), zero = _mm256_setzero_si256();
  for (size_t i = 0; i < n; i += 32) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(symbols + i)), d = _mm256_sub_epi8(v, base);
    const __m256i upper = _mm256_cmpgt_epi8(d, fifteen), inside = _mm256_cmpeq_epi8(_mm256_min_epu8(d, last), d);
    __m256i r = _mm256_blendv_epi8(_mm256_shuffle_epi8(first, d), _mm256_shuffle_epi8(second, _mm256_and_si256(d, fifteen)), upper);
    r = _mm256_blendv_epi8(none, r, inside);
    r = _mm256_blendv_epi8(r, of_zero, _mm256_cmpeq_epi8(v, zero));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(ranks + i), r);
    uint32_t u = uint32_t(_mm256_movemask_epi8(_mm256_cmpeq_epi8(r, none)));
    if (n - i < 32) u &= (1u << (n - i)) - 1;
    for (; u; u &= u - 1) unlisted[lost++] = symbols[i + size_t(__builtin_ctz(u))];
  }
  return lost;
}

template <int W> TW_V3 size_t level(uint8_t* ranks, size_t m, uint8_t* planes) {
  const size_t stride = plane_bytes(m);
  const __m256i e = _mm256_set1_epi8((1 << W) - 1);
  size_t escapes = 0;
  memset(ranks + m, 0, 32);
  for (size_t i = 0; i < m; i += 32) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ranks + i)), c = _mm256_min_epu8(v, e);
    const size_t bytes = m - i < 32 ? plane_bytes(m - i) : 4;
    uint32_t escaped = ~0u;
    for (int p = 0; p < W; ++p) {
      const uint32_t plane = uint32_t(_mm256_movemask_epi8(_mm256_slli_epi16(c, 7 - p)));
      uint8_t* const at = planes + size_t(p) * stride + i / 8;
      if (bytes == 4) memcpy(at, &plane, 4); else memcpy(at, &plane, bytes);
      escaped &= plane;
    }
    alignas(32) uint64_t rest[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(rest), _mm256_sub_epi8(v, e));
    for (int j = 0; j < 4; ++j, escaped >>= 8) {
      store64(ranks + escapes, _pext_u64(rest[j], _pdep_u64(escaped & 255, kOnes) * 255));
      escapes += size_t(_mm_popcnt_u32(escaped & 255));
    }
  }
  return escapes;
}

template <int W> TW_V3 size_t expand(const uint8_t* planes, size_t m, const uint8_t* named, const uint8_t* escaped, uint8_t* symbols) {
  constexpr unsigned e = (1u << W) - 1;
  const size_t stride = plane_bytes(m);
  alignas(16) uint8_t leaf[16] = {};
  memcpy(leaf, named, e);
  const __m256i leaves = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(leaf)));
  const __m256i byte_of = _mm256_setr_epi64x(0, kOnes, 2 * kOnes, 3 * kOnes), bit_of = _mm256_set1_epi64x(int64_t(0x8040201008040201u));
  size_t escapes = 0;
  for (size_t i = 0; i < m; i += 32) {
    const size_t bytes = m - i < 32 ? plane_bytes(m - i) : 4;
    uint32_t x = m - i < 32 ? (1u << (m - i)) - 1 : ~0u;
    __m256i c = _mm256_setzero_si256();
    for (int p = 0; p < W; ++p) {
      uint32_t plane = 0;
      const uint8_t* const at = planes + size_t(p) * stride + i / 8;
      if (bytes == 4) memcpy(&plane, at, 4); else memcpy(&plane, at, bytes);
      x &= plane;
      const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(int(plane)), byte_of), bit_of), bit_of);
      c = _mm256_or_si256(c, _mm256_and_si256(set, _mm256_set1_epi8(1 << p)));
    }
    __m256i s = _mm256_shuffle_epi8(leaves, c);
    if (x) {
      alignas(32) uint64_t q[4];
      for (int j = 0; j < 4; ++j, x >>= 8) {
        q[j] = _pdep_u64(load64(escaped + escapes), _pdep_u64(x & 255, kOnes) * 255);
        escapes += size_t(_mm_popcnt_u32(x & 255));
      }
      s = _mm256_blendv_epi8(s, _mm256_load_si256(reinterpret_cast<const __m256i*>(q)), _mm256_cmpeq_epi8(c, _mm256_set1_epi8(e)));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(symbols + i), s);
  }
  return escapes;
}

TW_V3 void prefetch_all(Ahead ahead, size_t n) { for (size_t i = 0; i < n; i += 64) prefetch(ahead); }

TW_V3 size_t split16(const uint16_t* x, size_t n, uint8_t* low, uint8_t* symbols, Ahead ahead) {
  prefetch_all(ahead, n);
  return split(x, n, low, symbols);
}
TW_V3 size_t split32(const uint32_t* x, size_t n, uint8_t* low, uint8_t* middle, uint8_t* symbols, Ahead ahead) {
  prefetch_all(ahead, n);
  return split(x, n, low, middle, symbols);
}
TW_V3 void join16(const uint8_t* low, const uint8_t* symbols, size_t n, uint16_t* x, Ahead ahead, bool) {
  prefetch_all(ahead, n);
  join(low, symbols, n, x);
}
TW_V3 void join32(const uint8_t* low, const uint8_t* middle, const uint8_t* symbols, size_t n, uint32_t* x, Ahead ahead, bool) {
  prefetch_all(ahead, n);
  join(low, middle, symbols, n, x);
}
size_t any_first(const Plan& plan, const uint8_t* symbols, size_t n, uint8_t* planes, uint8_t* ranks, uint8_t* unlisted, size_t* lost, Ahead ahead) {
  prefetch_all(ahead, n);
  *lost = rank(plan, symbols, n, ranks, unlisted);
  return TW_WITH_WIDTH(plan.width[0], level, ranks, n, planes);
}
size_t any_level(int width, uint8_t* ranks, size_t m, uint8_t* planes) { return TW_WITH_WIDTH(width, level, ranks, m, planes); }
size_t any_expand(int width, const uint8_t* planes, size_t m, const uint8_t* named, const uint8_t* escaped, uint8_t* symbols, Ahead) {
  return TW_WITH_WIDTH(width, expand, planes, m, named, escaped, symbols);
}

}  // namespace

const Loops* avx2_loops() {
  static const Loops loops = {split16, split32, join16, join32, any_first, any_level, any_expand};
  static const bool here = __builtin_cpu_supports("x86-64-v3");
  return here ? &loops : nullptr;
}

}  // namespace lossless
}  // namespace thinwire
#else
const thinwire::lossless::Loops* thinwire::lossless::avx2_loops() { return nullptr; }
#endif
