#include "index.h"

#include <algorithm>
#include <cstring>

#include "thinwire/sparse.h"
#include "thinwire/target.h"

namespace thinwire {
namespace {

constexpr unsigned kMostBits = 44;     // a field's; kMostValues >> kMostBits is small, and (ones of a piece) << kMostBits fits 64 bits
constexpr size_t kPieceHeader = 4;     // mode u8, bits u8, payload bytes u16
constexpr size_t kWordsHeader = 16;    // origin i64, slope u64
constexpr size_t kRunsHeader = 6;      // runs u16, bytes of the gaps u16, bits of gaps u8, bits of lengths u8
constexpr size_t kNever = ~size_t(0);  // size of a piece in a mode that cannot hold it

TW_HD uint64_t load64(const uint8_t* p) { uint64_t w; memcpy(&w, p, 8); return w; }
TW_HD void store64(uint8_t* p, uint64_t w) { memcpy(p, &w, 8); }
TW_HD unsigned bit_width(uint64_t x) { return x ? unsigned(64 - __builtin_clzll(x)) : 0; }
TW_HD size_t field_bytes(size_t count, unsigned bits) { return (count * bits + 7) / 8; }

// --- Golomb-Rice of a list of numbers ---

struct Rice { unsigned bits; size_t bytes; };

template <class D> TW_HD uint64_t quotients(const D* __restrict d, size_t count, unsigned bits) {
  D sum = 0;                            // the sum of a piece's gaps fits D
  for (size_t i = 0; i < count; ++i) sum = D(sum + (d[i] >> bits));
  return sum;
}
// The smallest number of bits that gives the fewest. The cost is convex in it, so a walk from a guess (that of the geometric distribution, mean * ln 2)
// ends at the least.
template <class D> TW_HD Rice choose_rice(const D* __restrict d, size_t count, uint64_t sum) {
  const auto cost = [&](unsigned bits) __attribute__((always_inline)) { return count * (bits + 1) + quotients(d, count, bits); };
  const unsigned most = std::min(kMostBits, unsigned(8 * sizeof(D)) - 1);   // a bit more for numbers of D saves nothing
  const uint64_t mean = sum / count;
  unsigned bits = bit_width((mean * 11 + (sum % count) * 11 / count) >> 4);
  bits = std::min(bits ? bits - 1 : 0, most);
  uint64_t least = cost(bits), next;
  if (bits < most && (next = cost(bits + 1)) < least) {
    do { least = next; ++bits; } while (bits < most && (next = cost(bits + 1)) < least);
  } else {
    for (; bits && (next = cost(bits - 1)) <= least; --bits) least = next;
  }
  return {bits, field_bytes(count, bits) + (least - count * bits + 7) / 8};
}

// Fields of `bits` each, from the low end on, `group` of them at a time (group * bits <= 56). Writes up to 8 bytes more.
template <size_t group, class D> TW_HD void put_groups(const D* __restrict d, size_t count, unsigned bits, uint8_t* __restrict out) {
  const uint64_t mask = (uint64_t(1) << bits) - 1;
  uint64_t held = 0;
  unsigned fill = 0;
  const auto append = [&](uint64_t some, unsigned width) __attribute__((always_inline)) {
    held |= some << fill;
    fill += width;
    store64(out, held);
    out += fill >> 3;
    held >>= fill & ~7u;
    fill &= 7;
  };
  size_t i = 0;
  for (; i + group <= count; i += group) {
    uint64_t some = 0;
    for (size_t k = group; k--;) some = some << bits | (uint64_t(d[i + k]) & mask);
    append(some, unsigned(group) * bits);
  }
  for (; i < count; ++i) append(uint64_t(d[i]) & mask, bits);
  store64(out, held);
}
template <class D> TW_HD void put_fields(const D* __restrict d, size_t count, unsigned bits, uint8_t* __restrict out) {
  if (bits <= 14) put_groups<4>(d, count, bits, out);
  else if (bits <= 28) put_groups<2>(d, count, bits, out);
  else put_groups<1>(d, count, bits, out);
}
// The bytes of choose_rice.
template <class D> TW_HD void put_rice(const D* __restrict d, size_t count, const Rice& rice, uint8_t* __restrict out) {
  const size_t fields = field_bytes(count, rice.bits);
  if (rice.bits) put_fields(d, count, rice.bits, out);
  uint8_t* const string = out + fields;
  memset(string, 0, rice.bytes - fields + 8);
  uint64_t place = ~uint64_t(0), word = 0, held = 0;
  for (size_t i = 0; i < count; ++i) {
    place += (d[i] >> rice.bits) + 1;
    held = (place >> 6 == word ? held : 0) | uint64_t(1) << (place & 63);
    word = place >> 6;
    store64(string + 8 * word, held);
  }
}

// sums[i] = from + i + the sum of the first i + 1 numbers. -1 if the bytes are no code of `count` numbers. Reads up to 8 bytes more.
TW_HD size_t ones(const uint8_t* p, size_t bytes) {
  size_t found = 0;
  for (; bytes >= 8; bytes -= 8, p += 8) found += size_t(__builtin_popcountll(load64(p)));
  return bytes ? found + size_t(__builtin_popcountll(load64(p) & ((uint64_t(1) << 8 * bytes) - 1))) : found;
}
template <class Index> TW_HD int get_rice(const uint8_t* in, size_t bytes, size_t count, unsigned bits, uint64_t from, Index* __restrict sums, uint64_t* last) {
  const size_t fields = field_bytes(count, bits);
  if (bits > kMostBits || bytes <= fields || in[bytes - 1] == 0 || ones(in + fields, bytes - fields) != count) return -1;
  const uint8_t* const string = in + fields;
  const size_t size = bytes - fields;
  const uint64_t mask = (uint64_t(1) << bits) - 1;
  uint64_t sum = from, i = 0;
  size_t bit = 0;
  for (size_t at = 0; at < size; at += 8) {
    uint64_t word = load64(string + at);
    if (size - at < 8) word &= (uint64_t(1) << 8 * (size - at)) - 1;
    for (; word; word &= word - 1) {
      const uint64_t place = 8 * at + uint64_t(__builtin_ctzll(word));
      sum += load64(in + (bit >> 3)) >> (bit & 7) & mask;
      bit += bits;
      sums[i] = Index(sum + i + ((place - i) << bits));
      *last = sum + i + ((place - i) << bits);
      ++i;
    }
  }
  return 0;
}

// --- a piece ---

struct Line { int64_t origin; uint64_t slope; unsigned bits; };

template <class Index, class D> TW_HD size_t encode_piece(const Index* __restrict index, size_t count, uint64_t from, uint8_t* __restrict out) {
  // gaps, and how many runs they make
  D gap[kIndexPiece];
  gap[0] = D(index[0] - from);
  size_t runs = 1;
  for (size_t i = 1; i < count; ++i) gap[i] = D(index[i] - index[i - 1] - 1);
  for (size_t i = 1; i < count; ++i) runs += gap[i] != 0;
  const uint64_t span = uint64_t(index[count - 1]) - from + 1;

  const Rice rice = choose_rice(gap, count, span - count);
  size_t best = rice.bytes;
  IndexMode mode = kRice;

  Line line = {0, 0, 0};
  if (count > 2 && kWordsHeader < best) {
    const uint64_t first = index[0], steps = count - 1;
    line.slope = (index[count - 1] - first + steps / 2) / steps;
    int64_t low = 0, high = 0;
    const auto reach = [&](size_t step) __attribute__((always_inline)) {
      for (size_t i = 0; i < count; i += step) {
        const int64_t off = int64_t(index[i] - first - i * line.slope);
        low = off < low ? off : low;
        high = off > high ? off : high;
      }
      line.bits = bit_width(uint64_t(high - low));
      return line.bits <= kMostBits && kWordsHeader + field_bytes(count, line.bits) < best;
    };
    if (reach(kIndexPiece / 32) && reach(1)) {     // a few show that most sets are no line
      line.origin = int64_t(first - from) + low;
      best = kWordsHeader + field_bytes(count, line.bits);
      mode = kWords;
    }
  }

  D start[kIndexPiece], length[kIndexPiece];
  Rice starts{}, lengths{};
  if (kRunsHeader + runs / 4 < best && runs < count) {
    uint16_t begin[kIndexPiece + 1];
    size_t r = 0;
    for (size_t i = 0; i < count; ++i) {           // begin[r] is overwritten until a run begins
      begin[r] = uint16_t(i);
      r += i == 0 || gap[i] != 0;
    }
    begin[runs] = uint16_t(count);
    for (size_t k = 0; k < runs; ++k) length[k] = D(begin[k + 1] - begin[k] - 1);
    for (size_t k = 0; k < runs; ++k) start[k] = gap[begin[k]];
    starts = choose_rice(start, runs, span - count);
    lengths = choose_rice(length, runs, count - runs);
    const size_t bytes = kRunsHeader + starts.bytes + lengths.bytes;
    if (bytes < best) { best = bytes; mode = kRuns; }
  }

  out[0] = mode;
  out[1] = 0;
  out[2] = uint8_t(best);
  out[3] = uint8_t(best >> 8);
  uint8_t* const payload = out + kPieceHeader;
  switch (mode) {
    case kRice:
      out[1] = uint8_t(rice.bits);
      put_rice(gap, count, rice, payload);
      break;
    case kWords:
      out[1] = uint8_t(line.bits);
      store64(payload, uint64_t(line.origin));
      store64(payload + 8, line.slope);
      for (size_t i = 0; i < count; ++i) gap[i] = D(index[i] - from - uint64_t(line.origin) - i * line.slope);
      put_fields(gap, count, line.bits, payload + kWordsHeader);
      break;
    case kRuns:
      payload[0] = uint8_t(runs);
      payload[1] = uint8_t(runs >> 8);
      payload[2] = uint8_t(starts.bytes);
      payload[3] = uint8_t(starts.bytes >> 8);
      payload[4] = uint8_t(starts.bits);
      payload[5] = uint8_t(lengths.bits);
      put_rice(start, runs, starts, payload + kRunsHeader);
      put_rice(length, runs, lengths, payload + kRunsHeader + starts.bytes);
  }
  return kPieceHeader + best;
}

// index[0..count) of the fields of a line; -1 unless they ascend from `from` on.
template <class Index> TW_HD int get_words(const uint8_t* in, size_t bytes, size_t count, unsigned bits, uint64_t from, uint64_t n, uint64_t base,
                                           Index* __restrict index, uint64_t* last) {
  if (bits > kMostBits || bytes != kWordsHeader + field_bytes(count, bits)) return -1;
  const uint64_t origin = load64(in), slope = load64(in + 8), mask = (uint64_t(1) << bits) - 1;
  if (slope >= n) return -1;
  uint64_t line = from + origin, before = from;
  bool ascends = true;
  for (size_t i = 0, bit = 0; i < count; ++i, bit += bits, line += slope) {
    const uint64_t place = line + (load64(in + kWordsHeader + (bit >> 3)) >> (bit & 7) & mask);
    ascends &= place >= before && place < n;
    before = place + 1;
    index[i] = Index(place + base);
  }
  *last = before - 1;
  return ascends ? 0 : -1;
}
template <class Index> TW_HD int get_runs(const uint8_t* in, size_t bytes, size_t count, uint64_t from, uint64_t n, uint64_t base, Index* __restrict index,
                                          uint64_t* last) {
  if (bytes < kRunsHeader) return -1;
  const size_t runs = in[0] | size_t(in[1]) << 8, first = in[2] | size_t(in[3]) << 8;
  if (runs == 0 || runs > count || first > bytes - kRunsHeader) return -1;
  uint64_t starts[kIndexPiece], lengths[kIndexPiece], unused;
  // starts[r] is r + the gaps so far, lengths[r] one less than the lengths so far
  if (get_rice(in + kRunsHeader, first, runs, in[4], 0, starts, &unused)) return -1;
  if (get_rice(in + kRunsHeader + first, bytes - kRunsHeader - first, runs, in[5], 0, lengths, &unused)) return -1;
  if (lengths[runs - 1] + 1 != count || starts[runs - 1] >= n || from + starts[runs - 1] + count - runs >= n) return -1;
  size_t i = 0;
  for (size_t r = 0; r < runs; ++r) {
    const uint64_t start = from + base + starts[r] - r;  // of place i, were there no others in its run
    for (const size_t end = size_t(lengths[r]) + 1; i < end; ++i) index[i] = Index(start + i);
  }
  *last = from + starts[runs - 1] - (runs - 1) + count - 1;
  return 0;
}

template <class Index>
TW_HD int decode_piece(const uint8_t* piece, size_t bytes, size_t count, uint64_t from, uint64_t n, uint64_t base, Index* index, uint64_t* last) {
  const unsigned bits = piece[1];
  const uint8_t* const in = piece + kPieceHeader;
  int bad = -1;
  switch (piece[0]) {
    case kRice:
      bad = get_rice(in, bytes, count, bits, from + base, index, last);
      *last -= base;
      break;
    case kWords: bad = get_words(in, bytes, count, bits, from, n, base, index, last); break;
    case kRuns: bad = bits ? -1 : get_runs(in, bytes, count, from, n, base, index, last);
  }
  return bad;
}

TW_CLONES size_t encode_any(const uint32_t* index, size_t count, uint64_t from, uint8_t* out) { return encode_piece<uint32_t, uint32_t>(index, count, from, out); }
TW_CLONES size_t encode_any(const uint64_t* index, size_t count, uint64_t from, uint8_t* out) {
  if (index[count - 1] - from < UINT32_MAX) return encode_piece<uint64_t, uint32_t>(index, count, from, out);
  return encode_piece<uint64_t, uint64_t>(index, count, from, out);
}
TW_CLONES int decode_any(const uint8_t* p, size_t bytes, size_t count, uint64_t from, uint64_t n, uint64_t base, uint32_t* index, uint64_t* last) {
  return decode_piece(p, bytes, count, from, n, base, index, last);
}
TW_CLONES int decode_any(const uint8_t* p, size_t bytes, size_t count, uint64_t from, uint64_t n, uint64_t base, uint64_t* index, uint64_t* last) {
  return decode_piece(p, bytes, count, from, n, base, index, last);
}

template <class Index> size_t encode_all(const Index* index, size_t count, uint64_t base, uint8_t* out) {
  uint8_t* const section = out;
  for (size_t at = 0; at < count; at += kIndexPiece) {
    out += encode_any(index + at, std::min(count - at, kIndexPiece), base, out);
    base = uint64_t(index[std::min(count, at + kIndexPiece) - 1]) + 1;
  }
  return size_t(out - section);
}

}  // namespace

// Golomb-Rice of the best width where the last index is n - 1, which is the worst case. With no remainders that is a bitmap of n.
size_t index_bound(size_t count, size_t n) {
  if (count == 0) return 0;
  size_t bits = ~size_t(0);
  for (unsigned b = 0; b <= kMostBits; ++b) bits = std::min(bits, count * (b + 1) + ((n - count) >> b));
  return bits / 8 + 1 + (count + kIndexPiece - 1) / kIndexPiece * (kPieceHeader + 2);
}
size_t encode_indices(const uint32_t* index, size_t count, uint64_t base, uint8_t* out) { return encode_all(index, count, base, out); }
size_t encode_indices(const uint64_t* index, size_t count, uint64_t base, uint8_t* out) { return encode_all(index, count, base, out); }

template <class Index> size_t IndexReader::next_of(Index* index, uint64_t base) {
  const size_t count = std::min(left_, kIndexPiece), room = size_t(end_ - at_);
  if (count == 0 || room < kPieceHeader) return 0;
  const size_t bytes = at_[2] | size_t(at_[3]) << 8;
  if (bytes > room - kPieceHeader) return 0;
  uint64_t last = 0;
  int bad;
  if (room - kPieceHeader - bytes >= 8) {
    bad = decode_any(at_, bytes, count, from_, n_, base, index, &last);
  } else {
    uint8_t padded[kPieceHeader + UINT16_MAX + 8];      // a piece is read in words of 8 bytes, and nothing is read behind the section
    memcpy(padded, at_, kPieceHeader + bytes);
    memset(padded + kPieceHeader + bytes, 0, 8);
    bad = decode_any(padded, bytes, count, from_, n_, base, index, &last);
  }
  if (bad || last >= n_) return 0;
  at_ += kPieceHeader + bytes;
  left_ -= count;
  from_ = last + 1;
  return count;
}
size_t IndexReader::next(uint32_t* index, uint64_t base) { return next_of(index, base); }
size_t IndexReader::next(uint64_t* index, uint64_t base) { return next_of(index, base); }

}  // namespace thinwire
