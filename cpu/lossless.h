// The inner loops of lossless, which three bodies supply: plain C++, AVX2 and AVX-512. All give the same bytes.
//
// "Slack": bytes behind an array's end that a loop may read (and makes nothing of) or write (with anything).
#pragma once
#include "thinwire/lossless.h"

namespace thinwire {
namespace lossless {

constexpr size_t kSlack = 64;

// Memory to be asked for while a loop runs: `step` bytes for each 64 values.
struct Ahead { const uint8_t* at; size_t step; };

struct Loops {
  // A block's words into their parts, exactly n of each; gives how many words are not 0.
  size_t (*split16)(const uint16_t* x, size_t n, uint8_t* low, uint8_t* symbols, Ahead ahead);
  size_t (*split32)(const uint32_t* x, size_t n, uint8_t* low, uint8_t* middle, uint8_t* symbols, Ahead ahead);
  // And back. `around`: x is not read soon, so it may be written around the caches.
  void (*join16)(const uint8_t* low, const uint8_t* symbols, size_t n, uint16_t* x, Ahead ahead, bool around);
  void (*join32)(const uint8_t* low, const uint8_t* middle, const uint8_t* symbols, size_t n, uint32_t* x, Ahead ahead, bool around);
  // The first level: ranks n symbols (with slack), writes the planes, the ranks of the escapes less what the level named, and the symbols of no rank (the last two
  // with slack). Gives the count of escapes.
  size_t (*first)(const Plan& plan, const uint8_t* symbols, size_t n, uint8_t* planes, uint8_t* ranks, uint8_t* unlisted, size_t* unlisted_count, Ahead ahead);
  // A further level of m ranks (with slack), in place.
  size_t (*level)(int width, uint8_t* ranks, size_t m, uint8_t* planes);
  // The m symbols (with slack) of a level, from its planes, the symbols it names and those of its escapes (m, with slack). Gives the count of escapes.
  size_t (*expand)(int width, const uint8_t* planes, size_t m, const uint8_t* named, const uint8_t* escaped, uint8_t* symbols, Ahead ahead);
  // Where a body has better than plain loops, else null: of 64 words those that are not 0, closed up (64 bytes of slack), and their bitmap; and back.
  uint64_t (*close_up16)(const uint16_t* x, uint16_t* to) = nullptr;
  uint64_t (*close_up32)(const uint32_t* x, uint32_t* to) = nullptr;
  void (*spread16)(const uint16_t* words, uint64_t bits, uint16_t* x) = nullptr;
  void (*spread32)(const uint32_t* words, uint64_t bits, uint32_t* x) = nullptr;
};

const Loops& portable_loops();
// Null where this machine, or this build, has no such instructions.
const Loops* avx2_loops();
const Loops* avx512_loops();

TW_HD uint64_t load64(const uint8_t* p) { uint64_t v; memcpy(&v, p, 8); return v; }
TW_HD void store64(uint8_t* p, uint64_t v) { memcpy(p, &v, 8); }
// The lowest bits of eight bytes as one byte, and back.
TW_HD unsigned mask_of(uint64_t bits) { return unsigned(((bits & 0x0101010101010101u) * 0x0102040810204080u) >> 56); }
TW_HD uint64_t bits_of_mask(uint64_t mask) {
  return ((mask * 0x0101010101010101u & 0x8040201008040201u) + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
}
TW_HD void prefetch(Ahead& ahead) {
  for (size_t i = 0; i < ahead.step; i += 64) __builtin_prefetch(ahead.at + i, 0, 2);
  ahead.at += ahead.step;
}

// f<width>(...)
#define TW_WITH_WIDTH(width, f, ...) \
  ((width) == 1 ? f<1>(__VA_ARGS__) : (width) == 2 ? f<2>(__VA_ARGS__) : (width) == 3 ? f<3>(__VA_ARGS__) : f<4>(__VA_ARGS__))

// The parts of words, in plain loops, which vectorize as they stand.
TW_HD size_t split(const uint16_t* __restrict x, size_t n, uint8_t* __restrict low, uint8_t* __restrict symbols) {
  uint16_t nonzero = 0;                                              // n <= kBlock
  for (size_t i = 0; i < n; ++i) {
    const uint16_t t = turn(x[i]);
    low[i] = uint8_t(t);
    symbols[i] = uint8_t(t >> 8);
    nonzero = uint16_t(nonzero + (t != 0));
  }
  return nonzero;
}
TW_HD size_t split(const uint32_t* __restrict x, size_t n, uint8_t* __restrict low, uint8_t* __restrict middle, uint8_t* __restrict symbols) {
  uint32_t nonzero = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t t = turn(x[i]);
    const uint16_t l = uint16_t(t);
    memcpy(low + 2 * i, &l, 2);
    nonzero += t != 0;
  }
  for (size_t i = 0; i < n; ++i) {
    const uint32_t t = turn(x[i]);
    middle[i] = uint8_t(t >> 16);
    symbols[i] = uint8_t(t >> 24);
  }
  return nonzero;
}
TW_HD void join(const uint8_t* __restrict low, const uint8_t* __restrict symbols, size_t n, uint16_t* __restrict x) {
  for (size_t i = 0; i < n; ++i) x[i] = turn_back(uint16_t(low[i] | symbols[i] << 8));
}
TW_HD void join(const uint8_t* __restrict low, const uint8_t* __restrict middle, const uint8_t* __restrict symbols, size_t n, uint32_t* __restrict x) {
  for (size_t i = 0; i < n; ++i) {
    uint16_t l;
    memcpy(&l, low + 2 * i, 2);
    x[i] = turn_back(l | uint32_t(middle[i]) << 16 | uint32_t(symbols[i]) << 24);
  }
}

}  // namespace lossless
}  // namespace thinwire
