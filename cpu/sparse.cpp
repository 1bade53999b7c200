#include "sparse.h"

#include <algorithm>

#include "index.h"
#include "thinwire/cast.h"

namespace thinwire {
namespace {

// --- the wire's parts; docs/wire.md has the bytes ---

// kEntries: indices, values. kShared: the seed that the indices follow from, values. kDense: n values. kPoison: nothing, all values are NaN.
enum Kind : uint8_t { kEntries, kShared, kDense, kPoison };
constexpr size_t kHead = 8, kEntriesHead = 16;   // kind u8, count u56; entries: bytes of the index section u64
constexpr size_t kSeedBytes = 8;

void put64(uint8_t* p, uint64_t v) { memcpy(p, &v, 8); }
uint64_t get64(const uint8_t* p) { uint64_t v; memcpy(&v, p, 8); return v; }
void put_head(uint8_t* wire, Kind kind, size_t count) { put64(wire, uint64_t(count) << 8 | kind); }

size_t index_size(bool wide) { return wide ? 8 : 4; }

// The codec of the kept values, its parameters aligned.
struct Stage {
  const Codec* codec;
  alignas(16) uint8_t params[sizeof(StageParams::then)];
  Stage(const Codec& sparse, const void* sparse_params) {
    const uint8_t* const at = static_cast<const uint8_t*>(sparse_params) + sparse.params_size - sizeof(StageParams);
    int32_t number;
    memcpy(&number, at, sizeof number);
    memcpy(params, at + sizeof number, sizeof params);
    codec = kCodecs[number];
  }
  size_t bound(size_t count, int dtype) const { return codec->bound(params, count, dtype); }
  bool fixed() const { return codec->granule(params) != 0; }
};

size_t dense_bytes(size_t n, int dtype) { return kHead + n * kItemSize[dtype]; }
size_t wire_bound(const Stage& stage, size_t count, size_t n, int dtype, size_t section) {
  return std::min(dense_bytes(n, dtype), kEntriesHead + section + stage.bound(count, dtype));
}

// --- loops ---

template <class T> TW_HD void widen_all(const T* __restrict x, size_t n, float* __restrict values) { for (size_t i = 0; i < n; ++i) values[i] = to_float(x[i]); }
template <class C> TW_HD void add_finite(const C* __restrict x, C* __restrict residual, size_t n) {
  using R = Real<C>;
  for (size_t i = 0; i < n; ++i) {
    const auto u = bits_of(x[i] + residual[i]);
    const auto a = u & R::magnitude;
    residual[i] = float_of(typename R::Bits((u & ~R::magnitude) | (a < R::infinity ? a : R::largest)));
  }
}
template <class C> TW_HD size_t count_of(const C* x, size_t n) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) count += !finite(x[i]);
  return count;
}
// Accumulators as values of T, saturated, and what that loses.
template <class T> TW_HD void narrow_all(const compute_t<T>* __restrict value, size_t n, T* __restrict out, compute_t<T>* __restrict lost) {
  const uint32_t limit = cast_limit<compute_t<T>, T>(true);
  for (size_t i = 0; i < n; ++i) out[i] = cast<T>(value[i], limit);
  if (!lost) return;
  for (size_t i = 0; i < n; ++i) {
    const compute_t<T> rest = value[i] - compute_t<T>(widen(out[i]));
    lost[i] = finite(rest) ? rest : 0;
  }
}
TW_CLONES void narrow_any(const void* value, size_t n, int dtype, void* out, void* lost) {
  const float* const v = static_cast<const float*>(value);
  if (dtype == kF16) narrow_all(v, n, static_cast<half*>(out), static_cast<float*>(lost));
  else narrow_all(v, n, static_cast<bfloat*>(out), static_cast<float*>(lost));
}

