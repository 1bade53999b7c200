// Loops over the blocks of an array: what every block codec shares on the CPU. Included by one .cpp a codec.
#pragma once
#include <algorithm>

#include "thinwire/block.h"
#include "thinwire/cast.h"

namespace thinwire {
namespace {

// Where decoded values go.
template <class C> struct Set { C* y; TW_HD void operator()(size_t j, C v) const { y[j] = v; } };
template <class C> struct Accumulate { C* y; C scale; TW_HD void operator()(size_t j, C v) const { y[j] = v * scale; } };
template <class C> struct Add { C* y; C scale; TW_HD void operator()(size_t j, C v) const { y[j] += v * scale; } };
template <class C> struct Lost {
  const C* u; C* residual;
  // Where a block held a non-finite value, v is one, and the residual stays as it was.
  TW_HD void operator()(size_t j, C v) const { const C lost = u[j] - v; residual[j] = finite(lost) ? lost : residual[j]; }
};

// values[0..m) = x[at..at + m), whatever type x has that computes in C.
template <class C> TW_HD void widen_block(const void* x, int dtype, size_t at, size_t m, C* __restrict values) {
  if constexpr (std::is_same_v<C, float>) {
    if (dtype == kF16) { for (size_t j = 0; j < m; ++j) values[j] = to_float(static_cast<const half*>(x)[at + j]); return; }
    if (dtype == kBF16) { for (size_t j = 0; j < m; ++j) values[j] = to_float(static_cast<const bfloat*>(x)[at + j]); return; }
  }
  memcpy(values, static_cast<const C*>(x) + at, m * sizeof(C));
}
// y[at..at + m) = values, narrowed to y's type. A finite value that a codec's error took past that type's largest becomes the largest.
template <class C> TW_HD void store_block(const C* __restrict values, size_t m, void* y, int dtype, size_t at) {
  if constexpr (std::is_same_v<C, float>) {
    if (dtype == kF16) { for (size_t j = 0; j < m; ++j) static_cast<half*>(y)[at + j] = cast<half>(values[j], cast_limit<float, half>(true)); return; }
    if (dtype == kBF16) { for (size_t j = 0; j < m; ++j) static_cast<bfloat*>(y)[at + j] = cast<bfloat>(values[j], cast_limit<float, bfloat>(true)); return; }
  }
  memcpy(static_cast<C*>(y) + at, values, m * sizeof(C));
}

template <class K, class C>
TW_HD size_t encode_blocks(const typename K::Params& p, const void* x, size_t n, int dtype, uint8_t* wire, uint64_t seed, uint64_t first, C* residual) {
  using Header = typename K::template Header<C>;
  const size_t block = K::block(p), header_bytes = K::template header_bytes<C>(p);
  const uint32_t key = random_key(seed);
  const bool direct = !residual && kItemSize[dtype] == sizeof(C);
  alignas(64) C staged[kMaxBlock];
  uint8_t* const start = wire;
  for (size_t done = 0; done < n;) {
    const size_t in_group = std::min(n - done, kGroupBlocks * block);
    uint8_t* head = wire;
    wire += (in_group + block - 1) / block * header_bytes;
    for (const size_t end = done + in_group; done < end; head += header_bytes) {
      const size_t m = std::min(end - done, block);
      const C* u = direct ? static_cast<const C*>(x) + done : staged;
      if (!direct) widen_block(x, dtype, done, m, staged);
      if (residual) for (size_t j = 0; j < m; ++j) staged[j] += residual[done + j];
      Header header{};
      K::template encode<C>(p, u, m, Noise(key, first + done), header, wire);
      copy_header<Header>(head, &header, header_bytes);
      if (residual) K::template decode<C>(p, header, wire, m, Lost<C>{staged, residual + done});
      wire += K::payload(p, m);
      done += m;
    }
  }
  return size_t(wire - start);
}

template <class K, class C>
TW_HD void decode_blocks(const typename K::Params& p, const uint8_t* wire, void* y, size_t n, int dtype, int mode, C scale) {
  using Header = typename K::template Header<C>;
  const size_t block = K::block(p), header_bytes = K::template header_bytes<C>(p);
  const bool staging = mode == kSet && kItemSize[dtype] != sizeof(C);
  C* const to = static_cast<C*>(y);
  alignas(64) C staged[kMaxBlock];
  for (size_t done = 0; done < n;) {
    const size_t in_group = std::min(n - done, kGroupBlocks * block);
    const uint8_t* head = wire;
    wire += (in_group + block - 1) / block * header_bytes;
    for (const size_t end = done + in_group; done < end; head += header_bytes) {
      const size_t m = std::min(end - done, block);
      Header header{};
      copy_header<Header>(&header, head, header_bytes);
      if (mode == kAdd) K::template decode<C>(p, header, wire, m, Add<C>{to + done, scale});
      else if (mode == kAccumulate) K::template decode<C>(p, header, wire, m, Accumulate<C>{to + done, scale});
      else K::template decode<C>(p, header, wire, m, Set<C>{staging ? staged : to + done});
      if (staging) store_block(staged, m, y, dtype, done);
      wire += K::payload(p, m);
      done += m;
    }
  }
}

}  // namespace
extern const Codec raw_row;
}  // namespace thinwire

