// Casts: every value narrowed by itself, to nearest even. The wire is the narrow values in order, little endian, and nothing else.
//
// A saturating cast brings finite values beyond the narrow type's largest one down to that. What is not finite stays so: NaN is
// NaN, an infinity is one, or NaN in e4m3, which has none. (OCP's saturating conversion and CUDA's satfinite turn infinities
// into the largest value: a diverged gradient would look healthy.)
#pragma once
#include "thinwire/numeric.h"

namespace thinwire {

struct Cast {
  struct Params { int32_t saturate; };
  static_assert(sizeof(Params) == 4);
};

// A narrow type: stored mantissa bits, exponent bias, its largest finite value as bits of a float, its codes of infinity and NaN.
template <class T> struct Narrow { static constexpr int mantissa = 23; static constexpr uint32_t largest = Real<float>::largest; };
template <> struct Narrow<half> {
  static constexpr int mantissa = 10, bias = 15;
  static constexpr uint32_t largest = 0x477fe000u, infinity = 0x7c00u, nan = 0x7e00u;    // 65504
};
template <> struct Narrow<bfloat> {
  static constexpr int mantissa = 7, bias = 127;
  static constexpr uint32_t largest = 0x7f7f0000u, infinity = 0x7f80u, nan = 0x7fc0u;    // 3.39e38
};
template <> struct Narrow<e4m3> {
  static constexpr int mantissa = 3, bias = 7;
  static constexpr uint32_t largest = 0x43e00000u, infinity = 0x7fu, nan = 0x7fu;        // 448
};
template <> struct Narrow<e5m2> {
  static constexpr int mantissa = 2, bias = 15;
  static constexpr uint32_t largest = 0x47600000u, infinity = 0x7cu, nan = 0x7fu;        // 57344
};

// Bits of the magnitude to which larger ones are lowered before an array of T goes into wires of W. Saturating: the largest that
// both types hold (float16's 65504 would round up to 65536 in bf16 and come back as an infinity: its limit there is 65280).
// Otherwise the first that W does not hold: every W is laid out so that its code is that of infinity.
template <class T, class W> TW_HD uint32_t cast_limit(bool saturate) {
  constexpr int shift = 23 - Narrow<W>::mantissa;
  constexpr uint32_t least = Narrow<T>::largest < Narrow<W>::largest ? Narrow<T>::largest : Narrow<W>::largest;
  return saturate ? least >> shift << shift : Narrow<W>::largest + (1u << shift);
}

// x in W, one rounding.
template <class W, class C> TW_HD W cast(C x, uint32_t limit) {
  if constexpr (std::is_same_v<W, C>) return x;
  else if constexpr (std::is_same_v<C, double>) return cast<W>(to_odd(x), limit);
  else {
    using N = Narrow<W>;
    constexpr int shift = 23 - N::mantissa, above = 32 - 8 * int(sizeof(W));
    const uint32_t u = bits_of(x), a = u & 0x7fffffffu, b = a < limit ? a : limit;
    uint32_t r;
    if constexpr (N::bias == Real<float>::bias) r = (b + ((1u << (shift - 1)) - 1) + (b >> shift & 1)) >> shift;
    else r = narrow_magnitude<N::mantissa, N::bias>(b);
    r = select(a >= Real<float>::infinity, N::infinity, r);
    if constexpr (N::nan != N::infinity) r = select(a > Real<float>::infinity, N::nan, r);
    return {decltype(W::bits)(r | (u & 0x80000000u) >> above)};
  }
}
// x + residual in W, its loss left in the residual; a residual that would not be finite stays as it was.
template <class W, class T> TW_HD W cast_with_residual(T x, compute_t<T>& residual, uint32_t limit) {
  const compute_t<T> u = widen(x) + residual;
  const W w = cast<W>(u, limit);
  const compute_t<T> lost = u - compute_t<T>(widen(w));
  residual = finite(lost) ? lost : residual;
  return w;
}

// Value i of a wire, which may start anywhere.
template <class W> TW_HD W load(const uint8_t* wire, size_t i) { W w; memcpy(&w, wire + i * sizeof(W), sizeof(W)); return w; }
template <class W> TW_HD void store(uint8_t* wire, size_t i, W w) { memcpy(wire + i * sizeof(W), &w, sizeof(W)); }

}  // namespace thinwire