template <class Item, class Index> TW_HD void gather(const Item* x, const Index* index, size_t count, Item* out) {
  for (size_t i = 0; i < count; ++i) out[i] = x[index[i]];
}
template <class Item, class Index> TW_HD void put(const Item* value, const Index* index, size_t count, uint64_t base, uint8_t* y) {
  for (size_t i = 0; i < count; ++i) memcpy(y + (index[i] - base) * sizeof(Item), &value[i], sizeof(Item));
}
template <class C, class Index> TW_HD void add(const C* value, const Index* index, size_t count, uint64_t base, C* y) {
  for (size_t i = 0; i < count; ++i) y[index[i] - base] += value[i];
}
// value[i] to place index[i] - base of y: an item of this many bytes moved, or an accumulator added.
template <class Index> TW_HD void place(const void* value, const Index* index, size_t count, uint64_t base, void* y, size_t item, bool sum) {
  if (sum) {
    if (item == 8) add(static_cast<const double*>(value), index, count, base, static_cast<double*>(y));
    else add(static_cast<const float*>(value), index, count, base, static_cast<float*>(y));
  } else if (item == 2) put(static_cast<const uint16_t*>(value), index, count, base, static_cast<uint8_t*>(y));
  else if (item == 4) put(static_cast<const uint32_t*>(value), index, count, base, static_cast<uint8_t*>(y));
  else put(static_cast<const uint64_t*>(value), index, count, base, static_cast<uint8_t*>(y));
}
void place(const void* value, const void* index, bool wide, size_t count, uint64_t base, void* y, size_t item, bool sum) {
  if (wide) place(value, static_cast<const uint64_t*>(index), count, base, y, item, sum);
  else place(value, static_cast<const uint32_t*>(index), count, base, y, item, sum);
}

template <class Bits> size_t count_nonzero(const void* value, size_t count) {
  size_t found = 0;
  for (size_t i = 0; i < count; ++i) found += static_cast<const Bits*>(value)[i] != 0;
  return found;
}

template <class Index> bool outside(const Index* index, size_t count, uint64_t base, size_t n) {
  bool found = false;
  for (size_t i = 0; i < count; ++i) found |= uint64_t(index[i]) - base >= n;
  return found;
}

template <class Index> TW_HD bool rises(const Index* index, size_t count) {
  Index falls = 0;
  for (size_t i = 1; i < count; ++i) falls |= Index(index[i - 1] >= index[i]);
  return !falls;
}

// Values of a raw escape whose bits are not all zero, as entries; kNoEntries if there are more than `count`.
template <class T, class Index> size_t find_nonzero(const uint8_t* values, size_t n, size_t count, uint64_t base, Index* index, compute_t<T>* value) {
  size_t found = 0;
  for (size_t i = 0; i < n; ++i) {
    const T v = load<T>(values, i);
    decltype(bits_of(compute_t<T>())) bits = 0;
    memcpy(&bits, &v, sizeof v);
    if (!bits) continue;
    if (found == count) return kNoEntries;
    index[found] = Index(i + base);
    value[found++] = widen(v);
  }
  return found;
}
template <class Index> size_t find_nonzero(const uint8_t* values, size_t n, int dtype, size_t count, uint64_t base, Index* index, void* value) {
  switch (dtype) {
    case kF32: return find_nonzero<float>(values, n, count, base, index, static_cast<float*>(value));
    case kF64: return find_nonzero<double>(values, n, count, base, index, static_cast<double*>(value));
    case kF16: return find_nonzero<half>(values, n, count, base, index, static_cast<float*>(value));
    default: return find_nonzero<bfloat>(values, n, count, base, index, static_cast<float*>(value));
  }
}

// --- pack ---

