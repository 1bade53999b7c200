// Exact top-k in little more than one pass: a sample gives a threshold that slightly more than k values reach, one scan appends those, and the k-th is
// found in the narrow band of keys that the sample leaves open. Heavy ties are taken apart; an array built against the sample costs a second scan.
#include "select.h"

#include <algorithm>
#include <cmath>

#include "lanes.h"
#include "scratch.h"

namespace thinwire {
namespace {

constexpr size_t kChunk = 4096;     // values between two looks at the room that is left
constexpr size_t kSpare = 65536;    // candidates beyond 2k before they are cut to the best k
constexpr size_t kLine = 64;        // bytes sampled in one place

// --- compaction by plain loops ---

// One flag a value, which vectorizes; where one of eight flags is up all eight are appended, each over the last that was no hit.
template <Order order, class T, class Index>
TW_CLONES size_t filter_run(const T* __restrict u, size_t begin, size_t end, Key<T> least, Index* __restrict index, T* __restrict value) {
  constexpr size_t step = 64;
  size_t kept = 0, i = begin;
  for (; i + step <= end; i += step) {
    uint8_t hit[step];
    Key<T> any = 0;
    for (size_t j = 0; j < step; ++j) { const Key<T> h = loose_key<order>(u[i + j]) >= least; any |= h; hit[j] = uint8_t(h); }
    if (!any) continue;
    for (size_t at = 0; at < step; at += 8) {
      uint64_t flags;
      memcpy(&flags, hit + at, 8);
      if (flags) for (size_t j = at; j < at + 8; ++j) { value[kept] = u[i + j]; index[kept] = Index(i + j); kept += hit[j]; }
    }
  }
  for (; i < end; ++i) { value[kept] = u[i]; index[kept] = Index(i); kept += loose_key<order>(u[i]) >= least; }
  return kept;
}
template <Order order, class T, class Index>
size_t filter_list(const Index* from, const T* values, size_t count, Key<T> least, Index* index, T* value) {
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    const T v = values[i];
    index[kept] = from[i];
    value[kept] = v;
    kept += loose_key<order>(v) >= least;
  }
  return kept;
}
template <Order order, class T> Split split_list(const T* __restrict values, size_t count, Key<T> low, Key<T> high, Key<T>* __restrict keys) {
  Split s{0, 0};
  for (size_t i = 0; i < count; ++i) {
    const Key<T> key = key_of<order>(values[i]);
    keys[s.within] = key;
    s.within += (key >= low) & (key < high);
    s.above += key >= high;
  }
  return s;
}

// --- the same by AVX-512 ---

#if THINWIRE_CLONES
template <Order order, class T> TW_V4 size_t filter_run_v4(const T* u, size_t begin, size_t end, Key<T> least, uint32_t* index, T* value) {
  using L = Lanes<T>;
  constexpr size_t parts = 4, step = parts * L::count;
  const __m512i bound = L::all(least);
  size_t kept = 0, i = begin;
  for (; i + step <= end; i += step) {
    __m512i bits[parts];
    typename L::Mask hit[parts], any = 0;
    for (size_t j = 0; j < parts; ++j) {
      bits[j] = _mm512_loadu_si512(u + i + j * L::count);
      hit[j] = L::at_least(loose_keys<order, T>(bits[j]), bound);
      any |= hit[j];
    }
    if (!any) continue;
    for (size_t j = 0; j < parts; ++j) {
      L::store(value + kept, hit[j], bits[j]);
      L::store_places(index + kept, hit[j], L::places(i + j * L::count));
      kept += size_t(__builtin_popcount(hit[j]));
    }
  }
  for (; i < end; ++i) { value[kept] = u[i]; index[kept] = uint32_t(i); kept += loose_key<order>(u[i]) >= least; }
  return kept;
}
template <Order order, class T> TW_V4 size_t filter_list_v4(const uint32_t* from, const T* values, size_t count, Key<T> least, uint32_t* index, T* value) {
  using L = Lanes<T>;
  const __m512i bound = L::all(least);
  size_t kept = 0, i = 0;
  for (; i + L::count <= count; i += L::count) {
    const __m512i bits = _mm512_loadu_si512(values + i);
    const typename L::Places places = L::load_places(from + i);
    const typename L::Mask hit = L::at_least(loose_keys<order, T>(bits), bound);
    L::store(value + kept, hit, bits);
    L::store_places(index + kept, hit, places);
    kept += size_t(__builtin_popcount(hit));
  }
  return kept + filter_list<order>(from + i, values + i, count - i, least, index + kept, value + kept);
}
template <Order order, class T> TW_V4 Split split_list_v4(const T* values, size_t count, Key<T> low, Key<T> high, Key<T>* keys) {
  using L = Lanes<T>;
  const __m512i from = L::all(low), to = L::all(high), most = L::all(kNanKey<T>);
  Split s{0, 0};
  size_t i = 0;
  for (; i + L::count <= count; i += L::count) {
    const __m512i key = L::smaller(loose_keys<order, T>(_mm512_loadu_si512(values + i)), most);
    const typename L::Mask above = L::at_least(key, to), within = L::at_least(key, from) & ~above;
    L::store(keys + s.within, within, key);
    s.within += size_t(__builtin_popcount(within));
    s.above += size_t(__builtin_popcount(above));
  }
  const Split rest = split_list<order>(values + i, count - i, low, high, keys + s.within);
  return {s.within + rest.within, s.above + rest.above};
}
#endif

}  // namespace

