// Numbers: bit casts, 16-bit and 8-bit floats by integer arithmetic, rounding, counter-based random bits.
//
// The same functions run on CPU and GPU and give the same bits. Compiled without contraction and without fast-math. No early
// return and no `c ? a : b` around float arithmetic (gcc does not if-convert that under trapping math, and the loop around it
// stays scalar); select() instead.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "thinwire/codec.h"
#include "thinwire/target.h"

namespace thinwire {

struct half { uint16_t bits; };      // IEEE binary16
struct bfloat { uint16_t bits; };    // the upper half of a binary32
struct e4m3 { uint8_t bits; };       // OCP fp8: maximum 448, no infinity, one NaN magnitude 0x7f
struct e5m2 { uint8_t bits; };       // OCP fp8: maximum 57344, infinity 0x7c

TW_HD uint32_t bits_of(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
TW_HD uint64_t bits_of(double x) { uint64_t u; memcpy(&u, &x, 8); return u; }
TW_HD float float_of(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }
TW_HD double float_of(uint64_t u) { double x; memcpy(&x, &u, 8); return x; }
TW_HD uint32_t select(bool c, uint32_t a, uint32_t b) { return b ^ ((a ^ b) & -uint32_t(c)); }
TW_HD uint64_t select(bool c, uint64_t a, uint64_t b) { return b ^ ((a ^ b) & -uint64_t(c)); }

// The types in which a codec computes: float for all but float64, whose exponents a float could not hold.
template <class T> using compute_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Layout of a binary floating type C.
template <class C> struct Real;
template <> struct Real<float> {
  using Bits = uint32_t; using Signed = int32_t;
  static constexpr int mantissa = 23, bias = 127;
  static constexpr Bits infinity = 0x7f800000u, magnitude = 0x7fffffffu, nan = 0x7fc00000u, largest = 0x7f7fffffu;
  static constexpr float magic = 12582912.f;            // 1.5 * 2^23: adding it rounds to the nearest even integer, left in the low bits
};
template <> struct Real<double> {
  using Bits = uint64_t; using Signed = int64_t;
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr Bits infinity = 0x7ff0000000000000u, magnitude = 0x7fffffffffffffffu, nan = 0x7ff8000000000000u,
                        largest = 0x7fefffffffffffffu;
  static constexpr double magic = 6755399441055744.;    // 1.5 * 2^52
};

template <class C> TW_HD typename Real<C>::Bits magnitude_bits(C x) { return bits_of(x) & Real<C>::magnitude; }
template <class C> TW_HD bool finite(C x) { return magnitude_bits(x) < Real<C>::infinity; }
template <class C> TW_HD C nan() { return float_of(typename Real<C>::Bits(Real<C>::nan)); }

// --- narrowing, round to nearest even; NaN becomes the one quiet NaN with its sign ---

// float -> float with Mantissa stored mantissa bits and exponent bias Bias, as an unsigned magnitude. Values below the smallest
// normal are rounded by adding the power of two whose unit in the last place is the target's smallest subnormal.
template <int Mantissa, int Bias> TW_HD uint32_t narrow_magnitude(uint32_t a) {
  constexpr int shift = 23 - Mantissa;
  constexpr uint32_t normal = uint32_t(127 - Bias + 1) << 23;                       // smallest normal of the target
  constexpr uint32_t lift = uint32_t(127 - Bias + 1 - Mantissa + 23) << 23;
  const uint32_t big = (a + ((1u << (shift - 1)) - 1) + (a >> shift & 1) - (uint32_t(127 - Bias) << 23)) >> shift;
  const uint32_t small = bits_of(float_of(a) + float_of(lift)) - lift;
  return select(a < normal, small, big);
}

TW_HD bfloat to_bfloat(float x) {
  const uint32_t u = bits_of(x), a = u & 0x7fffffffu;
  const uint32_t r = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
  return {uint16_t(select(a > 0x7f800000u, (u >> 16 & 0x8000u) | 0x7fc0u, r))};
}
TW_HD half to_half(float x) {
  const uint32_t u = bits_of(x), a = u & 0x7fffffffu;
  uint32_t r = narrow_magnitude<10, 15>(a);
  r = select(a >= 0x477ff000u, 0x7c00u, r);                                         // 65520 and above round to infinity
  r = select(a > 0x7f800000u, 0x7e00u, r);
  return {uint16_t(r | (u >> 16 & 0x8000u))};
}
TW_HD e4m3 to_e4m3(float x) {
  const uint32_t u = bits_of(x), a = u & 0x7fffffffu;
  uint32_t r = narrow_magnitude<3, 7>(a);
  r = select(a > 0x43e80000u, 0x7fu, r);                                            // 464 itself ties to the even 448
  return {uint8_t(r | (u >> 24 & 0x80u))};
}
TW_HD e5m2 to_e5m2(float x) {
  const uint32_t u = bits_of(x), a = u & 0x7fffffffu;
  uint32_t r = narrow_magnitude<2, 15>(a);
  r = select(a >= 0x47700000u, 0x7cu, r);                                           // 61440 and above round past 57344
  r = select(a > 0x7f800000u, 0x7fu, r);
  return {uint8_t(r | (u >> 24 & 0x80u))};
}
// double -> float rounded to odd: what a second rounding needs to give the result of a single one (Boldo, Melquiond 2008).
TW_HD float to_odd(double x) {
  const float f = float(x);
  const uint32_t u = bits_of(f), a = u & 0x7fffffffu;
  const double back = double(f);
  const uint64_t bx = bits_of(x) & Real<double>::magnitude, bb = bits_of(back) & Real<double>::magnitude;
  const bool inexact = bx != bb && bx < Real<double>::infinity;
  const uint32_t toward_zero = a - uint32_t(inexact && bb > bx);                    // also takes an overflow back to the largest float
  return float_of(select(inexact, toward_zero | 1u, a) | (u & 0x80000000u));
}

// --- widening, exact ---
TW_HD float to_float(float x) { return x; }
TW_HD float to_float(bfloat x) { return float_of(uint32_t(x.bits) << 16); }
TW_HD float to_float(half x) {
  const uint32_t a = x.bits & 0x7fffu;
  const uint32_t big = (a << 13) + (112u << 23);
  const uint32_t small = bits_of(float(int32_t(a)) * 5.9604644775390625e-8f);       // * 2^-24, exact and no denormal operand
  uint32_t r = select(a < 0x400u, small, big);
  r = select(a >= 0x7c00u, 0x7f800000u | (a & 0x3ffu) << 13, r);
  return float_of(r | uint32_t(x.bits & 0x8000u) << 16);
}
TW_HD float to_float(e4m3 x) {
  const uint32_t a = x.bits & 0x7fu;
  const uint32_t big = (a << 20) + (120u << 23);
  const uint32_t small = bits_of(float(int32_t(a)) * 0.001953125f);                 // * 2^-9
  uint32_t r = select(a < 8u, small, big);
  r = select(a == 0x7fu, 0x7fc00000u, r);
  return float_of(r | uint32_t(x.bits & 0x80u) << 24);
}
TW_HD float to_float(e5m2 x) {
  const uint32_t a = x.bits & 0x7fu;
  const uint32_t big = (a << 21) + (112u << 23);
  const uint32_t small = bits_of(float(int32_t(a)) * 1.52587890625e-5f);            // * 2^-16
  uint32_t r = select(a < 4u, small, big);
  r = select(a > 0x7bu, 0x7f800000u + ((a & 3u) << 21), r);
  return float_of(r | uint32_t(x.bits & 0x80u) << 24);
}

template <class T> TW_HD compute_t<T> widen(T x) {
  if constexpr (std::is_same_v<T, double>) return x; else return to_float(x);
}
// compute_t -> T, one rounding. From float only; from double to a narrow type go through to_odd.
template <class T> TW_HD T narrow(compute_t<T> x) {
  if constexpr (std::is_same_v<T, double> || std::is_same_v<T, float>) return x;
  else if constexpr (std::is_same_v<T, half>) return to_half(x);
  else if constexpr (std::is_same_v<T, bfloat>) return to_bfloat(x);
  else if constexpr (std::is_same_v<T, e4m3>) return to_e4m3(x);
  else return to_e5m2(x);
}

// --- random bits: a pure function of (seed, index), the same on any thread, device or piece ---

// Seed -> 32-bit key (splitmix64's finalizer, Steele et al. 2014).
TW_HD uint32_t random_key(uint64_t seed) {
  uint64_t z = seed + 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return uint32_t((z ^ z >> 31) >> 16);
}
// 32 random bits of counter i (murmur3's finalizer over a Weyl sequence, keyed before and between the rounds).
TW_HD uint32_t random_bits(uint32_t key, uint32_t i) {
  uint32_t h = i * 0x9e3779b9u ^ key;
  h ^= h >> 16; h *= 0x85ebca6bu;
  h ^= (h >> 13) ^ (key >> 3); h *= 0xc2b2ae35u;
  return h ^ h >> 16;
}

// Noise of one block of values: 16 random bits a value, one hash for values j and j + half of the block.
struct Noise {
  uint32_t key, base;
  // `index` is that of the block's first value in the whole array (even); its high half goes into the key.
  TW_HD Noise(uint32_t array_key, uint64_t index)
      : key(array_key + uint32_t(index >> 33) * 0x85ebca77u), base(uint32_t(index >> 1)) {}
  // bits[j], j < m, rounded up to an even count: room for m + 1 values.
  TW_HD void fill(uint16_t* bits, size_t m) const {
    const size_t half = (m + 1) / 2;
    for (size_t j = 0; j < half; ++j) {
      const uint32_t h = random_bits(key, base + uint32_t(j));
      bits[j] = uint16_t(h);
      bits[j + half] = uint16_t(h >> 16);
    }
  }
};
// Sixteen random bits as a centred uniform in (-1/2, 1/2): |v| <= top and v + u rounds to at most top (with 23 bits it would not, for 127).
TW_HD float centred(uint16_t bits) { return (float(int32_t(bits)) - 32767.5f) * (1.f / 65536.f); }

}  // namespace thinwire
