// Lossless: blocks of words, each split into parts of which some are coded. include/thinwire/lossless.h has the format's arithmetic, cpu/lossless.h the inner loops.
#include "lossless.h"

#include <algorithm>
#include <functional>

#include "scratch.h"
#include "thinwire/codec.h"

namespace thinwire {
extern const Codec raw_row;

namespace {

using namespace lossless;

constexpr size_t kStride = kBlock + kSlack;                          // a stream's symbols
constexpr size_t kLarge = size_t(8) << 20;                           // bytes of an array that is written around the caches
constexpr size_t kGroup = 64;                                        // words to a bitmap

void put16(uint8_t* p, size_t v) { p[0] = uint8_t(v); p[1] = uint8_t(v >> 8); }
size_t get16(const uint8_t* p) { return size_t(p[0] | p[1] << 8); }

// Memory of one call.
struct Work {
  const Loops& loops;
  uint8_t *symbols, *ranks[2], *unlisted, *words, *stage;
  bool large = false;                                                // the array that is decoded will not stay in cache
  explicit Work(const Loops& loops) : loops(loops) {}
  // For `streams` streams a word of `size` bytes; false if there is no memory.
  bool take(Scratch& scratch, size_t streams, size_t size, size_t room) {
    const size_t sizes[] = {streams * kStride, kStride, kStride, kStride, kStride * size, room};
    uint8_t** const to[] = {&symbols, &ranks[0], &ranks[1], &unlisted, &words, &stage};
    for (size_t i = 0; i < 6; ++i) if (!(*to[i] = scratch.take<uint8_t>(sizes[i]))) return false;
    return true;
  }
};

// --- a stream of symbols ---

// The commonest of a sample, as make_plan wants them; gives how many.
TW_CLONES void add_up(const uint16_t (*part)[256], uint16_t* sum) {
  for (int s = 0; s < 256; ++s) sum[s] = uint16_t(part[0][s] + part[1][s] + part[2][s] + part[3][s]);
}
TW_CLONES void order(const uint32_t* __restrict key, int n, uint32_t* __restrict ranked) {   // n <= 64; by counting, without a branch
  uint32_t place[64] = {};
  for (int i = 0; i < n; ++i) for (int j = 0; j < 64; ++j) place[j] += key[i] > key[j];
  for (int i = 0; i < n; ++i) ranked[place[i]] = key[i];
}
int rank_symbols(const uint8_t* symbols, size_t n, uint32_t* ranked, size_t* counted) {
  uint16_t part[4][256] = {}, sum[256];                              // four tables: adding to one twice in a row waits
  *counted = sample(symbols, n, [&](const uint8_t* s, size_t k) {
    size_t i = 0;
    for (; i + 8 <= k; i += 8) {
      const uint64_t eight = load64(s + i);
      for (int j = 0; j < 8; ++j) ++part[j & 3][uint8_t(eight >> 8 * j)];
    }
    for (; i < k; ++i) ++part[i & 3][s[i]];
  });
  add_up(part, sum);
  uint32_t key[256 + 64];
  int found = 0;
  for (int s = 0; s < 256; s += 4) {
    uint64_t four;
    memcpy(&four, sum + s, 8);
    if (!four) continue;
    for (int j = s; j < s + 4; ++j) {
      key[found] = uint32_t(sum[j]) << 8 | uint32_t(255 - j);
      found += sum[j] != 0;
    }
  }
  if (found > 64) std::nth_element(key, key + 64, key + found, std::greater<uint32_t>());
  else std::fill(key + found, key + 64, 0u);
  order(key, std::min(found, 64), ranked);
  return std::min(found, 64);
}

// Writes the stream of n symbols (with slack), at most 1 + n bytes and some slack; gives its size.
size_t encode_stream(Work& work, const uint8_t* symbols, size_t n, uint8_t* out, Ahead ahead) {
  uint32_t ranked[64];
  size_t counted;
  Plan plan;
  const int found = rank_symbols(symbols, n, ranked, &counted);
  if (found == 1 && memcmp(symbols, symbols + 1, n - 1) == 0) {
    out[0] = kConstantStream;
    out[1] = symbols[0];
    return 2;
  }
  if (n > 64 && make_plan(ranked, found, int(counted), int(n), plan)) {
    const size_t levels = size_t(plan.levels);
    uint8_t *const widths = out + 1, *const counts = widths + (levels + 3) / 4;
    memset(widths, 0, (levels + 3) / 4);
    memcpy(counts + 2 * levels, plan.symbol, size_t(plan.slots));
    size_t size = size_t(counts - out) + 2 * levels + size_t(plan.slots), m = n, unlisted = 0;
    for (size_t l = 0; l < levels && size <= n; ++l) {
      const int w = plan.width[l];
      const size_t planes = size_t(w) * plane_bytes(m);
      if (size + planes > n) { size = n + 1; break; }
      m = l ? work.loops.level(w, work.ranks[0], m, out + size) : work.loops.first(plan, symbols, n, out + size, work.ranks[0], work.unlisted, &unlisted, ahead);
      widths[l / 4] = uint8_t(widths[l / 4] | (w - 1) << 2 * (l % 4));
      put16(counts + 2 * l, m);
      size += planes;
    }
    if (size + unlisted <= n) {
      out[0] = uint8_t(levels);
      memcpy(out + size, work.unlisted, unlisted);
      return size + unlisted;
    }
  }
  out[0] = kRawStream;
  memcpy(out + 1, symbols, n);
  return 1 + n;
}

// The n symbols (with slack) of the stream at `at`, which moves behind it; false if there is none.
bool decode_stream(Work& work, const uint8_t*& at, const uint8_t* end, size_t n, uint8_t* symbols, Ahead ahead) {
  if (at == end) return false;
  const uint8_t head = *at++;
  if (head == kRawStream || head == kConstantStream) {
    const size_t size = head == kRawStream ? n : 1;
    if (size_t(end - at) < size) return false;
    if (head == kRawStream) memcpy(symbols, at, n); else memset(symbols, *at, n);
    at += size;
    return true;
  }
  const size_t levels = head;
  if (levels > size_t(kMaxLevels) || size_t(end - at) < (levels + 3) / 4 + 2 * levels) return false;
  const uint8_t *const counts = at + (levels + 3) / 4, *planes[kMaxLevels];
  int width[kMaxLevels];
  size_t m[kMaxLevels + 1] = {n}, slots = 0;
  for (size_t l = 0; l < levels; ++l) {
    width[l] = (at[l / 4] >> 2 * (l % 4) & 3) + 1;
    slots += escape(width[l]);
    m[l + 1] = get16(counts + 2 * l);
    if (m[l + 1] > m[l]) return false;
  }
  const uint8_t* named = counts + 2 * levels;
  if (size_t(end - named) < slots) return false;
  named += slots;
  at = named;
  for (size_t l = 0; l < levels; ++l) {
    planes[l] = at;
    const size_t size = size_t(width[l]) * plane_bytes(m[l]);
    if (size_t(end - at) < size) return false;
    at += size;
  }
  if (size_t(end - at) < m[levels]) return false;
  // The deepest level first: each gives the escapes of the one above it.
  const uint8_t* escaped = static_cast<const uint8_t*>(memcpy(work.ranks[levels % 2], at, m[levels]));
  at += m[levels];
  for (size_t l = levels; l-- > 0;) {
    named -= escape(width[l]);
    uint8_t* const to = l ? work.ranks[l % 2] : symbols;
    if (work.loops.expand(width[l], planes[l], m[l], named, escaped, to, l ? Ahead{nullptr, 0} : ahead) != m[l + 1]) return false;
    escaped = to;
  }
  return true;
}

// --- bits aside: of each byte the lowest `bits`, in planes ---

TW_CLONES void pack_aside(const uint8_t* aside, size_t n, int bits, uint8_t* planes) {
  const size_t stride = plane_bytes(n);
  for (size_t i = 0; i < n; i += 8) {
    uint64_t v = 0;
    memcpy(&v, aside + i, n - i < 8 ? n - i : 8);
    for (int p = 0; p < bits; ++p) planes[size_t(p) * stride + i / 8] = uint8_t(mask_of(v >> p));
  }
}
TW_CLONES void unpack_aside(const uint8_t* planes, size_t n, int bits, uint8_t* aside) {   // with slack
  const size_t stride = plane_bytes(n);
  for (size_t i = 0; i < n; i += 8) {
    uint64_t v = 0;
    for (int p = 0; p < bits; ++p) v |= bits_of_mask(planes[size_t(p) * stride + i / 8]) << p;
    store64(aside + i, v);
  }
}

// --- kinds of words: how each is split. `head`: the flags of a block's head that the split decides; `rest`: the parts that are not coded ---

bool around(const Work& w, const void* x) { return w.large && x != w.words; }

struct OfBfloat {
  using Word = uint16_t;
  static constexpr size_t streams = 1, zero_bits = 10;               // zero_bits: what eliding a zero saves
  static constexpr uint8_t flags = 0;
  static size_t rest_bytes(size_t n, uint8_t) { return n; }
  static size_t split(Work& w, const Word* x, size_t n, uint8_t* rest, uint8_t*, Ahead ahead) { return w.loops.split16(x, n, rest, w.symbols, ahead); }
  static void join(Work& w, const uint8_t* rest, size_t n, uint8_t, Word* x, Ahead ahead) { w.loops.join16(rest, w.symbols, n, x, ahead, around(w, x)); }
};

struct OfFloat {
  using Word = uint32_t;
  static constexpr size_t streams = 1, zero_bits = 26;
  static constexpr uint8_t flags = 0;
  static size_t rest_bytes(size_t n, uint8_t) { return 3 * n; }
  static size_t split(Work& w, const Word* x, size_t n, uint8_t* rest, uint8_t*, Ahead ahead) { return w.loops.split32(x, n, rest, rest + 2 * n, w.symbols, ahead); }
  static void join(Work& w, const uint8_t* rest, size_t n, uint8_t, Word* x, Ahead ahead) { w.loops.join32(rest, rest + 2 * n, w.symbols, n, x, ahead, around(w, x)); }
};

TW_CLONES size_t split_halves(const uint16_t* __restrict x, size_t n, uint8_t* __restrict low, uint8_t* __restrict symbols, uint8_t* __restrict aside) {
  uint16_t nonzero = 0;
  for (size_t i = 0; i < n; ++i) {
    const HalfParts p = half_parts(x[i]);
    low[i] = p.low;
    symbols[i] = p.symbol;
    aside[i] = p.aside;
    nonzero = uint16_t(nonzero + (x[i] != 0));
  }
  return nonzero;
}
TW_CLONES void join_halves(const uint8_t* __restrict low, const uint8_t* __restrict symbols, const uint8_t* __restrict aside, size_t n, uint16_t* __restrict x) {
  for (size_t i = 0; i < n; ++i) x[i] = half_of({symbols[i], low[i], aside[i]});
}
struct OfHalf {
  using Word = uint16_t;
  static constexpr size_t streams = 1, zero_bits = 13;
  static constexpr uint8_t flags = 0;
  static size_t rest_bytes(size_t n, uint8_t) { return n + HalfParts::kAside * plane_bytes(n); }
  static size_t split(Work& w, const Word* x, size_t n, uint8_t* rest, uint8_t*, Ahead) {
    const size_t nonzero = split_halves(x, n, rest, w.symbols, w.unlisted);
    pack_aside(w.unlisted, n, HalfParts::kAside, rest + n);
    return nonzero;
  }
  static void join(Work& w, const uint8_t* rest, size_t n, uint8_t, Word* x, Ahead) {
    unpack_aside(rest + n, n, HalfParts::kAside, w.unlisted);
    join_halves(rest, w.symbols, w.unlisted, n, x);
  }
};

TW_CLONES size_t split_doubles(const uint64_t* __restrict x, size_t n, uint8_t* __restrict low, uint8_t* __restrict middle, uint8_t* __restrict symbols,
                               uint8_t* __restrict aside, uint8_t* __restrict every) {
  uint64_t nonzero = 0;
  uint8_t any = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t l = uint32_t(x[i]);
    memcpy(low + 4 * i, &l, 4);
    nonzero += x[i] != 0;
  }
  for (size_t i = 0; i < n; ++i) {
    const DoubleParts p = double_parts(x[i]);
    const uint16_t m = uint16_t(p.low >> 32);
    memcpy(middle + 2 * i, &m, 2);
    symbols[i] = p.symbol;
    aside[i] = p.aside;
    any |= p.aside;
  }
  *every = any;
  return nonzero;
}
TW_CLONES void join_doubles(const uint8_t* __restrict low, const uint8_t* __restrict middle, const uint8_t* __restrict symbols, const uint8_t* __restrict aside,
                            size_t n, uint64_t* __restrict x) {
  for (size_t i = 0; i < n; ++i) {
    uint32_t l;
    uint16_t m;
    memcpy(&l, low + 4 * i, 4);
    memcpy(&m, middle + 2 * i, 2);
    x[i] = double_of({l | uint64_t(m) << 32, symbols[i], aside[i]});
  }
}
struct OfDouble {
  using Word = uint64_t;
  static constexpr size_t streams = 1, zero_bits = 58;
  static constexpr uint8_t flags = kFar;
  static int aside_bits(uint8_t head) { return head & kFar ? DoubleParts::kFarAside : DoubleParts::kAside; }
  static size_t rest_bytes(size_t n, uint8_t head) { return 6 * n + size_t(aside_bits(head)) * plane_bytes(n); }
  static size_t split(Work& w, const Word* x, size_t n, uint8_t* rest, uint8_t* head, Ahead) {
    uint8_t every;
    const size_t nonzero = split_doubles(x, n, rest, rest + 4 * n, w.symbols, w.unlisted, &every);
    *head = every >> DoubleParts::kAside ? kFar : 0;
    pack_aside(w.unlisted, n, aside_bits(*head), rest + 6 * n);
    return nonzero;
  }
  static void join(Work& w, const uint8_t* rest, size_t n, uint8_t head, Word* x, Ahead) {
    unpack_aside(rest + 6 * n, n, aside_bits(head), w.unlisted);
    join_doubles(rest, rest + 4 * n, w.symbols, w.unlisted, n, x);
  }
};

// Words that are no floats: every byte is a symbol, in a stream for each place.
template <class W> TW_HD size_t split_bytes(const W* __restrict x, size_t n, uint8_t* __restrict symbols) {
  size_t nonzero = 0;
  for (size_t b = 0; b < sizeof(W); ++b) for (size_t i = 0; i < n; ++i) symbols[b * kStride + i] = uint8_t(x[i] >> 8 * b);
  for (size_t i = 0; i < n; ++i) nonzero += x[i] != 0;
  return nonzero;
}
template <class W> TW_HD void join_bytes(const uint8_t* __restrict symbols, size_t n, W* __restrict x) {
  for (size_t i = 0; i < n; ++i) {
    W v = 0;
    for (size_t b = 0; b < sizeof(W); ++b) v = W(v | W(symbols[b * kStride + i]) << 8 * b);
    x[i] = v;
  }
}
#define TW_BYTES(W)                                                                                             \
  TW_CLONES size_t split_words(const W* x, size_t n, uint8_t* symbols) { return split_bytes(x, n, symbols); }  \
  TW_CLONES void join_words(const uint8_t* symbols, size_t n, W* x) { join_bytes(symbols, n, x); }
TW_BYTES(uint8_t) TW_BYTES(uint16_t) TW_BYTES(uint32_t) TW_BYTES(uint64_t)
template <class W> struct OfBytes {
  using Word = W;
  static constexpr size_t streams = sizeof(W), zero_bits = 3 * sizeof(W);
  static constexpr uint8_t flags = 0;
  static size_t rest_bytes(size_t, uint8_t) { return 0; }
  static size_t split(Work& w, const W* x, size_t n, uint8_t*, uint8_t*, Ahead) { return split_words(x, n, w.symbols); }
  static void join(Work& w, const uint8_t*, size_t n, uint8_t, W* x, Ahead) { join_words(w.symbols, n, x); }
};

// --- zeros ---

template <class W> TW_HD uint64_t nonzero_of(const W* x, size_t n) {
  W any = 0;
  for (size_t i = 0; i < n; ++i) any = W(any | x[i]);
  if (!any) return 0;
  uint64_t bits = 0;
  for (size_t i = 0; i < n; ++i) bits |= uint64_t(x[i] != 0) << i;
  return bits;
}
// A body's loop over a whole group, if it has one.
template <class W> auto close_up_of(const Loops& l) {
  if constexpr (sizeof(W) == 2) return l.close_up16;
  else if constexpr (sizeof(W) == 4) return l.close_up32;
  else return static_cast<uint64_t (*)(const W*, W*)>(nullptr);
}
template <class W> auto spread_of(const Loops& l) {
  if constexpr (sizeof(W) == 2) return l.spread16;
  else if constexpr (sizeof(W) == 4) return l.spread32;
  else return static_cast<void (*)(const W*, uint64_t, W*)>(nullptr);
}
// The words that are not zero, into `to` (with slack); the bitmap of groups, then those of groups that are not zero, at `maps`. Gives the maps' end.
template <class W> uint8_t* elide(const Loops& loops, const W* x, size_t n, W* to, uint8_t* maps) {
  const size_t groups = (n + kGroup - 1) / kGroup;
  const auto close_up = close_up_of<W>(loops);
  uint8_t* map = maps + plane_bytes(groups);
  memset(maps, 0, plane_bytes(groups));
  for (size_t g = 0; g < groups; ++g) {
    const W* const from = x + g * kGroup;
    const size_t k = std::min(kGroup, n - g * kGroup);
    const bool fast = close_up && k == kGroup;
    const uint64_t bits = fast ? close_up(from, to) : nonzero_of(from, k);
    if (!bits) continue;
    maps[g / 8] = uint8_t(maps[g / 8] | 1 << g % 8);
    store64(map, bits);
    map += 8;
    if (fast) { to += __builtin_popcountll(bits); continue; }
    for (size_t i = 0; i < k; ++i) {
      *to = from[i];
      to += bits >> i & 1;
    }
  }
  return map;
}
template <class W> void put_back(const Loops& loops, const W* words, const uint8_t* maps, size_t n, W* x) {
  const auto spread = spread_of<W>(loops);
  const uint8_t* map = maps + plane_bytes((n + kGroup - 1) / kGroup);
  for (size_t at = 0, g = 0; at < n; at += kGroup, ++g) {
    W* const to = x + at;
    const size_t k = std::min(kGroup, n - at);
    if (!(maps[g / 8] >> g % 8 & 1)) { memset(to, 0, sizeof(W) * k); continue; }
    const uint64_t bits = load64(map);
    map += 8;
    if (spread && k == kGroup) { spread(words, bits, to); words += __builtin_popcountll(bits); continue; }
    for (size_t i = 0; i < k; ++i) {
      to[i] = bits >> i & 1 ? *words : W(0);
      words += bits >> i & 1;
    }
  }
}
// The end of the maps at `maps` if they are those of n words, `count` of them not zero; else null.
const uint8_t* maps_end(const uint8_t* maps, const uint8_t* end, size_t n, size_t count) {
  const size_t groups = (n + kGroup - 1) / kGroup;
  if (size_t(end - maps) < plane_bytes(groups)) return nullptr;
  const uint8_t* map = maps + plane_bytes(groups);
  size_t found = 0;
  for (size_t g = 0; g < 8 * plane_bytes(groups); ++g) {
    if (!(maps[g / 8] >> g % 8 & 1)) continue;
    if (g >= groups || end - map < 8) return nullptr;
    const uint64_t bits = load64(map);
    if (n - g * kGroup < kGroup && bits >> (n - g * kGroup)) return nullptr;
    found += size_t(__builtin_popcountll(bits));
    map += 8;
  }
  return found == count ? map : nullptr;
}

// --- blocks ---

// What encoding a block may write, beyond its size too.
template <class K> constexpr size_t kRoom = kBlock * sizeof(typename K::Word) + 8192;

// Gives the block's size, or kZeroBlock or kRawBlock.
template <class K> size_t encode_block(Work& work, const typename K::Word* x, size_t n, uint8_t* out) {
  using Word = typename K::Word;
  const size_t raw = n * sizeof(Word);
  uint8_t head = 0, *at = out + 1;
  // The block after this one is asked for while this one is split and its first level coded: half by each.
  const uint8_t* const next = reinterpret_cast<const uint8_t*>(x + n);
  const size_t nonzero = K::split(work, x, n, at, &head, {next, 32 * sizeof(Word)});   // as if it were not sparse
  if (nonzero == 0) return kZeroBlock;
  if ((n - nonzero) * K::zero_bits > n + n / 8 || (head & kFar && nonzero < n)) {      // far zeros: a bit of a map is less than three aside
    Word* const words = reinterpret_cast<Word*>(work.words);
    put16(at, nonzero);
    at = elide(work.loops, x, n, words, at + 2);
    n = nonzero;
    K::split(work, words, n, at, &head, {next, 0});
    head |= kSparse;
  }
  out[0] = head;
  at += K::rest_bytes(n, head);
  for (size_t s = 0; s < K::streams; ++s) {
    at += encode_stream(work, work.symbols + s * kStride, n, at, {next + raw / 2, s ? 0 : 32 * sizeof(Word)});
    if (size_t(at - out) >= raw) return kRawBlock;
  }
  const size_t size = size_t(at - out);
  return size < kRawBlock ? size : kRawBlock;
}

template <class K> bool decode_block(Work& work, const uint8_t* in, size_t size, typename K::Word* x, size_t n) {
  using Word = typename K::Word;
  const uint8_t *at = in, *const end = in + size, *maps = nullptr;
  const uint8_t head = *at++;
  if (head & ~(kSparse | K::flags)) return false;
  const size_t whole = n;
  Word* to = x;
  if (head & kSparse) {
    if (end - at < 2) return false;
    n = get16(at);
    maps = at + 2;
    if (n == 0 || n > whole || !(at = maps_end(maps, end, whole, n))) return false;
    to = reinterpret_cast<Word*>(work.words);
  }
  const uint8_t* const rest = at;
  if (size_t(end - at) < K::rest_bytes(n, head)) return false;
  at += K::rest_bytes(n, head);
  for (size_t s = 0; s < K::streams; ++s) if (!decode_stream(work, at, end, n, work.symbols + s * kStride, {end, 0})) return false;
  if (at != end) return false;
  K::join(work, rest, n, head, to, {end, 64 * sizeof(Word)});
  if (maps) put_back(work.loops, to, maps, whole, x);
  return true;
}

// --- arrays ---

const Loops& loops() {
  static const Loops& best = avx512_loops() ? *avx512_loops() : avx2_loops() ? *avx2_loops() : portable_loops();
  return best;
}

// Blocks of n words; 0 if that would be no shorter than the words.
template <class K> size_t encode_blocks(const void* values, size_t n, uint8_t* wire) {
  using Word = typename K::Word;
  const Word* const x = static_cast<const Word*>(values);
  const size_t blocks = (n + kBlock - 1) / kBlock, raw = n * sizeof(Word);
  size_t used = 2 * blocks;
  if (used >= raw) return 0;
  Scratch scratch;
  Work work(loops());
  if (!work.take(scratch, K::streams, sizeof(Word), kRoom<K>)) return kNoMemory;
  for (size_t b = 0; b < blocks; ++b) {
    const size_t at = b * kBlock, m = std::min(kBlock, n - at);
    uint8_t* const out = raw - used < kRoom<K> ? work.stage : wire + used;
    const size_t entry = encode_block<K>(work, x + at, m, out), size = entry == kRawBlock ? m * sizeof(Word) : entry;
    if (size >= raw - used) return 0;
    if (entry == kRawBlock) memcpy(wire + used, x + at, size);
    else if (out == work.stage) memcpy(wire + used, out, size);
    put16(wire + 2 * b, entry);
    used += size;
  }
  return used;
}

template <class K> int decode_blocks(const uint8_t* wire, size_t bytes, void* y, size_t n, int dtype, int mode, double scale) {
  using Word = typename K::Word;
  const size_t blocks = (n + kBlock - 1) / kBlock, term = dtype == kF16 || dtype == kBF16 || dtype == kE4M3 || dtype == kE5M2 ? 4 : sizeof(Word);
  if (bytes < 2 * blocks) return -1;
  Scratch scratch;
  Work work(loops());
  if (!work.take(scratch, K::streams, sizeof(Word), mode == kSet ? 0 : kBlock * sizeof(Word))) return -2;
  work.large = mode == kSet && n * sizeof(Word) > kLarge;
  size_t used = 2 * blocks;
  for (size_t b = 0; b < blocks; ++b) {
    const size_t at = b * kBlock, m = std::min(kBlock, n - at), entry = get16(wire + 2 * b), size = entry == kRawBlock ? m * sizeof(Word) : entry;
    if (size > bytes - used) return -1;
    const uint8_t* in = wire + used;
    used += size;
    uint8_t* const to = static_cast<uint8_t*>(y) + at * (mode == kSet ? sizeof(Word) : term);
    Word* const words = reinterpret_cast<Word*>(mode == kSet ? to : work.stage);
    if (entry == kRawBlock) {
      if (mode == kSet) memcpy(to, in, size);
    } else {
      if (entry == kZeroBlock) memset(words, 0, m * sizeof(Word));
      else if (!decode_block<K>(work, in, size, words, m)) return -1;
      in = work.stage;
    }
    if (mode != kSet) raw_row.decode(nullptr, in, m * sizeof(Word), to, m, dtype, mode, scale);
  }
  return used == bytes ? 0 : -1;
}

// Calls f with the kind of a dtype, the count of its words and their own dtype: a complex number is two floats.
template <class F> auto with_kind(size_t n, int dtype, F f) {
  switch (dtype) {
    case kF32: return f(OfFloat(), n, dtype);
    case kC64: return f(OfFloat(), 2 * n, int(kF32));
    case kF64: return f(OfDouble(), n, dtype);
    case kC128: return f(OfDouble(), 2 * n, int(kF64));
    case kF16: return f(OfHalf(), n, dtype);
    case kBF16: return f(OfBfloat(), n, dtype);
    default: break;
  }
  switch (kItemSize[dtype]) {
    case 1: return f(OfBytes<uint8_t>(), n, dtype);
    case 2: return f(OfBytes<uint16_t>(), n, dtype);
    case 4: return f(OfBytes<uint32_t>(), n, dtype);
    default: return f(OfBytes<uint64_t>(), n, dtype);
  }
}

size_t granule(const void*) { return 0; }
size_t bound(const void*, size_t n, int dtype) { return n * kItemSize[dtype]; }
size_t encode(const void*, const void* x, size_t n, int dtype, uint8_t* wire, uint64_t seed, uint64_t first, void* residual) {
  Scratch scratch;
  const size_t raw = n * kItemSize[dtype];
  if (residual && dtype <= kBF16) {                                  // x + residual, in the type of x, is what is coded
    uint8_t* const sums = scratch.take<uint8_t>(raw);
    if (!sums) return kNoMemory;
    raw_row.encode(nullptr, x, n, dtype, sums, seed, first, residual);
    x = sums;
  }
  const size_t used = with_kind(n, dtype, [&](auto kind, size_t words, int) { return encode_blocks<decltype(kind)>(x, words, wire); });
  if (used) return used;
  if (raw) memcpy(wire, x, raw);
  return raw;
}
int decode(const void*, const uint8_t* wire, size_t bytes, void* y, size_t n, int dtype, int mode, double scale) {
  if (bytes == n * kItemSize[dtype]) return raw_row.decode(nullptr, wire, bytes, y, n, dtype, mode, scale);
  return with_kind(n, dtype, [&](auto kind, size_t words, int own) { return decode_blocks<decltype(kind)>(wire, bytes, y, words, own, mode, scale); });
}

}  // namespace
extern const Codec lossless_row;
const Codec lossless_row = {"lossless", 0, kEveryDtype, granule, bound, encode, decode};
}  // namespace thinwire
