#include "thinwire/mean.h"

#include "block_loop.h"

namespace thinwire {
namespace {

constexpr size_t kRow = Mean::kRow;

template <class C> TW_HD size_t encode_mean(const void* x, size_t n, int dtype, uint8_t* wire, C* residual) {
  if (n == 0) return 0;
  const bool direct = !residual && kItemSize[dtype] == sizeof(C);
  alignas(64) C staged[kRow];
  const auto row = [&](size_t at, size_t m) __attribute__((always_inline)) {
    if (direct) return static_cast<const C*>(x) + at;
    widen_block(x, dtype, at, m, staged);
    if (residual) for (size_t j = 0; j < m; ++j) staged[j] += residual[at + j];
    return static_cast<const C*>(staged);
  };
  Mean::Sums<C> sums;
  uint8_t codes[kRow + kPackSlack];
  uint8_t* bits = wire + sizeof(C);
  for (size_t at = 0, m; at < n; at += m) {
    m = std::min(n - at, kRow);
    const C* const u = row(at, m);
    Mean::add(u, m, 1.0, sums);
    Mean::range(u, m, sums);
    for (size_t j = 0; j < m; ++j) codes[j] = uint8_t(bits_of(u[j]) >> (8 * sizeof(C) - 1));
    pack(1, codes, m, bits);
    bits += packed_bytes(1, m);
  }
  C mean = Mean::mean(sums, n, 1.0);
  if (!finite(mean) && sums.largest < Real<C>::infinity) {   // doubles near their maximum have a mean, but no sum: they are added up scaled
    for (double& lane : sums.lane) lane = 0;
    for (size_t at = 0; at < n; at += kRow) { const size_t m = std::min(n - at, kRow); Mean::add(row(at, m), m, 0x1p-64, sums); }
    mean = Mean::mean(sums, n, 0x1p-64);
  }
  const bool mixed = finite(mean) && sums.minus > 0 && sums.minus < n;
  if (!mixed && finite(mean) && sums.minus) mean = -mean;
  memcpy(wire, &mean, sizeof(C));
  if (residual && finite(mean)) {
    using Bits = typename Real<C>::Bits;
    constexpr Bits sign = ~Real<C>::magnitude;
    for (size_t at = 0; at < n; at += kRow) {
      const size_t m = std::min(n - at, kRow);
      const C* const u = row(at, m);
      const Lost<C> lost{u, residual + at};
      for (size_t j = 0; j < m; ++j) lost(j, float_of(Bits(magnitude_bits(mean) | (bits_of(u[j]) & sign))));
    }
  }
  return mixed ? size_t(bits - wire) : sizeof(C);
}

template <class C, class Out> TW_HD void put_row(C mean, const uint8_t* bits, size_t m, const Out& out) {
  using Bits = typename Real<C>::Bits;
  uint8_t codes[kRow + kPackSlack];
  if (bits) unpack(1, bits, m, codes); else memset(codes, 0, m);
  for (size_t j = 0; j < m; ++j) out(j, float_of(Bits(bits_of(mean) ^ Bits(codes[j]) << (8 * sizeof(C) - 1))));
}
template <class C> TW_HD void decode_mean(const uint8_t* wire, bool mixed, void* y, size_t n, int dtype, int mode, C scale) {
  C mean, *const to = static_cast<C*>(y);
  memcpy(&mean, wire, sizeof(C));
  alignas(64) C staged[kRow];
  for (size_t at = 0; at < n; at += kRow) {
    const size_t m = std::min(n - at, kRow);
    const uint8_t* const bits = mixed ? wire + sizeof(C) + at / 8 : nullptr;
    if (mode == kAdd) put_row(mean, bits, m, Add<C>{to + at, scale});
    else if (mode == kAccumulate) put_row(mean, bits, m, Accumulate<C>{to + at, scale});
    else if (kItemSize[dtype] == sizeof(C)) put_row(mean, bits, m, Set<C>{to + at});
    else { put_row(mean, bits, m, Set<C>{staged}); store_block(staged, m, y, dtype, at); }
  }
}

TW_CLONES size_t encode_f32(const void* x, size_t n, int dtype, uint8_t* w, float* r) { return encode_mean<float>(x, n, dtype, w, r); }
TW_CLONES size_t encode_f64(const void* x, size_t n, int dtype, uint8_t* w, double* r) { return encode_mean<double>(x, n, dtype, w, r); }
TW_CLONES void decode_f32(const uint8_t* w, bool mixed, void* y, size_t n, int dtype, int mode, float scale) { decode_mean<float>(w, mixed, y, n, dtype, mode, scale); }
TW_CLONES void decode_f64(const uint8_t* w, bool mixed, void* y, size_t n, int dtype, int mode, double scale) { decode_mean<double>(w, mixed, y, n, dtype, mode, scale); }

size_t granule(const void*) { return 0; }
size_t header(int dtype) { return dtype == kF64 ? 8 : 4; }
size_t bound(const void*, size_t n, int dtype) { return n ? header(dtype) + n / 8 + (n % 8 != 0) : 0; }
size_t encode(const void*, const void* x, size_t n, int dtype, uint8_t* w, uint64_t, uint64_t, void* r) {
  return dtype == kF64 ? encode_f64(x, n, dtype, w, static_cast<double*>(r)) : encode_f32(x, n, dtype, w, static_cast<float*>(r));
}
int decode(const void* params, const uint8_t* w, size_t bytes, void* y, size_t n, int dtype, int mode, double scale) {
  const size_t mixed = bound(params, n, dtype);
  if (bytes != mixed && (n == 0 || bytes != header(dtype))) return -1;
  if (n == 0) return 0;
  if (dtype == kF64) decode_f64(w, bytes == mixed, y, n, dtype, mode, scale);
  else decode_f32(w, bytes == mixed, y, n, dtype, mode, float(scale));
  return 0;
}

}  // namespace
extern const Codec mean_row;
const Codec mean_row = {"mean", 0, kFloats, granule, bound, encode, decode};
}  // namespace thinwire
