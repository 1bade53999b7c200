// Lossless in plain C++: eight bytes in a register at a time.
#include "lossless.h"

namespace thinwire {
namespace lossless {
namespace {

constexpr uint64_t kOnes = 0x0101010101010101u, kTops = kOnes << 7;

// For every mask of 8 bytes: its bits as bytes 0 or 1, and which bytes move by 1, 2 and 4 places when those in the mask close up.
struct Masks {
  uint64_t bits[256], moves[256][3];
  constexpr Masks() : bits(), moves() {
    for (unsigned mask = 0; mask < 256; ++mask) {
      unsigned m = mask;
      for (unsigned j = 0; j < 8; ++j) bits[mask] |= uint64_t(mask >> j & 1) << 8 * j;
      unsigned from[8] = {}, place = 0, at[8] = {};
      for (unsigned j = 0; j < 8; ++j) if (m >> j & 1) { from[place] = j; at[place] = j; ++place; }
      for (unsigned stage = 0; stage < 3; ++stage)
        for (unsigned k = 0; k < place; ++k)
          if ((from[k] - k) >> stage & 1) {
            moves[mask][stage] |= uint64_t(255) << 8 * at[k];
            at[k] -= 1u << stage;
          }
    }
  }
};
constexpr Masks kMasks;

TW_HD size_t count(uint64_t bits) { return size_t((bits * kOnes) >> 56); }   // of bytes 0 or 1
// The bytes in the mask, closed up; the others of d must be 0.
TW_HD uint64_t close_up(uint64_t d, unsigned mask) {
  for (unsigned stage = 0; stage < 3; ++stage) {
    const uint64_t t = d & kMasks.moves[mask][stage];
    d ^= t ^ t >> (8u << stage);
  }
  return d;
}
TW_HD uint64_t spread(uint64_t d, unsigned mask) {
  for (unsigned stage = 3; stage-- > 0;) {
    const uint64_t m = kMasks.moves[mask][stage];
    d = (d & ~m) | (d << (8u << stage) & m);
  }
  return d & kMasks.bits[mask] * 255;
}

// Codes eight ranks, all below 128: a byte of each plane, the escapes to `rest`. Gives their count.
template <int W> TW_HD size_t code(uint64_t d, size_t i, uint8_t* planes, size_t stride, uint8_t* rest) {
  constexpr uint64_t e = (1u << W) - 1;
  const uint64_t less = (d | kTops) - e * kOnes, escaped = less >> 7 & kOnes, all = escaped * 255;
  const uint64_t c = (d & ~all) | (e * kOnes & all);
  for (int p = 0; p < W; ++p) planes[size_t(p) * stride + i / 8] = uint8_t(mask_of(c >> p));
  store64(rest, close_up(less & ~kTops & all, mask_of(escaped)));
  return count(escaped);
}
TW_HD uint64_t below(size_t k) { return k >= 8 ? ~uint64_t(0) : (uint64_t(1) << 8 * k) - 1; }

template <int W> size_t first(const Plan& plan, const uint8_t* symbols, size_t n, uint8_t* planes, uint8_t* ranks, uint8_t* unlisted, size_t* unlisted_count) {
  const size_t stride = plane_bytes(n);
  size_t escapes = 0, lost = 0;
  for (size_t i = 0; i < n; i += 8) {
    uint64_t d = 0;
    for (size_t j = 0; j < 8; ++j) d |= uint64_t(plan.rank[symbols[i + j]]) << 8 * j;
    if (n - i < 8) d &= below(n - i);
    if (d & kOnes << 6) for (size_t j = 0; j < 8; ++j) if (uint8_t(d >> 8 * j) == kUnlisted) unlisted[lost++] = symbols[i + j];
    escapes += code<W>(d, i, planes, stride, ranks + escapes);
  }
  *unlisted_count = lost;
  return escapes;
}
template <int W> size_t level(uint8_t* ranks, size_t m, uint8_t* planes) {
  const size_t stride = plane_bytes(m);
  size_t escapes = 0;
  for (size_t i = 0; i < m; i += 8) {
    uint64_t d = load64(ranks + i);
    if (m - i < 8) d &= below(m - i);
    escapes += code<W>(d, i, planes, stride, ranks + escapes);
  }
  return escapes;
}
template <int W> size_t expand(const uint8_t* planes, size_t m, const uint8_t* named, const uint8_t* escaped, uint8_t* symbols) {
  constexpr unsigned codes = 1u << W;
  const size_t stride = plane_bytes(m);
  uint16_t pair[codes * codes];                                      // the symbols of two codes, 0 for an escape
  for (unsigned b = 0; b < codes; ++b)
    for (unsigned a = 0; a < codes; ++a) pair[a + b * codes] = uint16_t((a + 1 < codes ? named[a] : 0) | (b + 1 < codes ? named[b] : 0) << 8);
  size_t escapes = 0;
  for (size_t i = 0; i < m; i += 8) {
    uint64_t c = 0, s = 0;
    unsigned x = m - i < 8 ? (1u << (m - i)) - 1 : 255;
    for (int p = 0; p < W; ++p) {
      const unsigned b = planes[size_t(p) * stride + i / 8];
      c |= kMasks.bits[b] << p;
      x &= b;
    }
    c |= c >> (8 - W);
    for (unsigned j = 0; j < 8; j += 2) s |= uint64_t(pair[c >> 8 * j & (codes * codes - 1)]) << 8 * j;
    if (x) {
      s |= spread(load64(escaped + escapes), x);
      escapes += count(kMasks.bits[x]);
    }
    store64(symbols + i, s);
  }
  return escapes;
}

void prefetch_all(Ahead ahead, size_t n) { for (size_t i = 0; i < n; i += 64) prefetch(ahead); }

size_t split16(const uint16_t* x, size_t n, uint8_t* low, uint8_t* symbols, Ahead ahead) {
  prefetch_all(ahead, n);
  return split(x, n, low, symbols);
}
size_t split32(const uint32_t* x, size_t n, uint8_t* low, uint8_t* middle, uint8_t* symbols, Ahead ahead) {
  prefetch_all(ahead, n);
  return split(x, n, low, middle, symbols);
}
void join16(const uint8_t* low, const uint8_t* symbols, size_t n, uint16_t* x, Ahead ahead, bool) {
  prefetch_all(ahead, n);
  join(low, symbols, n, x);
}
void join32(const uint8_t* low, const uint8_t* middle, const uint8_t* symbols, size_t n, uint32_t* x, Ahead ahead, bool) {
  prefetch_all(ahead, n);
  join(low, middle, symbols, n, x);
}
size_t any_first(const Plan& plan, const uint8_t* symbols, size_t n, uint8_t* planes, uint8_t* ranks, uint8_t* unlisted, size_t* lost, Ahead ahead) {
  prefetch_all(ahead, n);
  return TW_WITH_WIDTH(plan.width[0], first, plan, symbols, n, planes, ranks, unlisted, lost);
}
size_t any_level(int width, uint8_t* ranks, size_t m, uint8_t* planes) { return TW_WITH_WIDTH(width, level, ranks, m, planes); }
size_t any_expand(int width, const uint8_t* planes, size_t m, const uint8_t* named, const uint8_t* escaped, uint8_t* symbols, Ahead) {
  return TW_WITH_WIDTH(width, expand, planes, m, named, escaped, symbols);
}

}  // namespace

const Loops& portable_loops() {
  static const Loops loops = {split16, split32, join16, join32, any_first, any_level, any_expand};
  return loops;
}

}  // namespace lossless
}  // namespace thinwire
