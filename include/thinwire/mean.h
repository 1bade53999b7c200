// mean: one magnitude for all values of an array, the mean of theirs, and a sign bit each, or none where all signs are the same (RedSync, Fang et al. 2018;
// Sparse Binary Compression, Sattler et al. 2019: the values of a selection).
//
// Wire: the mean as a float (double for double), then the sign bits, rows of kRow values each packed as codes of 1 bit, set for minus. Value = the mean,
// its sign flipped where the bit is set. Where all sign bits are the same there are none of them, and the mean has the sign. An array that holds a
// non-finite value is a NaN alone and decodes to NaN throughout. No bytes for no values.
// The order of the sum is that of Sign: 32 lanes, in double, over the whole array. The mean lies between the least and the largest magnitude, so equal ones
// are kept exactly.
#pragma once
#include "thinwire/sign.h"

namespace thinwire {

struct Mean {
  static constexpr size_t kRow = kMaxBlock, kLanes = Sign::kLanes;
  static_assert(kRow % kLanes == 0 && kRow % 8 == 0);

  // What is known of the values so far.
  template <class C> struct Sums {
    using Bits = typename Real<C>::Bits;
    double lane[kLanes] = {};
    Bits least = Real<C>::magnitude, largest = 0;
    size_t minus = 0;
  };
  // Adds the magnitudes of a row, times a power of two, to the lanes. Rows come in order, all but the last of kRow values.
  template <class C> static TW_HD void add(const C* __restrict u, size_t m, double factor, Sums<C>& s) {
    size_t j = 0;
    for (; j + kLanes <= m; j += kLanes)
      for (size_t l = 0; l < kLanes; ++l) s.lane[l] += double(float_of(magnitude_bits(u[j + l]))) * factor;
    for (size_t l = 0; j + l < m; ++l) s.lane[l] += double(float_of(magnitude_bits(u[j + l]))) * factor;
  }
  template <class C> static TW_HD void range(const C* __restrict u, size_t m, Sums<C>& s) {
    using Bits = typename Real<C>::Bits;
    Bits least = s.least, largest = s.largest, minus = 0;
    for (size_t j = 0; j < m; ++j) {
      const Bits a = magnitude_bits(u[j]);
      least = a < least ? a : least;
      largest = a > largest ? a : largest;
      minus += bits_of(u[j]) >> (8 * sizeof(C) - 1);
    }
    s.least = least;
    s.largest = largest;
    s.minus += size_t(minus);
  }
  // The mean of n values that were added with this factor; not finite only if a value or a lane is not.
  template <class C> static TW_HD C mean(Sums<C>& s, size_t n, double factor) {
    for (size_t half = kLanes / 2; half; half /= 2)
      for (size_t l = 0; l < half; ++l) s.lane[l] += s.lane[l + half];
    const double least = double(float_of(s.least)), largest = double(float_of(s.largest));
    double mean = s.lane[0] / double(n);
    if (!finite(mean)) return nan<C>();
    mean = mean < least * factor ? least : mean > largest * factor ? largest : mean / factor;
    return C(mean);
  }
};

}  // namespace thinwire