// The raw escape: the kept values among zeros. Its count is that of the entries that can be found in it again.
size_t write_dense(const Entries& entries, const void* value, size_t n, int dtype, uint8_t* wire) {
  const size_t item = kItemSize[dtype];
  memset(wire + kHead, 0, n * item);
  place(value, entries.index, entries.wide, entries.count, entries.base, wire + kHead, item, false);
  put_head(wire, kDense, item == 8 ? count_nonzero<uint64_t>(value, entries.count) : item == 4 ? count_nonzero<uint32_t>(value, entries.count)
                                                                                              : count_nonzero<uint16_t>(value, entries.count));
  return dense_bytes(n, dtype);
}
// The wire of entries whose values are of dtype. lost: accumulators, what the values lack; afterwards what the wire lost.
size_t write(const Stage& stage, const Entries& entries, const void* value, size_t n, int dtype, uint64_t seed, bool shared, uint8_t* wire, void* lost) {
  const size_t count = entries.count, dense = dense_bytes(n, dtype), most = stage.bound(count, dtype), lost_bytes = count * accumulator_size(dtype);
  if (stage.fixed() && kEntriesHead + most >= dense) return write_dense(entries, value, n, dtype, wire);
  Scratch scratch;
  size_t section_bytes = kSeedBytes;
  uint8_t* section = nullptr;
  if (!shared) {
    section = scratch.take<uint8_t>(index_bound(count, n) + kIndexSlack);
    if (!section) return kNoMemory;
    section_bytes = entries.wide ? encode_indices(static_cast<const uint64_t*>(entries.index), count, entries.base, section)
                                 : encode_indices(static_cast<const uint32_t*>(entries.index), count, entries.base, section);
  }
  const size_t head = kEntriesHead + section_bytes;
  if (stage.fixed() && head + most >= dense) return write_dense(entries, value, n, dtype, wire);
  // A stage that cannot say how long its wire will be writes it elsewhere if it might not fit.
  uint8_t* values = wire + head;
  void* rest = lost;
  const bool apart = head + most > dense;
  if (apart) {
    values = scratch.take<uint8_t>(most);
    if (lost) rest = scratch.take<uint8_t>(lost_bytes);
    if (!values || (lost && !rest)) return kNoMemory;
    if (lost) memcpy(rest, lost, lost_bytes);
  }
  const size_t used = stage.codec->encode(stage.params, value, count, dtype, values, seed, 0, rest);
  if (used == kNoMemory) return kNoMemory;
  if (apart) {
    if (head + used >= dense) return write_dense(entries, value, n, dtype, wire);
    memcpy(wire + head, values, used);
    if (lost) memcpy(lost, rest, lost_bytes);
  }
  put_head(wire, shared ? kShared : kEntries, count);
  put64(wire + kHead, section_bytes);
  if (shared) put64(wire + kEntriesHead, seed);
  else if (section_bytes) memcpy(wire + kEntriesHead, section, section_bytes);
  return head + used;
}
size_t write_poison(uint8_t* wire) {
  put_head(wire, kPoison, 0);
  return kHead;
}

// --- unpack ---

struct Parts { Kind kind; size_t count; const uint8_t* section; size_t section_bytes; const uint8_t* values; size_t value_bytes; };

// Takes a wire of n values apart; false if it is none. Its count is then one that these bytes may hold.
bool take_apart(const Codec& codec, const void* params, const Stage& stage, const uint8_t* wire, size_t bytes, size_t n, int dtype, Parts* parts) {
  if (bytes < kHead || n > kMostValues) return false;
  const uint64_t head = get64(wire);
  Parts& p = *parts;
  p = {Kind(head & 0xff), size_t(head >> 8), wire + kHead, 0, wire + kHead, bytes - kHead};
  if (p.count > n) return false;
  switch (p.kind) {
    case kPoison: return bytes == kHead && p.count == 0;
    case kDense: return bytes == dense_bytes(n, dtype);
    case kShared: if (!codec.sparse->shared || p.count != codec.sparse->capacity(params, n)) return false; break;
    case kEntries: break;
    default: return false;
  }
  if (bytes < kEntriesHead) return false;
  const uint64_t section = get64(wire + kHead);
  if (section > bytes - kEntriesHead) return false;
  p.section = wire + kEntriesHead;
  p.section_bytes = size_t(section);
  p.values = p.section + section;
  p.value_bytes = bytes - kEntriesHead - size_t(section);
  if (p.kind == kShared ? section != kSeedBytes : p.count > section * (kIndexPiece / 4)) return false;   // a piece has a header of 4 bytes
  const size_t most = stage.bound(p.count, dtype);
  return stage.fixed() ? p.value_bytes == most : p.value_bytes <= most;
}