template <Order order, class T, class Index> size_t filter(const T* u, size_t begin, size_t end, Key<T> least, Index* index, T* value) {
  if (least > kNanKey<T>) return 0;
  if constexpr (sizeof(Index) == 4) { TW_IF_V4((filter_run_v4<order>(u, begin, end, least, index, value))); }
  return filter_run<order>(u, begin, end, least, index, value);
}
template <Order order, class T, class Index> size_t filter(const Index* from, const T* values, size_t count, Key<T> least, Index* index, T* value) {
  if (least > kNanKey<T>) return 0;
  if constexpr (sizeof(Index) == 4) { TW_IF_V4((filter_list_v4<order>(from, values, count, least, index, value))); }
  return filter_list<order>(from, values, count, least, index, value);
}
template <Order order, class T> Split split(const T* values, size_t count, Key<T> low, Key<T> high, Key<T>* keys) {
  TW_IF_V4((split_list_v4<order>(values, count, low, high, keys)));
  return split_list<order>(values, count, low, high, keys);
}

namespace {

// --- ranks ---

constexpr int kDigit = 11;                        // bits that a round of counting tells apart
constexpr size_t kSlices = size_t(1) << kDigit;

// The shift that leaves kDigit bits of a difference below `span`.
template <class K> int slice_shift(K span) {
  int shift = 0;
  while ((span - 1) >> shift >= kSlices) ++shift;
  return shift;
}
// Of counted slices, from the top: the one that holds the r-th, and what is left of r in it.
struct Slice { size_t number, r, count; };
// Several tables, since equal keys in a row would wait for each other's count; a thread's stack might be too small for them.
constexpr size_t kTables = 4;
using Counts = uint64_t[kTables][kSlices];
Counts& no_counts() {
  static thread_local Counts counts;
  memset(counts, 0, sizeof counts);
  return counts;
}
Slice find_slice(const Counts& counts, size_t r) {
  for (size_t s = kSlices;;) {
    --s;
    size_t c = 0;
    for (const auto& table : counts) c += table[s];
    if (c >= r) return {s, r, c};
    r -= c;
  }
}
// The key at the lower edge of the slice, of the whole range of keys, that holds the r-th largest of all.
template <Order order, class T> Key<T> slice_edge(const T* u, size_t n, size_t r) {
  Counts& counts = no_counts();
  const int shift = slice_shift(Key<T>(kNanKey<T> + 1));
  size_t i = 0;
  for (; i + kTables <= n; i += kTables) for (size_t j = 0; j < kTables; ++j) ++counts[j][key_of<order>(u[i + j]) >> shift];
  for (; i < n; ++i) ++counts[0][key_of<order>(u[i]) >> shift];
  return Key<T>(find_slice(counts, r).number) << shift;
}
template <class K> TW_CLONES size_t count_equal(const K* keys, size_t n, K key) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) count += keys[i] == key;
  return count;
}
template <Order order, class T> TW_CLONES size_t count_key(const T* values, size_t n, Key<T> key) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) count += key_of<order>(values[i]) == key;
  return count;
}
// The place behind the need-th value of this key; n + 1 if there are fewer.
template <Order order, class T> size_t behind(const T* values, size_t n, Key<T> key, size_t need) {
  constexpr size_t step = 1024;
  for (size_t at = 0; at < n; at += step) {
    const size_t m = std::min(step, n - at), here = count_key<order>(values + at, m, key);
    if (here < need) { need -= here; continue; }
    for (size_t i = at;; ++i) if (key_of<order>(values[i]) == key && --need == 0) return i + 1;
  }
  return n + 1;
}
// Entries above a rank's key, and the first `need` equal to it.
template <Order order, class T, class Index> size_t keep(const Index* from, const T* values, size_t count, const Rank<Key<T>>& rank, Index* index, T* value) {
  const size_t ties = rank.all ? count : behind<order>(values, count, rank.key, rank.need);
  const size_t kept = filter<order>(from, values, ties, rank.key, index, value);
  return kept + filter<order>(from + ties, values + ties, count - ties, Key<T>(rank.key + 1), index + kept, value + kept);
}

}  // namespace

