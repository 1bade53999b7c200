#include "thinwire/cast.h"

namespace thinwire {
namespace {

template <class W, class T> TW_HD void encode_values(const void* x, size_t n, uint8_t* __restrict wire, void* residual, bool saturate) {
  const T* const values = static_cast<const T*>(x);
  const uint32_t limit = cast_limit<T, W>(saturate);
  if (residual) {
    compute_t<T>* const r = static_cast<compute_t<T>*>(residual);
    for (size_t i = 0; i < n; ++i) store(wire, i, cast_with_residual<W>(values[i], r[i], limit));
  } else if constexpr (std::is_same_v<W, T>) {
    if (n) memcpy(wire, x, n * sizeof(W));
  } else {
    for (size_t i = 0; i < n; ++i) store(wire, i, cast<W>(widen(values[i]), limit));
  }
}

template <class W, class T> TW_HD void decode_values(const uint8_t* __restrict wire, void* y, size_t n, int mode, double scale) {
  using C = compute_t<T>;
  C* const acc = static_cast<C*>(y);
  const C s = C(scale);
  if (mode == kAdd) for (size_t i = 0; i < n; ++i) acc[i] += C(widen(load<W>(wire, i))) * s;
  else if (mode == kAccumulate) for (size_t i = 0; i < n; ++i) acc[i] = C(widen(load<W>(wire, i))) * s;
  else if constexpr (std::is_same_v<W, T>) { if (n) memcpy(y, wire, n * sizeof(W)); }
  else for (size_t i = 0; i < n; ++i) static_cast<T*>(y)[i] = narrow<T>(C(widen(load<W>(wire, i))));
}

template <class W> TW_HD void encode_from(const void* x, size_t n, int dtype, uint8_t* wire, void* residual, bool saturate) {
  switch (dtype) {
    case kF32: encode_values<W, float>(x, n, wire, residual, saturate); break;
    case kF64: encode_values<W, double>(x, n, wire, residual, saturate); break;
    case kF16: encode_values<W, half>(x, n, wire, residual, saturate); break;
    default: encode_values<W, bfloat>(x, n, wire, residual, saturate);
  }
}
template <class W> TW_HD void decode_to(const uint8_t* wire, void* y, size_t n, int dtype, int mode, double scale) {
  switch (dtype) {
    case kF32: decode_values<W, float>(wire, y, n, mode, scale); break;
    case kF64: decode_values<W, double>(wire, y, n, mode, scale); break;
    case kF16: decode_values<W, half>(wire, y, n, mode, scale); break;
    default: decode_values<W, bfloat>(wire, y, n, mode, scale);
  }
}

// `narrow` is the Dtype of the wire's values.
TW_CLONES void encode_any(int narrow, const void* x, size_t n, int dtype, uint8_t* wire, void* residual, bool saturate) {
  switch (narrow) {
    case kBF16: encode_from<bfloat>(x, n, dtype, wire, residual, saturate); break;
    case kF16: encode_from<half>(x, n, dtype, wire, residual, saturate); break;
    case kE4M3: encode_from<e4m3>(x, n, dtype, wire, residual, saturate); break;
    default: encode_from<e5m2>(x, n, dtype, wire, residual, saturate);
  }
}
TW_CLONES void decode_any(int narrow, const uint8_t* wire, void* y, size_t n, int dtype, int mode, double scale) {
  switch (narrow) {
    case kBF16: decode_to<bfloat>(wire, y, n, dtype, mode, scale); break;
    case kF16: decode_to<half>(wire, y, n, dtype, mode, scale); break;
    case kE4M3: decode_to<e4m3>(wire, y, n, dtype, mode, scale); break;
    default: decode_to<e5m2>(wire, y, n, dtype, mode, scale);
  }
}

size_t granule(const void*) { return 4096; }
template <int narrow> size_t bound(const void*, size_t n, int) { return n * kItemSize[narrow]; }
template <int narrow> size_t encode(const void* params, const void* x, size_t n, int dtype, uint8_t* wire, uint64_t, uint64_t, void* residual) {
  encode_any(narrow, x, n, dtype, wire, residual, static_cast<const Cast::Params*>(params)->saturate);
  return n * kItemSize[narrow];
}
template <int narrow> int decode(const void*, const uint8_t* wire, size_t bytes, void* y, size_t n, int dtype, int mode, double scale) {
  if (bytes != n * kItemSize[narrow]) return -1;
  decode_any(narrow, wire, y, n, dtype, mode, scale);
  return 0;
}

template <int narrow> constexpr Codec row(const char* name) {
  return {name, sizeof(Cast::Params), kFloats, granule, bound<narrow>, encode<narrow>, decode<narrow>};
}

}  // namespace
extern const Codec bf16_row, fp16_row, fp8_e4m3_row, fp8_e5m2_row;
const Codec bf16_row = row<kBF16>("bf16");
const Codec fp16_row = row<kF16>("fp16");
const Codec fp8_e4m3_row = row<kE4M3>("fp8_e4m3");
const Codec fp8_e5m2_row = row<kE5M2>("fp8_e5m2");
}  // namespace thinwire