// Calls piece(index, first, count) for the entries [first, first + count), as uint32_t or uint64_t after n; 0, -1 or -2.
template <class Index, class Piece>
int each_piece(const Codec& codec, const void* params, const Parts& p, size_t n, const Piece& piece) {
  if (p.kind == kShared) {
    Scratch scratch;
    Index* const index = scratch.take<Index>(p.count + kSelectSlack);
    if (!index) return -2;
    const size_t count = codec.sparse->shared(params, n, get64(p.section), index);
    if (count != p.count) return count == kNoMemory ? -2 : -1;
    piece(index, 0, count);
    return 0;
  }
  Index index[kIndexPiece];
  IndexReader reader(p.section, p.section_bytes, p.count, n);
  for (size_t first = 0; reader.left();) {
    const size_t count = reader.next(index);
    if (count == 0) return -1;
    piece(index, first, count);
    first += count;
  }
  return reader.done() ? 0 : -1;
}

// All of y NaN: as values of dtype, or as accumulators.
void poison(void* y, size_t n, int dtype, int mode) {
  if (dtype == kF64) std::fill_n(static_cast<double*>(y), n, nan<double>());
  else if (mode != kSet || dtype == kF32) std::fill_n(static_cast<float*>(y), n, nan<float>());
  else std::fill_n(static_cast<uint16_t*>(y), n, dtype == kF16 ? Narrow<half>::nan : Narrow<bfloat>::nan);
}

template <class Index>
int decode_as(const Codec& codec, const void* params, const Parts& p, const void* value, void* y, size_t n, size_t item, bool sum) {
  return each_piece<Index>(codec, params, p, n, [&](const Index* index, size_t first, size_t count) {
    place(static_cast<const uint8_t*>(value) + first * item, index, count, 0, y, item, sum);
  });
}

template <class Index, class C> TW_HD size_t merge_of(const Entries& a, const Entries& b, Index* __restrict index, C* __restrict value) {
  const Index *ia = static_cast<const Index*>(a.index), *ib = static_cast<const Index*>(b.index);
  const C *va = static_cast<const C*>(a.value), *vb = static_cast<const C*>(b.value);
  size_t i = 0, j = 0, count = 0;
  for (; i < a.count && j < b.count; ++count) {
    const Index p = ia[i], q = ib[j];
    const auto first = bits_of(va[i]), second = bits_of(vb[j]), both = bits_of(C(va[i] + vb[j]));
    index[count] = p < q ? p : q;
    value[count] = float_of(p == q ? both : p < q ? first : second);
    i += p <= q;
    j += q <= p;
  }
  for (; i < a.count; ++i, ++count) { index[count] = ia[i]; value[count] = va[i]; }
  for (; j < b.count; ++j, ++count) { index[count] = ib[j]; value[count] = vb[j]; }
  return count;
}
}  // namespace

// --- select ---

TW_CLONES void widen_array(const void* x, size_t n, int dtype, float* values) {
  if (dtype == kF16) widen_all(static_cast<const half*>(x), n, values);
  else widen_all(static_cast<const bfloat*>(x), n, values);
}
TW_CLONES void add_to_residual(const float* x, float* residual, size_t n) { add_finite(x, residual, n); }
TW_CLONES void add_to_residual(const double* x, double* residual, size_t n) { add_finite(x, residual, n); }
TW_CLONES size_t count_nonfinite(const float* x, size_t n) { return count_of(x, n); }
TW_CLONES size_t count_nonfinite(const double* x, size_t n) { return count_of(x, n); }

// --- the row ---

size_t sparse_bound(const Codec& codec, const void* params, size_t n, int dtype) {
  const size_t most = codec.sparse->capacity(params, n);
  return wire_bound(Stage(codec, params), most, n, dtype, codec.sparse->shared ? kSeedBytes : index_bound(most, n));
}