// The row `name` of block codec K: its loops, compiled for each instruction set, and the table entry over them.
#define TW_BLOCK_CODEC(name, K) TW_BLOCK_CODEC_OF(name, K, K)
// The same where float and double are coded by types of their own.
#define TW_BLOCK_CODEC_OF(name, K32, K64)                                                                                             \
  namespace thinwire { namespace {                                                                                                    \
  using Params = K32::Params;                                                                                                         \
  TW_CLONES size_t encode_f32(const Params& p, const void* x, size_t n, int dtype, uint8_t* w, uint64_t seed, uint64_t first, float* r) { \
    return encode_blocks<K32, float>(p, x, n, dtype, w, seed, first, r);                                                              \
  }                                                                                                                                   \
  TW_CLONES size_t encode_f64(const Params& p, const void* x, size_t n, int dtype, uint8_t* w, uint64_t seed, uint64_t first, double* r) { \
    return encode_blocks<K64, double>(p, x, n, dtype, w, seed, first, r);                                                             \
  }                                                                                                                                   \
  TW_CLONES void decode_f32(const Params& p, const uint8_t* w, void* y, size_t n, int dtype, int mode, float scale) {                 \
    decode_blocks<K32, float>(p, w, y, n, dtype, mode, scale);                                                                        \
  }                                                                                                                                   \
  TW_CLONES void decode_f64(const Params& p, const uint8_t* w, void* y, size_t n, int dtype, int mode, double scale) {                \
    decode_blocks<K64, double>(p, w, y, n, dtype, mode, scale);                                                                       \
  }                                                                                                                                   \
  size_t granule(const void* params) { return kGroupBlocks * K32::block(*static_cast<const Params*>(params)); }                       \
  /* What would grow goes raw: 16-bit codes of 16-bit values. */                                                                      \
  bool raw(const Params& p, int dtype) {                                                                                              \
    return kItemSize[dtype] == 2 && block_wire_bytes<K32, float>(p, K32::block(p)) > 2 * K32::block(p);                               \
  }                                                                                                                                   \
  size_t bound(const void* params, size_t n, int dtype) {                                                                             \
    const Params& p = *static_cast<const Params*>(params);                                                                            \
    if (raw(p, dtype)) return raw_row.bound(params, n, dtype);                                                                        \
    return dtype == kF64 ? block_wire_bytes<K64, double>(p, n) : block_wire_bytes<K32, float>(p, n);                                  \
  }                                                                                                                                   \
  size_t encode(const void* params, const void* x, size_t n, int dtype, uint8_t* w, uint64_t seed, uint64_t first, void* r) {         \
    const Params& p = *static_cast<const Params*>(params);                                                                            \
    if (raw(p, dtype)) return raw_row.encode(params, x, n, dtype, w, seed, first, r);                                                 \
    if (dtype == kF64) return encode_f64(p, x, n, dtype, w, seed, first, static_cast<double*>(r));                                    \
    return encode_f32(p, x, n, dtype, w, seed, first, static_cast<float*>(r));                                                        \
  }                                                                                                                                   \
  int decode(const void* params, const uint8_t* w, size_t bytes, void* y, size_t n, int dtype, int mode, double scale) {              \
    const Params& p = *static_cast<const Params*>(params);                                                                            \
    if (bytes != bound(params, n, dtype)) return -1;                                                                                  \
    if (raw(p, dtype)) return raw_row.decode(params, w, bytes, y, n, dtype, mode, scale);                                             \
    if (dtype == kF64) decode_f64(p, w, y, n, dtype, mode, scale);                                                                    \
    else decode_f32(p, w, y, n, dtype, mode, float(scale));                                                                           \
    return 0;                                                                                                                         \
  }                                                                                                                                   \
  }                                                                                                                                   \
  extern const Codec name##_row;                                                                                                      \
  const Codec name##_row = {#name, sizeof(Params), kFloats, granule, bound, encode, decode};                                          \
  }
