// Sparse codecs: a selection, which is the codec's own, the indices of what it kept (cpu/index.h), and a stage, any dense codec, for the kept values.
//
// A selector K supplies
//   Params             its parameters, ending in `int32_t codec; uint8_t then[64];`, the stage. Python packs without padding, so declare the struct
//                      __attribute__((packed, aligned(4))) where its members would leave any
//   capacity(p, n)     most entries that a selection from n values has
//   select<T, Index>(p, x, u, n, seed, index, value)
//                      gives the count. x: the array as float or double; u: x + residual, or x itself. Ascending indices (uint32_t or uint64_t)
//                      and values into room for capacity + kSelectSlack entries. Non-finite values count as largest, NaN as largest of all.
//                      kNoMemory if there was none.
// and may supply
//   left_out(p)        a LeftOut: what a selection may leave out, so that looking for a lost non-finite value costs no more than it must
//   alters             true if the values it gives are not those of u
//   shared<Index>(p, n, seed, index)
//                      if the indices follow from n and the seed alone: writes them, gives their count
// TW_SPARSE_CODEC(name, K) makes both rows of it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "scratch.h"
#include "thinwire/array.h"
#include "thinwire/numeric.h"
#include "thinwire/sparse.h"

namespace thinwire {

enum class LeftOut {
  kFinite,    // never a non-finite value
  kSmaller,   // no value larger than one that is kept: a non-finite one only if nothing finite is kept
  kAnything,
  kForgiven,  // anything, and a non-finite value that is left out is nobody's concern
};

// The row's functions, for every sparse codec.
size_t sparse_bound(const Codec& codec, const void* params, size_t n, int dtype);
size_t sparse_encode(const Codec& codec, const void* params, const void* x, size_t n, int dtype, uint8_t* wire, uint64_t seed, void* residual);
int sparse_decode(const Codec& codec, const void* params, const uint8_t* wire, size_t bytes, void* y, size_t n, int dtype, int mode, double scale);

// --- what select does for every selector ---

// x of a 16-bit type as floats.
void widen_array(const void* x, size_t n, int dtype, float* values);
// residual = x + residual, finite: what is too large becomes the largest.
void add_to_residual(const float* x, float* residual, size_t n);
void add_to_residual(const double* x, double* residual, size_t n);
size_t count_nonfinite(const float* x, size_t n);
size_t count_nonfinite(const double* x, size_t n);

template <class K> auto left_out_of(const typename K::Params& p, int) -> decltype(K::left_out(p)) { return K::left_out(p); }
template <class K> LeftOut left_out_of(const typename K::Params&, long) { return LeftOut::kAnything; }

template <class K, class = void> struct Alters { static constexpr bool value = false; };
template <class K> struct Alters<K, std::void_t<decltype(K::alters)>> { static constexpr bool value = K::alters; };

// Whether a selection (of `count`, from x itself) left out a non-finite value.
template <class T> bool lost_nonfinite(LeftOut left_out, const T* x, size_t n, const T* value, size_t count) {
  if (left_out == LeftOut::kFinite || left_out == LeftOut::kForgiven || count == n) return false;
  if (left_out == LeftOut::kSmaller) for (size_t i = 0; i < count; ++i) if (finite(value[i])) return false;
  return any_nonfinite(x, n, sizeof(T) == 8 ? kF64 : kF32) && count_nonfinite(x, n) > count_nonfinite(value, count);
}

template <class K, class T, class Index>
size_t select_of(const typename K::Params& p, const void* x, size_t n, int dtype, uint64_t seed, T* residual, Index* index, T* value, int* found) {
  Scratch scratch;
  const T* v = static_cast<const T*>(x);
  if constexpr (std::is_same_v<T, float>) {
    if (dtype != kF32) {
      float* const wide = scratch.take<float>(n);
      if (!wide) return kNoMemory;
      widen_array(x, n, dtype, wide);
      v = wide;
    }
  }
  *found = (residual && any_nonfinite(x, n, dtype) ? kUntouched : 0) | (Alters<K>::value ? kAltered : 0);
  if (residual && !(*found & kUntouched)) {
    add_to_residual(v, residual, n);
    const size_t count = K::template select<T, Index>(p, v, residual, n, seed, index, value);
    if (count != kNoMemory) for (size_t i = 0; i < count; ++i) residual[index[i]] -= value[i];
    return count;
  }
  const size_t count = K::template select<T, Index>(p, v, v, n, seed, index, value);
  if (count != kNoMemory && lost_nonfinite(left_out_of<K>(p, 0), v, n, value, count)) *found |= kLeftOut;
  return count;
}

template <class K> struct Selector {
  using Params = typename K::Params;
  static_assert(offsetof(Params, codec) + sizeof(StageParams) == sizeof(Params), "the stage ends the parameters");

  static size_t capacity(const void* params, size_t n) { return K::capacity(*static_cast<const Params*>(params), n); }
  static size_t select(const void* params, const void* x, size_t n, int dtype, uint64_t seed, void* residual, void* index, void* value, int* found) {
    const Params& p = *static_cast<const Params*>(params);
    const auto with = [&](auto* i, auto* v) {
      return select_of<K>(p, x, n, dtype, seed, static_cast<decltype(v)>(residual), i, v, found);
    };
    uint32_t* const narrow = static_cast<uint32_t*>(index);
    uint64_t* const wide = static_cast<uint64_t*>(index);
    if (dtype == kF64) return wide_index(n) ? with(wide, static_cast<double*>(value)) : with(narrow, static_cast<double*>(value));
    return wide_index(n) ? with(wide, static_cast<float*>(value)) : with(narrow, static_cast<float*>(value));
  }
  template <class S> static auto shared_of(int) -> decltype(S::template shared<uint32_t>(std::declval<const Params&>(), 0, 0, nullptr), decltype(Sparse::shared)()) {
    return [](const void* params, size_t n, uint64_t seed, void* index) -> size_t {
      const Params& p = *static_cast<const Params*>(params);
      if (wide_index(n)) return S::template shared<uint64_t>(p, n, seed, static_cast<uint64_t*>(index));
      return S::template shared<uint32_t>(p, n, seed, static_cast<uint32_t*>(index));
    };
  }
  template <class S> static decltype(Sparse::shared) shared_of(...) { return nullptr; }
};

}  // namespace thinwire

// Both rows of selector K: what it selects, and the codec over it.
#define TW_SPARSE_CODEC(name, K)                                                                                                      \
  namespace thinwire {                                                                                                                \
  extern const Codec name##_row;                                                                                                      \
  namespace {                                                                                                                         \
  const Sparse kSparse = {Selector<K>::capacity, Selector<K>::select, Selector<K>::shared_of<K>(0)};                                  \
  size_t granule(const void*) { return 0; }                                                                                           \
  size_t bound(const void* params, size_t n, int dtype) { return sparse_bound(name##_row, params, n, dtype); }                        \
  size_t encode(const void* params, const void* x, size_t n, int dtype, uint8_t* w, uint64_t seed, uint64_t, void* r) {               \
    return sparse_encode(name##_row, params, x, n, dtype, w, seed, r);                                                                \
  }                                                                                                                                   \
  int decode(const void* params, const uint8_t* w, size_t bytes, void* y, size_t n, int dtype, int mode, double scale) {              \
    return sparse_decode(name##_row, params, w, bytes, y, n, dtype, mode, scale);                                                     \
  }                                                                                                                                   \
  }                                                                                                                                   \
  const Codec name##_row = {#name, sizeof(K::Params), kFloats, granule, bound, encode, decode, &kSparse};                             \
  }