size_t sparse_encode(const Codec& codec, const void* params, const void* x, size_t n, int dtype, uint8_t* wire, uint64_t seed, void* residual) {
  Scratch scratch;
  const bool wide = wide_index(n);
  const size_t most = codec.sparse->capacity(params, n) + kSelectSlack, item = kItemSize[dtype];
  uint8_t* const index = scratch.take<uint8_t>(most * index_size(wide));
  uint8_t* const value = scratch.take<uint8_t>(most * accumulator_size(dtype));
  if (!index || !value) return kNoMemory;
  int found = 0;
  const size_t count = codec.sparse->select(params, x, n, dtype, seed, residual, index, value, &found);
  if (count == kNoMemory) return kNoMemory;
  if (found & kLeftOut) return write_poison(wire);
  if (found & kUntouched) residual = nullptr;
  // What the stage codes: x's own bits; with a residual values of x's type, and what they lack
  const void* coded = value;
  uint8_t* lost = nullptr;
  if (residual && !(lost = scratch.take<uint8_t>(count * accumulator_size(dtype)))) return kNoMemory;
  if (item == 2) {
    uint16_t* const narrow = scratch.take<uint16_t>(count);
    if (!narrow) return kNoMemory;
    coded = narrow;
    if (residual || (found & kAltered)) narrow_any(value, count, dtype, narrow, lost);
    else if (wide) gather(static_cast<const uint16_t*>(x), reinterpret_cast<const uint64_t*>(index), count, narrow);
    else gather(static_cast<const uint16_t*>(x), reinterpret_cast<const uint32_t*>(index), count, narrow);
  } else if (residual) memset(lost, 0, count * item);
  const size_t bytes = write(Stage(codec, params), {count, index, value, wide, 0}, coded, n, dtype, seed, codec.sparse->shared != nullptr, wire, lost);
  if (residual && bytes != kNoMemory) place(lost, index, wide, count, 0, residual, accumulator_size(dtype), true);
  return bytes;
}

int sparse_decode(const Codec& codec, const void* params, const uint8_t* wire, size_t bytes, void* y, size_t n, int dtype, int mode, double scale) {
  const Stage stage(codec, params);
  Parts p;
  if (!take_apart(codec, params, stage, wire, bytes, n, dtype, &p)) return -1;
  if (p.kind == kPoison) { poison(y, n, dtype, mode); return 0; }
  if (p.kind == kDense) return kCodecs[0]->decode(nullptr, p.values, p.value_bytes, y, n, dtype, mode, scale);
  Scratch scratch;
  const size_t item = mode == kSet ? kItemSize[dtype] : accumulator_size(dtype);
  uint8_t* const value = scratch.take<uint8_t>(p.count * item);
  if (!value) return -2;
  if (const int bad = stage.codec->decode(stage.params, p.values, p.value_bytes, value, p.count, dtype, mode == kSet ? kSet : kAccumulate, scale)) return bad;
  if (mode != kAdd) clear(y, n * item);
  if (wide_index(n)) return decode_as<uint64_t>(codec, params, p, value, y, n, item, mode == kAdd);
  return decode_as<uint32_t>(codec, params, p, value, y, n, item, mode == kAdd);
}

// --- entries ---

TW_CLONES bool ascend(const uint32_t* index, size_t count) { return rises(index, count); }
TW_CLONES bool ascend(const uint64_t* index, size_t count) { return rises(index, count); }
bool ascends(const Entries& e, size_t n) {
  const auto check = [&](const auto* index) { return e.count == 0 || (ascend(index, e.count) && index[0] >= e.base && index[e.count - 1] - e.base < n); };
  return e.wide ? check(static_cast<const uint64_t*>(e.index)) : check(static_cast<const uint32_t*>(e.index));
}

size_t pack_bound(const Codec& codec, const void* params, size_t count, size_t n, int dtype) {
  return wire_bound(Stage(codec, params), count, n, dtype, std::max(index_bound(count, n), codec.sparse->shared ? kSeedBytes : 0));
}

