#include "thinwire/array.h"

#include <algorithm>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "thinwire/numeric.h"

namespace thinwire {
namespace {

// Magnitude bits at and above `limit` are not finite. Whole chunks first, so that the loop has no early exit.
template <class Bits> TW_HD bool any_above(const Bits* x, size_t n, Bits magnitude, Bits limit) {
  for (size_t i = 0; i < n; i += 4096) {
    const size_t end = i + 4096 < n ? i + 4096 : n;
    Bits found = 0;
    for (size_t j = i; j < end; ++j) found |= Bits((x[j] & magnitude) >= limit);
    if (found) return true;
  }
  return false;
}
template <class T> TW_HD void finish(const compute_t<T>* acc, T* y, size_t n, compute_t<T> divisor) {
  for (size_t i = 0; i < n; ++i) y[i] = narrow<T>(acc[i] / divisor);
}

TW_CLONES bool any_nonfinite_of(const void* x, size_t n, int dtype) {
  switch (dtype) {
    case kF32: return any_above(static_cast<const uint32_t*>(x), n, 0x7fffffffu, 0x7f800000u);
    case kF64: return any_above(static_cast<const uint64_t*>(x), n, Real<double>::magnitude, Real<double>::infinity);
    case kF16: return any_above(static_cast<const uint16_t*>(x), n, uint16_t(0x7fff), uint16_t(0x7c00));
    case kBF16: return any_above(static_cast<const uint16_t*>(x), n, uint16_t(0x7fff), uint16_t(0x7f80));
    case kE4M3: return any_above(static_cast<const uint8_t*>(x), n, uint8_t(0x7f), uint8_t(0x7f));
    case kE5M2: return any_above(static_cast<const uint8_t*>(x), n, uint8_t(0x7f), uint8_t(0x7c));
    default: return false;
  }
}
TW_CLONES void finish_any(const void* acc, void* y, size_t n, int dtype, double divisor) {
  switch (dtype) {
    case kF32: finish(static_cast<const float*>(acc), static_cast<float*>(y), n, float(divisor)); break;
    case kF64: finish(static_cast<const double*>(acc), static_cast<double*>(y), n, divisor); break;
    case kF16: finish(static_cast<const float*>(acc), static_cast<half*>(y), n, float(divisor)); break;
    case kBF16: finish(static_cast<const float*>(acc), static_cast<bfloat*>(y), n, float(divisor)); break;
    case kE4M3: finish(static_cast<const float*>(acc), static_cast<e4m3*>(y), n, float(divisor)); break;
    case kE5M2: finish(static_cast<const float*>(acc), static_cast<e5m2*>(y), n, float(divisor)); break;
    default: if (y != acc) memcpy(y, acc, n * kItemSize[dtype]);
  }
}

struct Crc32cTable {
  uint32_t entry[8][256];
  constexpr Crc32cTable() : entry() {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = c >> 1 ^ (0x82f63b78u & -(c & 1));
      entry[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; ++i)
      for (int t = 1; t < 8; ++t) entry[t][i] = entry[t - 1][i] >> 8 ^ entry[0][entry[t - 1][i] & 255];
  }
};
constexpr Crc32cTable kCrc;

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_hardware(uint32_t crc, const uint8_t* p, size_t n) {
  uint64_t c = crc;
  for (; n >= 8; n -= 8, p += 8) { uint64_t word; memcpy(&word, p, 8); c = __builtin_ia32_crc32di(c, word); }
  for (; n; --n, ++p) c = __builtin_ia32_crc32qi(uint32_t(c), *p);
  return uint32_t(c);
}
#endif
// Slicing by eight (Kounavis and Berry 2008).
uint32_t crc32c_portable(uint32_t crc, const uint8_t* p, size_t n) {
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    memcpy(&word, p, 8);
    word ^= crc;
    crc = 0;
    for (int t = 0; t < 8; ++t) crc ^= kCrc.entry[7 - t][word >> 8 * t & 255];
  }
  for (; n; --n, ++p) crc = crc >> 8 ^ kCrc.entry[0][(crc ^ *p) & 255];
  return crc;
}

}  // namespace

bool any_nonfinite(const void* x, size_t n, int dtype) {
  if (dtype == kC64) return any_nonfinite_of(x, 2 * n, kF32);
  if (dtype == kC128) return any_nonfinite_of(x, 2 * n, kF64);
  return any_nonfinite_of(x, n, dtype);
}
void finish_sum(const void* acc, void* y, size_t n, int dtype, double divisor) {
  if (dtype == kC64) finish_any(acc, y, 2 * n, kF32, divisor);
  else if (dtype == kC128) finish_any(acc, y, 2 * n, kF64, divisor);
  else finish_any(acc, y, n, dtype, divisor);
}
void copy_out(void* to, const void* from, size_t bytes) {
  constexpr size_t kLine = 64;
  uint8_t* p = static_cast<uint8_t*>(to);
  const uint8_t* q = static_cast<const uint8_t*>(from);
#if defined(__SSE2__)
  const size_t head = std::min<size_t>(-reinterpret_cast<uintptr_t>(p) % kLine, bytes), body = (bytes - head) / kLine * kLine;
  memcpy(p, q, head);
  for (size_t i = head; i < head + body; i += 16) _mm_stream_si128(reinterpret_cast<__m128i*>(p + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(q + i)));
  _mm_sfence();
  p += head + body;
  q += head + body;
  bytes -= head + body;
#endif
  if (bytes) memcpy(p, q, bytes);
}

uint32_t crc32c(const uint8_t* bytes, size_t n) {
#if defined(__x86_64__)
  static const bool hardware = __builtin_cpu_supports("sse4.2");
  if (hardware) return ~crc32c_hardware(~0u, bytes, n);
#endif
  return ~crc32c_portable(~0u, bytes, n);
}

void clear(void* memory, size_t bytes) {
  constexpr size_t kLine = 64;
  uint8_t* p = static_cast<uint8_t*>(memory);
#if defined(__SSE2__)
  if (bytes >= kMany) {
    const size_t head = -reinterpret_cast<uintptr_t>(p) % kLine, body = (bytes - head) / kLine * kLine;
    memset(p, 0, head);
    for (size_t i = 0; i < body; i += 16) _mm_stream_si128(reinterpret_cast<__m128i*>(p + head + i), _mm_setzero_si128());
    _mm_sfence();
    p += head + body;
    bytes -= head + body;
  }
#endif
  if (bytes) memset(p, 0, bytes);
}

}  // namespace thinwire