template <class K> Rank<K> rank_of(const K* keys, size_t count, size_t r, K low, K high, K* work) {
  for (;;) {
    const int shift = slice_shift(K(high - low));
    Counts& counts = no_counts();
    size_t i = 0;
    for (; i + kTables <= count; i += kTables) for (size_t j = 0; j < kTables; ++j) ++counts[j][(keys[i + j] - low) >> shift];
    for (; i < count; ++i) ++counts[0][(keys[i] - low) >> shift];
    const Slice slice = find_slice(counts, r);
    low += K(slice.number) << shift;
    if (shift == 0) return {low, slice.r, slice.r == slice.count};
    high = low + (K(1) << shift);
    size_t kept = 0;
    for (i = 0; i < count; ++i) { const K key = keys[i]; work[kept] = key; kept += (key >= low) & (key < high); }
    keys = work;
    count = kept;
    r = slice.r;
  }
}

template <Order order, class T> size_t sample(const T* u, size_t n, Key<T>* keys) {
  constexpr size_t each = kLine / sizeof(T);
  if (n < kLeastSampled) {
    for (size_t i = 0; i < n; ++i) keys[i] = key_of<order>(u[i]);
    return n;
  }
  const size_t lines = std::min(kMostSampled / 16, n / 512), stratum = n / lines;
  for (size_t line = 0; line < lines; ++line) {
    const size_t at = line * stratum + size_t(double(random_bits(0x7a3d1c65u, uint32_t(line))) * 0x1p-32 * double(stratum - each + 1));
    for (size_t j = 0; j < each; ++j) keys[line * each + j] = key_of<order>(u[at + j]);
  }
  return lines * each;
}

template <Order order, class T, class Index> size_t best(Index* from, T* values, size_t count, size_t k, Index* index, T* value) {
  constexpr Key<T> least = kLeastKey<order>, end = kNanKey<T> + 1;
  Scratch scratch;
  auto* const keys = scratch.take<Key<T>>(count + kSelectSlack);
  if (!keys) return kNoMemory;
  const size_t ranked = split<order>(values, count, least, end, keys).within;
  if (ranked <= k || k == 0) return k ? filter<order>(from, values, count, least, index, value) : 0;
  return keep<order>(from, values, count, rank_of<Key<T>>(keys, ranked, k, least, end, keys), index, value);
}

