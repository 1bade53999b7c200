// natural: every value rounded to a power of two, 8 bits a value (natural compression, Horvath et al. 2019).
//
// The header is scale = 2^(E + 1), E the exponent of the block's largest magnitude: what that may round up to. It stays a normal
// number: at least the type's smallest, and 2^127 (2^1023 for double) where 2^(E + 1) would overflow, so that values above round
// down only. Code: bit 7 the sign, bits 0..6 c; value = scale * 2^(c - 127), or 0 for c = 0 (with its sign).
//
// c is the exponent field of v = |x| / scale as a float (which is < 1, and < 2 under the cap): adding to its bits a number below
// 2^23 and cutting the mantissa off rounds v up or down, and a v below 2^-126, a denormal float, to 2^-126 or 0. The number is 2^22,
// for nearest, ties up; or 16 random bits and a half, which rounds up with probability (v - lower) / (upper - lower).
// A block that holds a non-finite value gets a NaN scale and codes of 0, and decodes to NaN throughout.
#pragma once
#include "thinwire/block.h"

namespace thinwire {

struct Natural {
  struct Params { int32_t block, stochastic; };
  static_assert(sizeof(Params) == 8);
  template <class C> struct Header { C scale; };
  template <class C> static TW_HD size_t header_bytes(const Params&) { return sizeof(C); }
  static TW_HD size_t block(const Params& p) { return size_t(p.block); }
  static TW_HD size_t payload(const Params&, size_t m) { return m; }

  // The division by the scale is a product with its reciprocal, a power of two itself. Under the cap c could come out as 128.
  template <class C> static TW_HD uint8_t code(C x, C reciprocal, uint32_t carry) {
    const uint32_t c = (bits_of(float(float_of(magnitude_bits(x)) * reciprocal)) + carry) >> 23;
    return uint8_t((c < 127 ? c : 127) | uint32_t(bits_of(x) >> (8 * sizeof(C) - 1)) << 7);
  }
  template <class C> static TW_HD C value(uint8_t code, C scale) {
    return C(float_of(uint32_t(code & 0x7f) << 23 | uint32_t(code & 0x80) << 24)) * scale;
  }

  template <class C> static TW_HD void encode(const Params& p, const C* __restrict u, size_t m, const Noise& noise, Header<C>& h, uint8_t* __restrict payload) {
    using R = Real<C>;
    using Bits = typename R::Bits;
    Bits top = 0;
    for (size_t j = 0; j < m; ++j) { const Bits a = magnitude_bits(u[j]); top = a > top ? a : top; }
    if (top >= R::infinity) {
      h.scale = nan<C>();
      memset(payload, 0, m);
      return;
    }
    const Bits above = (top >> R::mantissa) + 1, exponent = above < 2 * R::bias ? above : Bits(2 * R::bias);
    h.scale = top ? float_of(Bits(exponent << R::mantissa)) : C(0);
    const C reciprocal = top ? C(1) / h.scale : C(0);
    if (p.stochastic) {
      uint16_t random[kMaxBlock + 1];
      noise.fill(random, m);
      for (size_t j = 0; j < m; ++j) payload[j] = code(u[j], reciprocal, uint32_t(random[j]) << 7 | 0x40u);
    } else {
      for (size_t j = 0; j < m; ++j) payload[j] = code(u[j], reciprocal, 0x400000u);
    }
  }

  template <class C, class Out> static TW_HD void decode(const Params&, const Header<C>& h, const uint8_t* payload, size_t m, const Out& out) {
    for (size_t j = 0; j < m; ++j) out(j, value(payload[j], h.scale));
  }
};

}  // namespace thinwire
