// mx: OCP Microscaling Formats (MX) v1.0: blocks of 32 small floats or integers, each on a power-of-two scale.
//
// Wire: chunks of 512 values (the last one shorter), each its blocks' scales, then the codes of its elements packed as one row:
// rows of 512 pack and scale at full speed, rows of 32 would not.
// A scale 2^(s - 127) is stored as s: one byte (E8M0), 255 where the block held a non-finite value; the codes are then 0.
// float64 has exponents beyond that, so there s is two bytes, the scale 2^(s - 1023), and 2047 is the NaN: an extension of ours.
// s = biased exponent of the largest magnitude - exponent of the largest element, at least 0. An element is x / scale, a larger
// magnitude than the largest element's lowered to that, rounded to nearest even or stochastically.
#pragma once
#include "thinwire/block.h"

namespace thinwire {

// An element is a sign and a magnitude, which is a float with few bits and a bias of its own; its codes up to Top are finite.
// MXINT8 is one of them (k / 64 for k < 128 are the floats of one exponent and six mantissa bits), but in two's complement.
template <unsigned Bits, int Mantissa, int Bias, uint32_t Top, bool TwosComplement = false> struct Element {
  static constexpr unsigned bits = Bits;
  static constexpr int exponent = int(Top >> Mantissa) - Bias;                       // of the largest element
  static constexpr int shift = 23 - Mantissa;
  static constexpr uint32_t rebias = uint32_t(127 - Bias) << 23;
  static constexpr uint32_t normal = rebias + (1u << 23);                            // the smallest normal element, as bits of a float
  static constexpr uint32_t largest = rebias + (Top << shift);
  static constexpr float quantum = 1.f / float(1u << (Mantissa + Bias - 1));         // the smallest element

  static TW_HD uint32_t limited(uint32_t u) { const uint32_t a = u & 0x7fffffffu; return a < largest ? a : largest; }
  // Codes of magnitudes a, as bits of a float.
  static TW_HD uint32_t nearest(uint32_t a) {
    // Of one normal binade: all codes are multiples of the quantum, the last place of this number.
    constexpr float lift = quantum * float(1 << 23);
    if constexpr (Top >> Mantissa == 1) return bits_of(float_of(a) + lift) - bits_of(lift);
    else return narrow_magnitude<Mantissa, Bias>(a);
  }
  // Codes are linear in the bits of a float from `normal` on, in its value below: add a fraction of a code at random and cut.
  static TW_HD uint32_t stochastic(uint32_t a, uint16_t random) {
    const float small = float_of(a < normal ? a : normal) * (float(1u << shift) / quantum);
    const uint32_t w = select(a < normal, uint32_t(int32_t(small)), a - rebias);
    return (w + (uint32_t(random) << (shift - 16)) + (1u << (shift - 17))) >> shift;
  }
  // `sign` is 0 or 1 << 31.
  static TW_HD uint32_t with_sign(uint32_t magnitude, uint32_t sign) {
    if constexpr (TwosComplement) { const uint32_t ones = uint32_t(int32_t(sign) >> 31); return (magnitude ^ ones) - ones; }
    else return magnitude | sign >> (32 - Bits);
  }
  static TW_HD float value(uint8_t code) {
    if constexpr (Bits == 8 && Mantissa == 3) return to_float(e4m3{code});
    else if constexpr (Bits == 8 && Mantissa == 2) return to_float(e5m2{code});
    else if constexpr (TwosComplement) return float(int8_t(code)) * quantum;
    else {
      const uint32_t sign = uint32_t(code >> (Bits - 1)) << 31, a = code & ((1u << (Bits - 1)) - 1);
      const uint32_t small = bits_of(float(int32_t(a)) * quantum);
      return float_of(select(a < 1u << Mantissa, small, (a << shift) + rebias) | sign);
    }
  }
};

struct MxParams { int32_t format, stochastic; };
static_assert(sizeof(MxParams) == 8);

// `format` counts from 0 in the order of these cases.
template <class F> TW_HD void with_element(const MxParams& p, const F& f) {
  switch (p.format) {
    case 0: f(Element<8, 3, 7, 0x7e>()); break;          // fp8_e4m3
    case 1: f(Element<8, 2, 15, 0x7b>()); break;         // fp8_e5m2
    case 2: f(Element<6, 2, 3, 0x1f>()); break;          // fp6_e3m2
    case 3: f(Element<6, 3, 1, 0x1f>()); break;          // fp6_e2m3
    case 4: f(Element<4, 1, 1, 0x07>()); break;          // fp4_e2m1
    default: f(Element<8, 6, 1, 0x7f, true>());          // int8
  }
}

// A block codec whose block is a chunk, and which has no header, since a chunk's scales are as many as its blocks.
template <class C> struct Mx {
  using Params = MxParams;
  using R = Real<C>;
  using Bits = typename R::Bits;
  using Scale = std::conditional_t<std::is_same_v<C, double>, uint16_t, uint8_t>;
  static constexpr int kNaN = int(R::infinity >> R::mantissa);                       // 255, 2047
  static constexpr size_t kBlock = 32, kBlocks = 16, kChunk = kBlock * kBlocks;

  template <class> struct Header {};
  template <class> static TW_HD size_t header_bytes(const Params&) { return 0; }
  static TW_HD size_t block(const Params&) { return kChunk; }
  static TW_HD unsigned bits(const Params& p) { return p.format == 4 ? 4 : p.format == 2 || p.format == 3 ? 6 : 8; }
  static TW_HD size_t blocks(size_t m) { return (m + kBlock - 1) / kBlock; }
  static TW_HD size_t payload(const Params& p, size_t m) { return blocks(m) * sizeof(Scale) + packed_bytes(bits(p), m); }

  // 2^(s - bias); 0 is a denormal.
  static TW_HD C power(int s) { return float_of(select(s > 0, Bits(s) << R::mantissa, Bits(1) << (R::mantissa - 1))); }

  template <class> static TW_HD void encode(const Params& p, const C* __restrict u, size_t m, const Noise& noise, Header<C>&, uint8_t* payload) {
    const size_t count = blocks(m), rounded = count * kBlock;
    C padded[kChunk];
    uint16_t random[kChunk + 1];
    if (m < rounded) {
      memcpy(padded, u, m * sizeof(C));
      for (size_t j = m; j < rounded; ++j) { padded[j] = 0; random[j] = 0; }
      u = padded;
    }
    if (p.stochastic) noise.fill(random, m);
    Bits top[kBlocks] = {};
    for (size_t b = 0; b < count; ++b)
      for (size_t j = 0; j < kBlock; ++j) { const Bits a = magnitude_bits(u[b * kBlock + j]); top[b] = a > top[b] ? a : top[b]; }
    Scale scale[kBlocks];
    // Codes as wide as the arithmetic, then narrowed all at once: left to itself, gcc narrows every term of them.
    uint32_t wide[kChunk];
    with_element(p, [&](auto e) __attribute__((always_inline)) {
      using E = decltype(e);
      C reciprocal[kBlocks];
      Bits keep[kBlocks];
      for (size_t b = 0; b < kBlocks; ++b) {
        const int exponent = int(top[b] >> R::mantissa), s = exponent > E::exponent ? exponent - E::exponent : 0;
        scale[b] = Scale(exponent == kNaN ? kNaN : s);
        reciprocal[b] = power(2 * R::bias - s);
        keep[b] = exponent == kNaN ? 0 : ~Bits(0);
      }
      if (p.stochastic) {
        for (size_t b = 0; b < count; ++b)
          for (size_t j = b * kBlock; j < (b + 1) * kBlock; ++j) {
            const uint32_t v = bits_of(to_single(float_of(bits_of(u[j]) & keep[b]) * reciprocal[b]));
            wide[j] = E::with_sign(E::stochastic(E::limited(v), random[j]), v & 0x80000000u);
          }
      } else {
        for (size_t b = 0; b < count; ++b)
          for (size_t j = b * kBlock; j < (b + 1) * kBlock; ++j) {
            const uint32_t v = bits_of(to_single(float_of(bits_of(u[j]) & keep[b]) * reciprocal[b]));
            wide[j] = E::with_sign(E::nearest(E::limited(v)), v & 0x80000000u);
          }
      }
    });
    memcpy(payload, scale, count * sizeof(Scale));
    payload += count * sizeof(Scale);
    uint8_t staged[kChunk + kPackSlack];
    uint8_t* const codes = bits(p) == 8 ? payload : staged;
    for (size_t j = 0; j < m; ++j) codes[j] = uint8_t(wide[j]);
    if (bits(p) != 8) pack(bits(p), codes, m, payload);
  }

  template <class, class Out> static TW_HD void decode(const Params& p, const Header<C>&, const uint8_t* payload, size_t m, const Out& out) {
    const size_t count = blocks(m);
    Scale scale[kBlocks];
    memcpy(scale, payload, count * sizeof(Scale));
    payload += count * sizeof(Scale);
    uint8_t unpacked[kChunk + kPackSlack];
    const uint8_t* codes = payload;
    if (bits(p) != 8) { unpack(bits(p), payload, m, unpacked); codes = unpacked; }
    float value[kChunk];
    with_element(p, [&](auto e) __attribute__((always_inline)) {
      for (size_t j = 0; j < m; ++j) value[j] = decltype(e)::value(codes[j]);
    });
    for (size_t b = 0; b < count; ++b) {
      const C s = scale[b] < kNaN ? power(scale[b]) : nan<C>();
      const size_t at = b * kBlock;
      // The same loop twice: of a known length it is a few instructions.
      if (m - at >= kBlock) for (size_t j = at; j < at + kBlock; ++j) out(j, C(value[j]) * s);
      else for (size_t j = at; j < m; ++j) out(j, C(value[j]) * s);
    }
  }

  // float64: so rounded that rounding once more gives what one rounding would.
  static TW_HD float to_single(C v) {
    if constexpr (std::is_same_v<C, double>) return to_odd(v); else return v;
  }
};

}  // namespace thinwire
