// raw: the values as they are, any element type. Its decode is also how every schedule adds an array to an accumulator.
#include "thinwire/cast.h"

namespace thinwire {
namespace {

// A complex array is twice as many floats; bool moves as bytes.
struct Plain { size_t n; int dtype; };
Plain plain(size_t n, int dtype) {
  if (dtype == kC64) return {2 * n, kF32};
  if (dtype == kC128) return {2 * n, kF64};
  return {n, dtype};
}

template <class T> TW_HD auto value(const uint8_t* wire, size_t i) {
  const T v = load<T>(wire, i);
  if constexpr (std::is_integral_v<T>) return v; else return widen(v);
}

template <class T> TW_HD void sum(const uint8_t* wire, void* y, size_t n, int mode, double scale) {
  using A = decltype(value<T>(wire, 0));
  A* acc = static_cast<A*>(y);
  const A s = A(scale);
  if (mode == kAdd) for (size_t i = 0; i < n; ++i) acc[i] = A(acc[i] + value<T>(wire, i) * s);
  else for (size_t i = 0; i < n; ++i) acc[i] = A(value<T>(wire, i) * s);
}

TW_CLONES void sum_any(const uint8_t* wire, void* y, size_t n, int dtype, int mode, double scale) {
  switch (dtype) {
    case kF32: sum<float>(wire, y, n, mode, scale); break;
    case kF64: sum<double>(wire, y, n, mode, scale); break;
    case kF16: sum<half>(wire, y, n, mode, scale); break;
    case kBF16: sum<bfloat>(wire, y, n, mode, scale); break;
    case kE4M3: sum<e4m3>(wire, y, n, mode, scale); break;
    case kE5M2: sum<e5m2>(wire, y, n, mode, scale); break;
    // Sums of integers wrap around, which is defined for unsigned types only.
    case kI8: case kU8: case kBool: sum<uint8_t>(wire, y, n, mode, scale); break;
    case kI16: case kU16: sum<uint16_t>(wire, y, n, mode, scale); break;
    case kI32: case kU32: sum<uint32_t>(wire, y, n, mode, scale); break;
    default: sum<uint64_t>(wire, y, n, mode, scale);
  }
}

// x + residual in x's own type, and what that rounding lost: a residual that another codec left goes out here.
template <class T> TW_HD void encode_with_residual(const void* x, size_t n, uint8_t* wire, void* residual) {
  const uint32_t limit = cast_limit<T, T>(false);
  compute_t<T>* const r = static_cast<compute_t<T>*>(residual);
  for (size_t i = 0; i < n; ++i) store(wire, i, cast_with_residual<T>(static_cast<const T*>(x)[i], r[i], limit));
}
TW_CLONES bool encode_any_with_residual(const void* x, size_t n, int dtype, uint8_t* wire, void* residual) {
  switch (dtype) {
    case kF32: encode_with_residual<float>(x, n, wire, residual); return true;
    case kF64: encode_with_residual<double>(x, n, wire, residual); return true;
    case kF16: encode_with_residual<half>(x, n, wire, residual); return true;
    case kBF16: encode_with_residual<bfloat>(x, n, wire, residual); return true;
    default: return false;
  }
}

size_t granule(const void*) { return 4096; }
size_t bound(const void*, size_t n, int dtype) { return n * kItemSize[dtype]; }
size_t encode(const void*, const void* x, size_t n, int dtype, uint8_t* wire, uint64_t, uint64_t, void* residual) {
  const size_t bytes = n * kItemSize[dtype];
  if (residual && encode_any_with_residual(x, n, dtype, wire, residual)) return bytes;
  if (bytes) memcpy(wire, x, bytes);
  return bytes;
}
int decode(const void*, const uint8_t* wire, size_t bytes, void* y, size_t n, int dtype, int mode, double scale) {
  if (bytes != n * kItemSize[dtype]) return -1;
  if (mode == kSet) { if (bytes) memcpy(y, wire, bytes); return 0; }
  const Plain p = plain(n, dtype);
  sum_any(wire, y, p.n, p.dtype, mode, scale);
  return 0;
}

}  // namespace
extern const Codec raw_row;
const Codec raw_row = {"raw", 0, kEveryDtype, granule, bound, encode, decode};
}  // namespace thinwire
