// block_int: b-bit integers on a scale per block, 2 <= b <= 8.
//
// symmetric: scale = max|x| / top, top = 2^(b-1) - 1; code = round(x / scale) + 2^(b-1); value = (code - 2^(b-1)) * scale.
//            The header is the scale.
// minmax:    middle and step of the block's range, step = (max - min) / (2^b - 1); code = round((x - middle) / step + (2^b - 1) / 2);
//            value = middle + (code - (2^b - 1) / 2) * step. Counted from the middle, no intermediate leaves the range of the type.
//            The header is the step, then the middle.
// Rounding is to nearest even, or stochastic: round(v + u), u uniform in (-1/2, 1/2) from 16 random bits (QSGD, Alistarh et al. 2017).
// A block that holds a non-finite value gets a NaN scale and decodes to NaN throughout; a zero block has scale 0.
#pragma once
#include "thinwire/block.h"

namespace thinwire {

struct BlockInt {
  struct Params { int32_t bits, block, stochastic, minmax; };
  static_assert(sizeof(Params) == 16);
  template <class C> struct Header { C scale, middle; };
  template <class C> static TW_HD size_t header_bytes(const Params& p) { return p.minmax ? 2 * sizeof(C) : sizeof(C); }
  static TW_HD size_t block(const Params& p) { return size_t(p.block); }
  static TW_HD size_t payload(const Params& p, size_t m) { return packed_bytes(unsigned(p.bits), m); }

  // Scale of a block whose largest magnitude has these bits: the largest code times the scale stays finite.
  template <class C> static TW_HD C scale_of(typename Real<C>::Bits top_bits, C levels) {
    using R = Real<C>;
    C scale = float_of(top_bits) / levels;
    if (!finite(scale * levels)) scale = float_of(typename R::Bits(bits_of(scale) - 1));
    return scale;
  }
  // Its reciprocal for the encoder, rounded so that no value of the block leaves the levels: then nothing is clamped per value.
  template <class C> static TW_HD C reciprocal_of(typename Real<C>::Bits top_bits, C levels) {
    using R = Real<C>;
    const C top = float_of(top_bits);
    C r = levels / top;                                   // a magnitude below 2^-121 has no finite reciprocal
    r = finite(r) ? r : float_of(typename R::Bits(R::largest));
    r = top * r > levels ? float_of(typename R::Bits(bits_of(r) - 1)) : r;
    return top_bits == 0 ? C(0) : r;
  }

  // codes[j] = low byte of round(at(j) [+ noise] + an integer): adding `magic`, which carries the integer, rounds to nearest even.
  template <class C, class At> static TW_HD void round_to_codes(At at, size_t m, C magic, bool stochastic, const Noise& noise, uint8_t* __restrict codes) {
    if (stochastic) {
      uint16_t random[kMaxBlock + 1];
      noise.fill(random, m);
      for (size_t j = 0; j < m; ++j) codes[j] = uint8_t(bits_of((at(j) + centred(random[j])) + magic));
    } else {
      for (size_t j = 0; j < m; ++j) codes[j] = uint8_t(bits_of(at(j) + magic));
    }
  }
  // A range that ends at the type's largest value may be left by a rounding error. (An infinity can have no other cause: a block that
  // held one decodes to NaN.)
  template <class C> static TW_HD C within_range(C v) {
    const auto bits = bits_of(v);
    return float_of(typename Real<C>::Bits(bits - ((bits & Real<C>::magnitude) == Real<C>::infinity)));
  }
  template <class C> struct Extremes { C low, high; };
  template <class C> static TW_HD Extremes<C> extremes(const C* __restrict u, size_t m) {
    using Key = typename Real<C>::Signed;                 // integers in the order of the floats: their extremes vectorize
    constexpr Key magnitude = Key(Real<C>::magnitude);
    Key low = magnitude, high = ~magnitude;
    for (size_t j = 0; j < m; ++j) {
      const Key bits = Key(bits_of(u[j])), key = bits ^ (bits >> (8 * sizeof(C) - 1) & magnitude);
      low = key < low ? key : low;
      high = key > high ? key : high;
    }
    const auto value = [](Key key) { return float_of(typename Real<C>::Bits(key ^ (key >> (8 * sizeof(C) - 1) & Key(Real<C>::magnitude)))); };
    return {value(low), value(high)};
  }
  template <class C> struct Scaled { const C* __restrict u; C r; TW_HD C operator()(size_t j) const { return u[j] * r; } };
  template <class C> struct Shifted { const C* __restrict u; C middle, r, half; TW_HD C operator()(size_t j) const { return (u[j] - middle) * r + half; } };

  template <class C> static TW_HD void encode(const Params& p, const C* __restrict u, size_t m, const Noise& noise, Header<C>& h, uint8_t* payload) {
    using R = Real<C>;
    using Bits = typename R::Bits;
    uint8_t staged[kMaxBlock + kPackSlack];
    uint8_t* const codes = p.bits == 8 ? payload : staged;
    Bits top = 0;
    for (size_t j = 0; j < m; ++j) { const Bits a = magnitude_bits(u[j]); top = a > top ? a : top; }
    if (top >= R::infinity) {                             // what a NaN rounds to is not the same everywhere, so no code is computed from one
      h.scale = h.middle = nan<C>();
      memset(codes, 0, m);
    } else if (p.minmax) {
      const auto [low, high] = extremes(u, m);
      const C levels = C((1 << p.bits) - 1), half = levels * C(0.5);
      h.middle = low == high ? low : low * C(0.5) + high * C(0.5);
      const Bits below = magnitude_bits(C(low - h.middle)), above = magnitude_bits(C(high - h.middle)), radius = below > above ? below : above;
      h.scale = scale_of<C>(radius, half);
      round_to_codes(Shifted<C>{u, h.middle, reciprocal_of<C>(radius, half), half}, m, R::magic, p.stochastic, noise, codes);
    } else {
      const C levels = C((1 << (p.bits - 1)) - 1);
      h.scale = scale_of<C>(top, levels);
      round_to_codes(Scaled<C>{u, reciprocal_of<C>(top, levels)}, m, R::magic + C(1 << (p.bits - 1)), p.stochastic, noise, codes);
    }
    if (p.bits != 8) pack(unsigned(p.bits), codes, m, payload);
  }

  template <class C, class Out> static TW_HD void decode(const Params& p, const Header<C>& h, const uint8_t* payload, size_t m, const Out& out) {
    uint8_t unpacked[kMaxBlock + kPackSlack];
    const uint8_t* codes = payload;
    if (p.bits != 8) { unpack(unsigned(p.bits), payload, m, unpacked); codes = unpacked; }
    if (p.minmax) {
      const C half = C((1 << p.bits) - 1) * C(0.5);
      for (size_t j = 0; j < m; ++j) out(j, within_range(h.middle + (C(int32_t(codes[j])) - half) * h.scale));
    } else {
      const int32_t bias = 1 << (p.bits - 1);
      for (size_t j = 0; j < m; ++j) out(j, C(int32_t(codes[j]) - bias) * h.scale);
    }
  }
};

}  // namespace thinwire