size_t pack(const Codec& codec, const void* params, const Entries& entries, size_t n, int dtype, uint64_t seed, bool shared, bool poison, uint8_t* wire,
            void* lost) {
  if (poison) return write_poison(wire);
  Scratch scratch;
  const void* coded = entries.value;
  if (kItemSize[dtype] == 2) {
    uint16_t* const narrow = scratch.take<uint16_t>(entries.count);
    if (!narrow) return kNoMemory;
    narrow_any(entries.value, entries.count, dtype, narrow, lost);
    coded = narrow;
  } else if (lost) memset(lost, 0, entries.count * accumulator_size(dtype));
  return write(Stage(codec, params), entries, coded, n, dtype, seed, shared, wire, lost);
}

size_t packed_entries(const Codec& codec, const void* params, const uint8_t* wire, size_t bytes, size_t n, int dtype) {
  Parts p;
  if (!take_apart(codec, params, Stage(codec, params), wire, bytes, n, dtype, &p)) return kNoEntries;
  return p.kind == kPoison ? kPoisoned : p.count;
}

int unpack(const Codec& codec, const void* params, const uint8_t* wire, size_t bytes, size_t n, int dtype, bool wide, uint64_t base, void* index, void* value) {
  const Stage stage(codec, params);
  Parts p;
  if (!take_apart(codec, params, stage, wire, bytes, n, dtype, &p)) return -1;
  if (p.kind == kPoison) return 0;
  if (p.kind == kDense) {
    const size_t found = wide ? find_nonzero(p.values, n, dtype, p.count, base, static_cast<uint64_t*>(index), value)
                              : find_nonzero(p.values, n, dtype, p.count, base, static_cast<uint32_t*>(index), value);
    return found == p.count ? 0 : -1;
  }
  if (const int bad = stage.codec->decode(stage.params, p.values, p.value_bytes, value, p.count, dtype, kAccumulate, 1.0)) return bad;
  if (p.kind == kShared) {
    const auto copy = [&](const auto* from, size_t, size_t count) {
      if (wide) for (size_t i = 0; i < count; ++i) static_cast<uint64_t*>(index)[i] = from[i] + base;
      else for (size_t i = 0; i < count; ++i) static_cast<uint32_t*>(index)[i] = uint32_t(from[i] + base);
    };
    return wide_index(n) ? each_piece<uint64_t>(codec, params, p, n, copy) : each_piece<uint32_t>(codec, params, p, n, copy);
  }
  IndexReader reader(p.section, p.section_bytes, p.count, n);
  for (size_t first = 0; reader.left();) {
    const size_t count = wide ? reader.next(static_cast<uint64_t*>(index) + first, base) : reader.next(static_cast<uint32_t*>(index) + first, base);
    if (count == 0) return -1;
    first += count;
  }
  return reader.done() ? 0 : -1;
}

int scatter(const Entries& e, void* y, size_t n, int dtype, int mode, double scale) {
  if (e.wide ? outside(static_cast<const uint64_t*>(e.index), e.count, e.base, n) : outside(static_cast<const uint32_t*>(e.index), e.count, e.base, n)) return -1;
  const bool narrow = mode == kSet && kItemSize[dtype] == 2;
  constexpr size_t kPiece = 2048;
  alignas(64) double room[kPiece];
  const size_t accumulator = accumulator_size(dtype), item = narrow ? 2 : accumulator;
  for (size_t at = 0; at < e.count; at += kPiece) {
    const size_t count = std::min(kPiece, e.count - at);
    const void* value = static_cast<const uint8_t*>(e.value) + at * accumulator;
    if (narrow) {
      narrow_any(value, count, dtype, room, nullptr);
      value = room;
    } else if (mode != kSet && scale != 1) {
      if (dtype == kF64) for (size_t i = 0; i < count; ++i) room[i] = static_cast<const double*>(value)[i] * scale;
      else for (size_t i = 0; i < count; ++i) reinterpret_cast<float*>(room)[i] = static_cast<const float*>(value)[i] * float(scale);
      value = room;
    }
    place(value, static_cast<const uint8_t*>(e.index) + at * index_size(e.wide), e.wide, count, e.base, y, item, mode == kAdd);
  }
  return 0;
}

