// sign: one bit a value and the mean magnitude of its block.
//
// Code 1 is a set sign bit (so -0 is negative). The header is one mean for the whole block (signSGD with a scale, Bernstein et al.
// 2018; 1-bit Adam, Tang et al. 2021), or two: of the values with a clear sign bit and of those with a set one (1-bit SGD, Seide
// et al. 2014). Value = the mean of its sign; with one mean that of the negatives is its opposite.
// A block that holds a non-finite value gets NaN means and codes of 0, and decodes to NaN throughout.
#pragma once
#include "thinwire/block.h"

namespace thinwire {

struct Sign {
  struct Params { int32_t block, means; };
  static_assert(sizeof(Params) == 8);
  template <class C> struct Header { C positive, negative; };
  template <class C> static TW_HD size_t header_bytes(const Params& p) { return size_t(p.means) * sizeof(C); }
  static TW_HD size_t block(const Params& p) { return size_t(p.block); }
  static TW_HD size_t payload(const Params&, size_t m) { return packed_bytes(1, m); }

  // The order of every sum, that of a warp: lane l adds values l, l + 32, ...; then the lanes are halved, l + (l + 16) and so on.
  // In double, where a sum of 4096 floats neither overflows nor, for equal values, rounds.
  static constexpr size_t kLanes = 32;
  template <class At> static TW_HD double sum(At at, size_t m) {
    double lane[kLanes] = {};
    size_t j = 0;
    for (; j + kLanes <= m; j += kLanes)
      for (size_t l = 0; l < kLanes; ++l) lane[l] += at(j + l);
    for (size_t l = 0; j + l < m; ++l) lane[l] += at(j + l);
    for (size_t half = kLanes / 2; half; half /= 2)
      for (size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
    return lane[0];
  }

  // What is added up: the magnitudes of the values whose sign bit is in `signs`, times a power of two.
  enum Signs { kPlus, kMinus, kBoth };
  template <class C, Signs signs> struct Magnitudes {
    const C* __restrict u;
    double factor;
    TW_HD double operator()(size_t j) const {
      using Bits = typename Real<C>::Bits;
      const Bits minus = Bits(typename Real<C>::Signed(bits_of(u[j])) >> (8 * sizeof(C) - 1));
      const Bits keep = signs == kBoth ? ~Bits(0) : signs == kMinus ? minus : ~minus;
      return double(float_of(Bits(magnitude_bits(u[j]) & keep))) * factor;
    }
  };
  // Their mean over `count` values. Doubles near their maximum have a finite mean but no finite sum: they are added up scaled.
  template <class C, Signs signs> static TW_HD C mean(const C* u, size_t m, size_t count) {
    double mean = sum(Magnitudes<C, signs>{u, 1.0}, m) / double(count);
    if (!finite(mean)) {
      constexpr double down = 1.0 / double(kMaxBlock), up = double(kMaxBlock);
      const double largest = float_of(uint64_t(Real<double>::largest)) * down;
      mean = sum(Magnitudes<C, signs>{u, down}, m) / double(count);
      mean = finite(mean) ? (mean > largest ? largest : mean) * up : nan<double>();
    }
    return C(mean);
  }

  template <class C> static TW_HD void encode(const Params& p, const C* __restrict u, size_t m, const Noise&, Header<C>& h, uint8_t* payload) {
    uint8_t codes[kMaxBlock + kPackSlack];
    for (size_t j = 0; j < m; ++j) codes[j] = uint8_t(bits_of(u[j]) >> (8 * sizeof(C) - 1));
    pack(1, codes, m, payload);
    if (p.means == 1) {
      h.positive = mean<C, kBoth>(u, m, m);
    } else {
      uint16_t minus = 0;
      for (size_t j = 0; j < m; ++j) minus = uint16_t(minus + codes[j]);
      h.positive = mean<C, kPlus>(u, m, minus < m ? m - minus : 1);
      h.negative = -mean<C, kMinus>(u, m, minus ? minus : 1);
    }
    if (finite(h.positive) && finite(h.negative)) return;
    h.positive = h.negative = nan<C>();
    memset(payload, 0, Sign::payload(p, m));
  }

  template <class C, class Out> static TW_HD void decode(const Params& p, const Header<C>& h, const uint8_t* payload, size_t m, const Out& out) {
    using Bits = typename Real<C>::Bits;
    uint8_t codes[kMaxBlock + kPackSlack];
    unpack(1, payload, m, codes);
    const Bits positive = bits_of(h.positive), differ = positive ^ bits_of(p.means == 1 ? -h.positive : h.negative);
    for (size_t j = 0; j < m; ++j) out(j, float_of(Bits(positive ^ (differ & (Bits(0) - Bits(codes[j]))))));
  }
};

}  // namespace thinwire