template <Order order, class T, class Index> size_t top_k(const T* u, size_t n, size_t k, Index* index, T* value) {
  constexpr Key<T> least = kLeastKey<order>, end = kNanKey<T> + 1;
  if (k >= n) return filter<order>(u, 0, n, least, index, value);
  if (k == 0) return 0;
  Scratch scratch;
  const size_t room = std::min(n, 2 * k + kSpare) + kChunk;
  auto* const from = scratch.take<Index>(room + kSelectSlack);
  auto* const values = scratch.take<T>(room + kSelectSlack);
  auto* const keys = scratch.take<Key<T>>(std::max(room, 2 * kMostSampled) + kSelectSlack);
  if (!from || !values || !keys) return kNoMemory;

  // By the sample, `low` is reached by k keys and `high` by fewer, both almost surely.
  Key<T> low = least, high = end;
  bool tied = false;
  if (n >= kLeastSampled) {
    const size_t sampled = sample<order>(u, n, keys);
    const double expected = double(sampled) * (double(k) / double(n)), margin = 6 * std::sqrt(expected) + 8;
    const auto ranked = [&](double r) { return rank_of<Key<T>>(keys, sampled, std::min(sampled, size_t(r)), 0, end, keys + kMostSampled).key; };
    low = std::max(low, ranked(expected + margin));
    if (expected > margin + 1) high = ranked(expected - margin) + 1;
    // A key so frequent that it would be most of the candidates (zeros, rounded data): look at what is above it first.
    tied = low >= least && double(count_equal(keys, sampled, low)) > 2 * margin;
  }

  size_t found;
  for (Key<T> from_key = low + tied;;) {
    // A scan that cuts its candidates to the best k whenever it runs out of room; from then on, equals of the k-th come too late.
    found = 0;
    for (size_t at = 0; at < n && from_key <= kNanKey<T>; at += kChunk) {
      if (room - found < kChunk) {
        const Rank<Key<T>> rank = rank_of<Key<T>>(keys, split<order>(values, found, least, end, keys).within, k, least, end, keys);
        found = keep<order>(from, values, found, rank, from, values);
        from_key = rank.key + 1;
        high = end;
      }
      found += filter<order>(u, at, std::min(n, at + kChunk), from_key, from + found, values + found);
    }
    if (found >= k) break;
    if (from_key <= least) {  // fewer than k may be chosen
      memcpy(index, from, found * sizeof(Index));
      memcpy(value, values, found * sizeof(T));
      return found;
    }
    if (tied) {
      tied = false;
      // All found are chosen, and the first of those that tie below them.
      const size_t last = behind<order>(u, n, low, k - found);
      if (last <= n) {
        const size_t chosen = filter<order>(u, 0, last, low, index, value), rest = size_t(std::lower_bound(from, from + found, Index(last)) - from);
        memcpy(index + chosen, from + rest, (found - rest) * sizeof(Index));
        memcpy(value + chosen, values + rest, (found - rest) * sizeof(T));
        return k;
      }
    }
    // The sample misled: count all keys.
    from_key = low = std::max(least, slice_edge<order>(u, n, k));
    high = end;
  }
  if (found == k) {
    memcpy(index, from, k * sizeof(Index));
    memcpy(value, values, k * sizeof(T));
    return k;
  }
  Split band = split<order>(values, found, low, high, keys);
  if (band.above >= k) { band = split<order>(values, found, low, end, keys); high = end; }
  keep<order>(from, values, found, rank_of<Key<T>>(keys, band.within, k - band.above, low, high, keys), index, value);
  return k;
}

namespace {

constexpr size_t kLanes = PartialSums::kLanes;

// A block's partial sums are kept in T: so few values lose nothing that matters, and twice as many fit a register.
template <Order order, bool all, class T>
TW_CLONES void add_block(const T* __restrict u, size_t n, Key<T> least, T scale, T shift, double (*__restrict lanes)[kLanes]) {
  T sum[kLanes] = {}, squares[kLanes] = {};
  Key<T> count[kLanes] = {};
  const auto add = [&](size_t i, size_t j) __attribute__((always_inline)) {
    const Key<T> key = loose_key<order>(u[i]);
    T v = float_of(key) * scale;
    if constexpr (!all) {
      const Key<T> in = Key<T>(0) - Key<T>(key >= least);
      v = float_of(Key<T>(bits_of(v - shift) & in));
      count[j] -= in;
    }
    sum[j] += v;
    squares[j] += v * v;
  };
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) for (size_t j = 0; j < kLanes; ++j) add(i + j, j);
  for (size_t j = 0; i + j < n; ++j) add(i + j, j);
  for (size_t j = 0; j < kLanes; ++j) { lanes[0][j] += double(count[j]); lanes[1][j] += double(sum[j]); lanes[2][j] += double(squares[j]); }
}
template <Order order, class T> TW_CLONES size_t count_block(const T* u, size_t n, Key<T> least) {
  Key<T> count = 0;
  for (size_t i = 0; i < n; ++i) count += loose_key<order>(u[i]) >= least;
  return size_t(count);
}
template <Order order, class T> TW_CLONES Key<T> largest_of(const T* u, size_t n) {
  Key<T> top = 0;
  for (size_t i = 0; i < n; ++i) { const Key<T> key = loose_key<order>(u[i]); top = key > top ? key : top; }
  return top;
}

}  // namespace