size_t merge(const Entries& a, const Entries& b, bool doubles, void* index, void* value) {
  uint64_t* const wide = static_cast<uint64_t*>(index);
  uint32_t* const narrow = static_cast<uint32_t*>(index);
  if (doubles) return a.wide ? merge_of(a, b, wide, static_cast<double*>(value)) : merge_of(a, b, narrow, static_cast<double*>(value));
  return a.wide ? merge_of(a, b, wide, static_cast<float*>(value)) : merge_of(a, b, narrow, static_cast<float*>(value));
}

namespace {
template <class T, class Index> size_t sum_of(const Entries* lists, size_t count, T* y, size_t n, T scale) {
  constexpr size_t kPiece = 4096;
  Scratch scratch;
  size_t* const next = scratch.take<size_t>(count);
  uint8_t* const room = scratch.take<uint8_t>(kPiece * sizeof(T) + kPage);
  if (!next || !room) return kNoMemory;
  T* const piece = reinterpret_cast<T*>(opposite(room, y));      // whole pages a piece, so it stays so
  for (size_t l = 0; l < count; ++l) next[l] = 0;
  for (size_t at = 0; at < n; at += kPiece) {
    const size_t m = std::min(kPiece, n - at);
    memset(piece, 0, m * sizeof(T));
    for (size_t l = 0; l < count; ++l) {
      const Index* const index = static_cast<const Index*>(lists[l].index);
      const T* const value = static_cast<const T*>(lists[l].value);
      const uint64_t from = lists[l].base + at;
      size_t i = next[l];
      if (l == 0) for (; i < lists[l].count && index[i] - from < m; ++i) piece[index[i] - from] = value[i] * scale;
      else for (; i < lists[l].count && index[i] - from < m; ++i) piece[index[i] - from] += value[i] * scale;
      next[l] = i;
    }
    if (n * sizeof(T) >= kMany) copy_out(y + at, piece, m * sizeof(T));
    else memcpy(y + at, piece, m * sizeof(T));
  }
  return 0;
}
}  // namespace

size_t sum_entries(const Entries* lists, size_t count, void* y, size_t n, bool doubles, double scale) {
  const bool wide = count && lists->wide;
  if (doubles) {
    return wide ? sum_of<double, uint64_t>(lists, count, static_cast<double*>(y), n, scale) : sum_of<double, uint32_t>(lists, count, static_cast<double*>(y), n, scale);
  }
  return wide ? sum_of<float, uint64_t>(lists, count, static_cast<float*>(y), n, float(scale)) : sum_of<float, uint32_t>(lists, count, static_cast<float*>(y), n, float(scale));
}

size_t positions_bound(size_t count, size_t n) { return sizeof(uint64_t) + index_bound(count, n) + kIndexSlack; }

size_t pack_positions(const Entries& e, size_t, uint8_t* wire) {
  const uint64_t count = e.count;
  memcpy(wire, &count, sizeof count);
  uint8_t* const section = wire + sizeof count;
  return sizeof count + (e.wide ? encode_indices(static_cast<const uint64_t*>(e.index), e.count, e.base, section)
                                : encode_indices(static_cast<const uint32_t*>(e.index), e.count, e.base, section));
}

size_t packed_positions(const uint8_t* wire, size_t bytes, size_t n) {
  uint64_t count;
  if (bytes < sizeof count) return kNoEntries;
  memcpy(&count, wire, sizeof count);
  return count > n ? kNoEntries : count;
}

int unpack_positions(const uint8_t* wire, size_t bytes, size_t n, bool wide, void* index) {
  const size_t head = sizeof(uint64_t), total = packed_positions(wire, bytes, n);
  IndexReader reader(wire + head, bytes - head, total, n);
  for (size_t first = 0; reader.left();) {
    const size_t count = wide ? reader.next(static_cast<uint64_t*>(index) + first) : reader.next(static_cast<uint32_t*>(index) + first);
    if (count == 0) return -1;
    first += count;
  }
  return reader.done() ? 0 : -1;
}

}  // namespace thinwire
