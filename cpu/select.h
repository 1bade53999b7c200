// Choosing values by rank or by threshold: what the selection codecs share.
//
// Values are compared by integer keys, the bits of their magnitudes: no NaN escapes a comparison, and every instruction set agrees. All NaNs have the
// one largest key. In a one-sided order zeros and values of the other sign have key 0 and are never chosen.
//
// Entries go to index and value, which need room for kSelectSlack more.
#pragma once
#include <cmath>

#include "thinwire/numeric.h"

namespace thinwire {

enum class Order { magnitude, positive, negative };

template <class T> using Key = typename Real<T>::Bits;
template <class T> constexpr Key<T> kNanKey = Real<T>::infinity + 1;
template <Order order> constexpr unsigned kLeastKey = order == Order::magnitude ? 0 : 1;  // of what may be chosen at all

// The key before NaNs are made equal: it compares with keys up to kNanKey as the key does.
template <Order order, class T> TW_HD Key<T> loose_key(T x) {
  const Key<T> bits = bits_of(x), negative = bits >> (8 * sizeof(T) - 1);
  if constexpr (order == Order::magnitude) return bits & Real<T>::magnitude;
  else if constexpr (order == Order::positive) return bits & (negative - 1);
  else return bits & Real<T>::magnitude & (Key<T>(0) - negative);
}
template <Order order, class T> TW_HD Key<T> key_of(T x) {
  const Key<T> key = loose_key<order>(x);
  return key < kNanKey<T> ? key : kNanKey<T>;
}

// The entries of u[begin..end) whose keys are at least `least`, in order. Gives their count.
template <Order order, class T, class Index> size_t filter(const T* u, size_t begin, size_t end, Key<T> least, Index* index, T* value);
// The same of a list of entries, also in place.
template <Order order, class T, class Index> size_t filter(const Index* from, const T* values, size_t count, Key<T> least, Index* index, T* value);

// The keys of `values` in [low, high), in order, into `keys` (with slack); and how many keys are at least `high`.
struct Split { size_t within, above; };
template <Order order, class T> Split split(const T* values, size_t count, Key<T> low, Key<T> high, Key<T>* keys);
// The r-th largest of keys in [low, high), 1 <= r <= count; of the keys equal to it, `need` are among the r largest, which are `all` of them or not.
// `work` has room for count keys; it may be `keys`.
template <class K> struct Rank { K key; size_t need; bool all; };
template <class K> Rank<K> rank_of(const K* keys, size_t count, size_t r, K low, K high, K* work);

// Keys of a sample of u, at places that depend on n alone: gives their count, no more than kMostSampled. All of an array shorter than kLeastSampled.
constexpr size_t kMostSampled = 8192 * 16, kLeastSampled = 8192;
template <Order order, class T> size_t sample(const T* u, size_t n, Key<T>* keys);

// The k entries of u with the largest keys (fewer where only fewer may be chosen), ascending; the lower index wins ties. Gives their count, or kNoMemory.
template <Order order, class T, class Index> size_t top_k(const T* u, size_t n, size_t k, Index* index, T* value);

// The same of a list of entries, which may be overwritten: index and value may be those of the list.
template <Order order, class T, class Index> size_t best(Index* from, T* values, size_t count, size_t k, Index* index, T* value);

// The least key of a value that is not less than t, of one that is greater than t: infinity's where no finite value is, and for a NaN.
template <class T> Key<T> key_from(double t) {
  if (!(t <= double(float_of(Real<T>::largest)))) return Real<T>::infinity;
  if (!(t > 0)) return 0;
  const T near = T(t);
  return bits_of(near) + (double(near) < t);
}
template <class T> Key<T> key_above(double t) {
  if (!(t < double(float_of(Real<T>::largest)))) return Real<T>::infinity;
  if (t < 0) return 0;
  const T near = T(t);
  return magnitude_bits(near) + (double(near) <= t);
}

// --- sums in a fixed order: the same for every instruction set ---

// Of the magnitudes a (in a one-sided order 0 for the other sign) of values with keys of at least `least`: their count, and the sums of
// v = a * scale - shift and of v * v, where scale is a power of two. A multiple of kSumBlock values may be followed by more.
struct Sums { double count, sum, squares; };
struct PartialSums {
  static constexpr size_t kLanes = 32;
  double lanes[3][kLanes] = {};
  Sums total() const;
};
constexpr size_t kSumBlock = 2048;
template <Order order, class T> void add_sums(const T* u, size_t n, Key<T> least, double scale, double shift, PartialSums& partial);

template <Order order, class T> size_t count_from(const T* u, size_t n, Key<T> least);
template <Order order, class T> Key<T> largest_key(const T* u, size_t n);

// A power of two that takes a magnitude into [1, 2); a normal number, so that the smallest and largest miss it.
template <class T> TW_HD T reciprocal(Key<T> magnitude) {
  const Key<T> exponent = magnitude >> Real<T>::mantissa, least = 1, inverse = 2 * Real<T>::bias - exponent;
  return float_of(Key<T>((exponent < Key<T>(2 * Real<T>::bias) ? inverse : least) << Real<T>::mantissa));
}

// How many entries parameters ask for: k, or ratio * n, to the nearest, ties to even, where k is 0; no more than n, and at least one of something.
inline size_t wanted(double ratio, int64_t k, size_t n) {
  const double part = std::rint(ratio * double(n));
  const size_t count = k > 0 ? size_t(k) : part < 1 ? 1 : size_t(part);
  return count < n ? count : n;
}

}  // namespace thinwire
