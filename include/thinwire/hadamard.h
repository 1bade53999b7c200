// hadamard: a randomized Hadamard rotation in front of a codec that works in pieces. It spreads large values over their whole run,
// so that the quantizer behind it meets nearly normal values whatever came in (Suresh et al. 2017; DRIVE, Vargaftik et al. 2021).
//
// Each run of `block` values is rotated by itself. A last run of m < block values is cut by the binary digits of m, largest power of
// two first, and each cut rotated by itself: nothing is padded. A cut x of 2^k values becomes y = H D x * 2^-ceil(k/2), and
// x = D H y * 2^-floor(k/2): D random signs, H the Hadamard matrix in natural order, of entries +-1, with H H = 2^k. So every factor
// is a power of two. The sign of the value at place i of its run (not of its cut) is - if bit i / 256 of
// random_bits(random_key(key), i mod 256) is set.
// H is butterflies (a, b) -> (a + b, a - b) at distances 1, 2, 4, ..., 2^(k-1), in this order after the factor. On the way back the
// distances from kRow on come first, then those below it, then the factor: both ways memory outside is met in order.
//
// Wire: that of the inner codec for the rotated values, as floats (doubles for double) whatever the array's type.
// A cut whose y[0], to which every value contributes, is no finite number is NaN throughout, the one of nan(): so it is after an
// infinity or a NaN in the input. Finite values above the largest float / 2^floor(k/2) may overflow elsewhere too; the inner codec
// then sees infinities or NaN, and what it makes of them spreads over the cut on the way back.
#pragma once
#include "thinwire/numeric.h"

namespace thinwire {

struct Hadamard {
  struct Params { int32_t block, key, codec; uint8_t inner[64]; };   // the inner codec: its row's number, its parameters
  static_assert(sizeof(Params) == 76);

  static constexpr size_t kMaxRun = 8192;
  static constexpr size_t kMaxPiece = 65536;   // most values that may have to be rotated before the inner codec can take them
  static constexpr size_t kSignWords = 256;
  static_assert(kMaxRun <= 32 * kSignWords);

  static TW_HD unsigned log2(size_t n) { return unsigned(63 - __builtin_clzll(n)); }
  // Size of the first cut of m > 0 values.
  static TW_HD size_t cut(size_t m) { return size_t(1) << log2(m); }

  // A multiplier is a sign and a power of two, which the upper 16 bits of a C hold: half the cache that floats would take.
  template <class C> static TW_HD C multiplier(uint16_t upper) { return float_of(typename Real<C>::Bits(typename Real<C>::Bits(upper) << (8 * sizeof(C) - 16))); }
  template <class C> static TW_HD uint16_t upper_of_power(int e) { return uint16_t((e + Real<C>::bias) << (Real<C>::mantissa - (8 * int(sizeof(C)) - 16))); }

  // The multipliers of the places of a run of m values: before the rotation, and after the rotation back.
  template <class C> static TW_HD void multipliers(int32_t key, size_t m, uint16_t* __restrict there, uint16_t* __restrict back) {
    uint32_t words[kSignWords];
    const uint32_t hashed = random_key(uint64_t(key));
    for (size_t i = 0; i < kSignWords; ++i) words[i] = random_bits(hashed, uint32_t(i));
    for (size_t at = 0, bit = 0; at < m; at += kSignWords, ++bit) {
      const size_t some = m - at < kSignWords ? m - at : kSignWords;
      for (size_t i = 0; i < some; ++i) there[at + i] = uint16_t(words[i] >> bit << 15);
    }
    for (size_t at = 0, size; at < m; at += size) {
      size = cut(m - at);
      const int k = int(log2(size));
      const uint16_t scale = upper_of_power<C>(-((k + 1) / 2)), inverse = upper_of_power<C>(-(k / 2));
      for (size_t j = at; j < at + size; ++j) {
        const uint16_t sign = there[j];
        there[j] = uint16_t(sign | scale);
        back[j] = uint16_t(sign | inverse);
      }
    }
  }

  // --- H as a CPU computes it: plain loops, no less than 16 values long ---

  // Distances below kRow, or below n if that is less: from at(i) to put(i, value).
  // A step takes neighbours and puts their sums into the first half of a row, their differences into the second. That does the
  // lowest bit of the index and makes it the highest, so five steps of the same shape do all five and restore the order; a vector
  // machine needs one shuffle a vector and step. `unroll 1` keeps gcc from unrolling the loops into scalars before it vectorizes.
  static constexpr size_t kRow = 32;
  template <class C> static TW_HD void step(const C* __restrict from, C* __restrict to) {
#pragma GCC unroll 1
    for (size_t i = 0; i < kRow / 2; ++i) to[i] = from[2 * i] + from[2 * i + 1];
#pragma GCC unroll 1
    for (size_t i = 0; i < kRow / 2; ++i) to[i + kRow / 2] = from[2 * i] - from[2 * i + 1];
  }
  template <class C, class At, class Put> static TW_HD void rows(size_t n, const At& at, const Put& put) {
    C a[kRow], b[kRow];
    if (n < kRow) {
      for (size_t j = 0; j < n; ++j) a[j] = at(j);
      passes<1>(a, n);
      for (size_t j = 0; j < n; ++j) put(j, a[j]);
      return;
    }
    for (size_t row = 0; row < n; row += kRow) {
#pragma GCC unroll 1
      for (size_t j = 0; j < kRow; ++j) a[j] = at(row + j);
      step(a, b);
      step(b, a);
      step(a, b);
      step(b, a);
      step(a, b);
#pragma GCC unroll 1
      for (size_t j = 0; j < kRow; ++j) put(row + j, b[j]);
    }
  }

  template <size_t R, class C> static TW_HD void butterflies(C* r) {
    if constexpr (R > 1) {
      butterflies<R / 2>(r);
      butterflies<R / 2>(r + R / 2);
#pragma GCC unroll 16
      for (size_t k = 0; k < R / 2; ++k) {
        const C a = r[k], b = r[k + R / 2];
        r[k] = a + b;
        r[k + R / 2] = a - b;
      }
    }
  }
  // Distances Stride, 2 * Stride, ..., R / 2 * Stride in one pass over v[0..n): R values at a time stay in registers.
  template <size_t R, size_t Stride, class C> static TW_HD void pass(C* v, size_t n) {
    for (C* base = v; base != v + n; base += R * Stride)
#pragma GCC unroll 1
      for (size_t j = 0; j < Stride; ++j) {
        C r[R];
#pragma GCC unroll 16
        for (size_t k = 0; k < R; ++k) r[k] = base[j + k * Stride];
        butterflies<R>(r);
#pragma GCC unroll 16
        for (size_t k = 0; k < R; ++k) base[j + k * Stride] = r[k];
      }
  }
  // Distances from Stride to n / 2.
  template <size_t Stride, class C> static TW_HD void passes(C* v, size_t n) {
    if constexpr (Stride < kMaxRun) {
      if (n >= 16 * Stride) {
        pass<16, Stride>(v, n);
        passes<16 * Stride>(v, n);
      } else if (n == 8 * Stride) pass<8, Stride>(v, n);
      else if (n == 4 * Stride) pass<4, Stride>(v, n);
      else if (n == 2 * Stride) pass<2, Stride>(v, n);
    }
  }
};

}  // namespace thinwire