Sums PartialSums::total() const {
  double s[3] = {};
  for (int part = 0; part < 3; ++part) for (double lane : lanes[part]) s[part] += lane;
  return {s[0], s[1], s[2]};
}
template <Order order, class T> void add_sums(const T* u, size_t n, Key<T> least, double scale, double shift, PartialSums& partial) {
  for (size_t at = 0; at < n; at += kSumBlock) {
    const size_t m = std::min(kSumBlock, n - at);
    if (least == 0 && shift == 0) {
      add_block<order, true>(u + at, m, least, T(scale), T(shift), partial.lanes);
      partial.lanes[0][0] += double(m);
    } else add_block<order, false>(u + at, m, least, T(scale), T(shift), partial.lanes);
  }
}
template <Order order, class T> size_t count_from(const T* u, size_t n, Key<T> least) {
  size_t count = 0;
  for (size_t at = 0; at < n; at += kChunk) count += count_block<order>(u + at, std::min(kChunk, n - at), least);
  return count;
}
template <Order order, class T> Key<T> largest_key(const T* u, size_t n) { return std::min<Key<T>>(largest_of<order>(u, n), kNanKey<T>); }

#define TW_INSTANCES(order, T, Index)                                                                                        \
  template size_t filter<order, T, Index>(const T*, size_t, size_t, Key<T>, Index*, T*);                                     \
  template size_t filter<order, T, Index>(const Index*, const T*, size_t, Key<T>, Index*, T*);                               \
  template size_t best<order, T, Index>(Index*, T*, size_t, size_t, Index*, T*);                                            \
  template size_t top_k<order, T, Index>(const T*, size_t, size_t, Index*, T*);
#define TW_INSTANCES_OF(order)                                                                                               \
  TW_INSTANCES(order, float, uint32_t) TW_INSTANCES(order, float, uint64_t) TW_INSTANCES(order, double, uint32_t)            \
  TW_INSTANCES(order, double, uint64_t)                                                                                      \
  template Split split<order, float>(const float*, size_t, uint32_t, uint32_t, uint32_t*);                                   \
  template Split split<order, double>(const double*, size_t, uint64_t, uint64_t, uint64_t*);                                 \
  template size_t sample<order, float>(const float*, size_t, uint32_t*);                                                     \
  template size_t sample<order, double>(const double*, size_t, uint64_t*);                                                   \
  template void add_sums<order, float>(const float*, size_t, uint32_t, double, double, PartialSums&);\
  template size_t count_from<order, float>(const float*, size_t, uint32_t);                                          \
  template void add_sums<order, double>(const double*, size_t, uint64_t, double, double, PartialSums&);\
  template size_t count_from<order, double>(const double*, size_t, uint64_t);                                        \
  template uint32_t largest_key<order, float>(const float*, size_t);                                                         \
  template uint64_t largest_key<order, double>(const double*, size_t);
TW_INSTANCES_OF(Order::magnitude)
TW_INSTANCES_OF(Order::positive)
TW_INSTANCES_OF(Order::negative)
template Rank<uint32_t> rank_of<uint32_t>(const uint32_t*, size_t, size_t, uint32_t, uint32_t, uint32_t*);
template Rank<uint64_t> rank_of<uint64_t>(const uint64_t*, size_t, size_t, uint64_t, uint64_t, uint64_t*);

}  // namespace thinwire
