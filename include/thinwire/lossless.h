// Lossless: the bytes of docs/wire.md, section lossless, and what is decided for each value and block, alike on every device.
//
// A value is split into a symbol, its exponent, and the rest, which is stored as it is. Symbols are coded by a cascade of levels: a level of width w gives each of
// its values w bits, in bit planes; the codes 0 .. 2^w - 2 name the commonest symbols that no level before it has named, the code of all ones sends the value on to
// the next level. That is within 3 % of a Huffman code's length, and nothing in it is a serial stream: a level is bit planes and a compaction.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "thinwire/target.h"

namespace thinwire {
namespace lossless {

constexpr size_t kBlock = 8192;                                      // words of a block
constexpr unsigned kZeroBlock = 0, kRawBlock = 0xffff;               // entries of the directory that are no size
constexpr uint8_t kSparse = 0x80, kFar = 0x01;                       // the head of a block: zeros are elided; exponents of float64 beyond those of float32
constexpr uint8_t kRawStream = 0, kConstantStream = 0xff;            // the head of a stream, where it is no count of levels
constexpr int kMaxLevels = 10, kMaxWidth = 4;
constexpr int kListed = 25, kSlots = kListed + (1 << kMaxWidth) - 2;  // symbols that levels name; places that they have for them
constexpr uint8_t kUnlisted = 127;                                   // the rank of other symbols: escapes from every level

TW_HD size_t plane_bytes(size_t m) { return (m + 7) / 8; }
TW_HD unsigned escape(int width) { return (1u << width) - 1; }

// --- words and their parts ---

// A float turned left by one bit starts with its exponent; the sign comes last.
TW_HD uint16_t turn(uint16_t x) { return uint16_t(x << 1 | x >> 15); }
TW_HD uint32_t turn(uint32_t x) { return x << 1 | x >> 31; }
TW_HD uint16_t turn_back(uint16_t x) { return uint16_t(x >> 1 | x << 15); }
TW_HD uint32_t turn_back(uint32_t x) { return x >> 1 | x << 31; }

// float16: an exponent of 5 bits, the low byte of the mantissa, and aside its upper 2 bits and the sign.
struct HalfParts {
  uint8_t symbol, low, aside;
  static constexpr int kAside = 3;
};
TW_HD HalfParts half_parts(uint16_t x) { return {uint8_t(x >> 10 & 31), uint8_t(x), uint8_t((x >> 8 & 3) | x >> 15 << 2)}; }
TW_HD uint16_t half_of(HalfParts p) { return uint16_t(p.low | (p.aside & 3) << 8 | (p.symbol & 31) << 10 | p.aside >> 2 << 15); }

// float64: of the exponent, counted from that of 2^-127, the low byte; 48 bits of the mantissa; aside its upper 4 bits, the sign, and the exponent's upper 3 bits,
// which are 0 for all that float32 has room for.
struct DoubleParts {
  uint64_t low;
  uint8_t symbol, aside;
  static constexpr int kAside = 5, kFarAside = 8;
};
constexpr unsigned kDoubleBase = 896;
TW_HD DoubleParts double_parts(uint64_t x) {
  const unsigned e = (unsigned(x >> 52) - kDoubleBase) & 0x7ff;
  return {x & 0xffffffffffffu, uint8_t(e), uint8_t((x >> 48 & 15) | x >> 63 << 4 | e >> 8 << 5)};
}
TW_HD uint64_t double_of(DoubleParts p) {
  const uint64_t e = ((p.aside >> 5 << 8 | p.symbol) + kDoubleBase) & 0x7ff;
  return p.low | uint64_t(p.aside & 15) << 48 | e << 52 | uint64_t(p.aside >> 4 & 1) << 63;
}

// --- the plan of a stream: which symbols its levels name, and how wide they are ---

struct Plan {
  int levels, slots;
  uint8_t width[kMaxLevels], symbol[kSlots], rank[256];
};

constexpr size_t kSample = 512;
// Which symbols are counted: all of up to 1024; of more, 32 of every 32 * (n / 512), at a place that moves on by three runs of 32 each time.
// Calls count(symbols, how many) for each run; gives how many there were in all.
template <class Count> TW_HD size_t sample(const uint8_t* symbols, size_t n, Count count) {
  if (n <= 2 * kSample) {
    count(symbols, n);
    return n;
  }
  const size_t runs = n / kSample, stretch = 32 * runs;
  size_t counted = 0;
  for (size_t at = 0, run = 0; at + stretch <= n; at += stretch, counted += 32) {
    count(symbols + at + 32 * run, size_t(32));
    run = (run + 3) % runs;
  }
  return counted;
}

// The cheapest levels for n values of which `counted` gave the ranked counts: count << 8 | 255 - symbol, descending, so that ties go to the smaller symbol.
// False if they would save less than a quarter bit a value. Costs are in 1/16 bit of the sample.
TW_HD bool make_plan(const uint32_t* ranked, int symbols, int counted, int n, Plan& plan) {
  const int listed = symbols < kListed ? symbols : kListed;
  int left[kListed + 1], cost[kListed + (1 << kMaxWidth)], at_width[kMaxWidth + 1];
  uint8_t choice[kListed];
  left[listed] = counted;
  for (int i = 0; i < listed; ++i) left[listed] -= int(ranked[i] >> 8);
  for (int i = listed - 1; i >= 0; --i) left[i] = left[i + 1] + int(ranked[i] >> 8);
  for (int w = 1; w <= kMaxWidth; ++w) at_width[w] = (18 + 4 * w + 8 * int(escape(w))) * 16 * counted / n;   // its header, and what its planes' last bytes waste
  for (int i = listed; i < kListed + (1 << kMaxWidth); ++i) cost[i] = left[listed] * 128;                      // no level: bytes
  for (int i = listed - 1; i >= 0; --i) {
    int least = left[i] * 128;
    uint8_t best = 0;
    for (int w = 1; w <= kMaxWidth; ++w) {
      const int c = left[i] * (16 * w + 1) + at_width[w] + cost[i + int(escape(w))];   // the 1: a level takes time
      if (c < least) { least = c; best = uint8_t(w); }
    }
    cost[i] = least;
    choice[i] = best;
  }
  plan.levels = plan.slots = 0;
  while (plan.slots < listed && choice[plan.slots] && plan.levels < kMaxLevels) {
    const uint8_t w = choice[plan.slots];
    plan.width[plan.levels++] = w;
    plan.slots += int(escape(w));
  }
  if (plan.levels == 0 || cost[0] > counted * (16 * 8 - 4)) return false;
  memset(plan.rank, kUnlisted, sizeof plan.rank);
  for (int i = 0; i < plan.slots; ++i) {
    plan.symbol[i] = uint8_t(255 - (ranked[i < symbols ? i : symbols - 1] & 255));        // slots to spare repeat the last symbol
    if (i < symbols) plan.rank[plan.symbol[i]] = uint8_t(i);
  }
  return true;
}

}  // namespace lossless
}  // namespace thinwire
