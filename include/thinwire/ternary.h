// ternary: -1, 0 or 1 times the block's largest magnitude, 1.6 bits a value (TernGrad, Wen et al. 2017).
//
// scale = max|x|, the header. A value keeps its sign with probability |x| / scale, from 16 random bits, and is 0 otherwise; to
// nearest: it keeps its sign if |x| >= scale / 2.
// Payload: digits code + 1, five to a byte. P = ceil(m / 5) bytes; byte j is the sum over k < 5 of digit(j + k * P) * 3^k, so that
// packing is the same operation on neighbouring bytes of P-long rows, as in pack.h. Digits past the last value are 0. Digit k of a
// byte is floor(byte / 3^k) mod 3: bytes above 242, which no encoder writes, read as byte - 243.
// A block that holds a non-finite value gets a NaN scale and a payload of zeros, and decodes to NaN throughout.
#pragma once
#include "thinwire/block.h"

namespace thinwire {

struct Ternary {
  struct Params { int32_t block, stochastic; };
  static_assert(sizeof(Params) == 8);
  template <class C> struct Header { C scale; };
  template <class C> static TW_HD size_t header_bytes(const Params&) { return sizeof(C); }
  static TW_HD size_t block(const Params& p) { return size_t(p.block); }
  static TW_HD size_t payload(const Params&, size_t m) { return (m + 4) / 5; }

  // Rows are handled kChunk bytes at a time whatever their length: a multiple of the widest vector, and no loop has a remainder. What
  // that reads past a row is not used, what it writes there the next row overwrites.
  static constexpr size_t kChunk = 64, kSlack = kChunk + 4;
  // digits has m + kSlack bytes; those from m on are set to 0 here.
  static TW_HD void pack_digits(uint8_t* __restrict digits, size_t m, uint8_t* __restrict out) {
    memset(digits + m, 0, kSlack);
    const size_t P = (m + 4) / 5;
    uint8_t bytes[kMaxBlock / 5 + 1 + kChunk];
    for (size_t at = 0; at < P; at += kChunk)
      for (size_t j = at; j < at + kChunk; ++j) {
        uint8_t byte = digits[j + 4 * P];
        for (size_t k = 4; k-- > 0;) byte = uint8_t(byte * 3 + digits[j + k * P]);
        bytes[j] = byte;
      }
    memcpy(out, bytes, P);
  }
  static TW_HD void unpack_digits(const uint8_t* __restrict in, size_t m, uint8_t* __restrict digits) {
    const size_t P = (m + 4) / 5;
    uint16_t rest[kMaxBlock / 5 + 1 + kChunk];
    for (size_t j = 0; j < P; ++j) rest[j] = in[j];
    memset(rest + P, 0, kChunk * sizeof *rest);
    for (size_t k = 0; k < 5; ++k)
      for (size_t at = 0; at < P; at += kChunk)
        for (size_t j = at; j < at + kChunk; ++j) {
          const uint16_t third = uint16_t(rest[j] * 171) >> 9;   // floor(rest / 3)
          digits[j + k * P] = uint8_t(rest[j] - 3 * third);
          rest[j] = third;
        }
  }

  // digit = 1, or 1 +- 1 if |u| * lift >= at(j).
  template <class C, class At> static TW_HD void to_digits(const C* __restrict u, size_t m, C lift, At at, uint8_t* __restrict digits) {
    using Bits = typename Real<C>::Bits;
    for (size_t j = 0; j < m; ++j) {
      const Bits kept = float_of(magnitude_bits(u[j])) * lift >= at(j), sign = bits_of(u[j]) >> (8 * sizeof(C) - 1);
      digits[j] = uint8_t(1 + kept - 2 * (kept & sign));
    }
  }
  template <class C> struct Half { C half; TW_HD C operator()(size_t) const { return half; } };
  template <class C> struct Random { const uint16_t* __restrict bits; C step; TW_HD C operator()(size_t j) const { return (C(int32_t(bits[j])) + C(0.5)) * step; } };

  template <class C> static TW_HD void encode(const Params& p, const C* __restrict u, size_t m, const Noise& noise, Header<C>& h, uint8_t* payload) {
    using R = Real<C>;
    using Bits = typename R::Bits;
    uint8_t digits[kMaxBlock + kSlack];
    Bits top = 0;
    for (size_t j = 0; j < m; ++j) { const Bits a = magnitude_bits(u[j]); top = a > top ? a : top; }
    if (top >= R::infinity) {
      h.scale = nan<C>();
      memset(payload, 0, Ternary::payload(p, m));
      return;
    }
    h.scale = float_of(top);
    // Thresholds are multiples of scale / 2^16, which would be denormal, and rounded, below 2^-64: such a block is compared lifted.
    // In a block of zeros no value reaches a threshold of 1.
    const C lift = top < bits_of(C(0x1p-64)) ? C(0x1p64) : C(1);
    const C step = top ? h.scale * lift * C(0x1p-16) : C(1);
    if (p.stochastic) {
      uint16_t random[kMaxBlock + 1];
      noise.fill(random, m);
      to_digits(u, m, lift, Random<C>{random, step}, digits);
    } else {
      to_digits(u, m, lift, Half<C>{step * C(0x1p15)}, digits);
    }
    pack_digits(digits, m, payload);
  }

  template <class C, class Out> static TW_HD void decode(const Params&, const Header<C>& h, const uint8_t* payload, size_t m, const Out& out) {
    uint8_t digits[kMaxBlock + kSlack];
    unpack_digits(payload, m, digits);
    for (size_t j = 0; j < m; ++j) out(j, C(int32_t(digits[j]) - 1) * h.scale);
  }
};

}  // namespace thinwire
