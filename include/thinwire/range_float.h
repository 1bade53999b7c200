// range_float: floats of few bits whose exponents end where the block's largest magnitude is (Wang et al. 2020).
//
// Cut to m mantissa bits, the patterns of the positive floats are consecutive integers, in the order of their values. The largest
// code, 2^(bits - 1) - 1, is the pattern of the block's largest magnitude, the codes below are the patterns below, and 0 is zero, with
// the sign in the top bit of each. So no bit is spent on exponents that the block has not got.
//
// The header is the float whose pattern is the one below code 1's. Value = the float `code` patterns above it, or 0 for code 0. Rounding
// is to the nearest pattern, ties to even, where the paper cuts and decodes to the middle of what was cut: the same bound on the
// relative error, 2^-(m + 1), but a block's powers of two, and what was coded before, stay what they are. What rounds to a pattern below code 1's
// becomes 0. A block near the type's largest value ends at the largest finite pattern, one of denormals starts at 0.
// A block that holds a non-finite value gets a NaN header and codes of 0, and decodes to NaN throughout.
#pragma once
#include "thinwire/block.h"

namespace thinwire {

struct RangeFloat {
  struct Params { int32_t bits, mantissa, block; };
  static_assert(sizeof(Params) == 12);
  template <class C> struct Header { C base; };
  template <class C> static TW_HD size_t header_bytes(const Params&) { return sizeof(C); }
  static TW_HD size_t block(const Params& p) { return size_t(p.block); }
  // Wide codes are a plane of their low bytes before the planes of what is left, or, of 16 bits, as they are.
  static TW_HD size_t payload(const Params& p, size_t m) { return p.bits > 8 ? m + packed_bytes(unsigned(p.bits) - 8, m) : packed_bytes(unsigned(p.bits), m); }

  template <class C> struct Grid {
    using Bits = typename Real<C>::Bits;
    int shift, sign;                                     // mantissa bits cut off; how far the sign moves down
    Bits half, last, top;                                // half a step less one; the largest finite pattern; the largest code
    Bits below = 0, highest = 0;                         // the pattern of code 0; the block's largest code
    TW_HD explicit Grid(const Params& p)
        : shift(Real<C>::mantissa - p.mantissa), sign(int(8 * sizeof(C)) - p.bits), half((Bits(1) << (shift - 1)) - 1),
          last((Real<C>::infinity >> shift) - 1), top((Bits(1) << (p.bits - 1)) - 1) {}
    TW_HD Bits pattern(Bits a) const { return (a + half + (a >> shift & 1)) >> shift; }
    TW_HD void end_at(Bits largest) {
      Bits end = pattern(largest);
      end = end < last ? end : last;
      below = end > top ? end - top : 0;
      highest = end - below;
    }
    TW_HD uint32_t code(C x) const {
      const Bits r = pattern(magnitude_bits(x)), c = (r > below ? r : below) - below;
      return uint32_t((c < highest ? c : highest) | (bits_of(x) & ~Real<C>::magnitude) >> sign);
    }
  };
  template <class C, class Code> static TW_HD void encode_codes(const Grid<C>& g, const C* __restrict u, size_t m, Code* __restrict codes) {
    for (size_t j = 0; j < m; ++j) codes[j] = Code(g.code(u[j]));
  }

  template <class C> static TW_HD void encode(const Params& p, const C* __restrict u, size_t m, const Noise&, Header<C>& h, uint8_t* payload) {
    using R = Real<C>;
    using Bits = typename R::Bits;
    Bits largest = 0;
    for (size_t j = 0; j < m; ++j) { const Bits a = magnitude_bits(u[j]); largest = a > largest ? a : largest; }
    if (largest >= R::infinity) {
      h.base = nan<C>();
      memset(payload, 0, RangeFloat::payload(p, m));
      return;
    }
    Grid<C> g(p);
    g.end_at(largest);
    h.base = float_of(Bits(g.below << g.shift));
    if (p.bits == 8) {
      encode_codes(g, u, m, payload);
    } else if (p.bits < 8) {
      uint8_t codes[kMaxBlock + kPackSlack];
      encode_codes(g, u, m, codes);
      pack(unsigned(p.bits), codes, m, payload);
    } else {
      uint16_t wide[kMaxBlock];
      encode_codes(g, u, m, wide);
      if (p.bits == 16) { memcpy(payload, wide, 2 * m); return; }
      uint8_t high[kMaxBlock + kPackSlack];
      for (size_t j = 0; j < m; ++j) { payload[j] = uint8_t(wide[j]); high[j] = uint8_t(wide[j] >> 8); }
      pack(unsigned(p.bits) - 8, high, m, payload + m);
    }
  }

  template <class C, class Code, class Out> static TW_HD void decode_codes(const Params& p, const Header<C>& h, const Code* __restrict codes, size_t m, const Out& out) {
    using R = Real<C>;
    using Bits = typename R::Bits;
    const Grid<C> g(p);
    const Bits base = bits_of(h.base), zero = finite(h.base) ? 0 : Bits(R::nan);
    for (size_t j = 0; j < m; ++j) {
      const Bits code = codes[j], c = code & g.top;
      out(j, float_of(Bits(select(c != 0, Bits(base + (c << g.shift)), zero) | ((code << g.sign) & ~R::magnitude))));
    }
  }

  template <class C, class Out> static TW_HD void decode(const Params& p, const Header<C>& h, const uint8_t* payload, size_t m, const Out& out) {
    if (p.bits == 8) {
      decode_codes(p, h, payload, m, out);
    } else if (p.bits < 8) {
      uint8_t codes[kMaxBlock + kPackSlack];
      unpack(unsigned(p.bits), payload, m, codes);
      decode_codes(p, h, codes, m, out);
    } else {
      uint16_t wide[kMaxBlock];
      if (p.bits == 16) {
        memcpy(wide, payload, 2 * m);
      } else {
        uint8_t high[kMaxBlock + kPackSlack];
        unpack(unsigned(p.bits) - 8, payload + m, m, high);
        for (size_t j = 0; j < m; ++j) wide[j] = uint16_t(payload[j] | high[j] << 8);
      }
      decode_codes(p, h, wide, m, out);
    }
  }
};

}  // namespace thinwire
