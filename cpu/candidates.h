// Thresholds that follow from sums over an array, found in one pass over it: beside the first sums, the pass collects what later ones may need.
#pragma once
#include <algorithm>
#include <cmath>

#include "scratch.h"
#include "select.h"

namespace thinwire {

// What a pass collects of magnitudes a = |u| (in a one-sided order 0 for the other sign): the sums of a * scale over all; those of a * scale - shift from
// margin_high on; the magnitudes in [margin_low, margin_high); and the entries from `low` on. Keys that no value has leave the latter out.
template <class T, class Index> struct Pass {
  double scale, shift;
  Key<T> low, margin_low, margin_high;
  PartialSums all, above;
  size_t found = 0, within = 0;
  Index* index = nullptr;      // with slack, as the next two
  T* value = nullptr;
  T* margin = nullptr;
};
// Of u[begin..end), `begin` a multiple of kSumBlock.
template <Order order, class T, class Index> void collect(const T* u, size_t begin, size_t end, Pass<T, Index>& pass);

// Sums, counts and filters of u[0..n), as in select.h. What they may look at instead of u, after scan():
//   candidates   by a sample, the `rank` largest values or a few more: all that higher thresholds need
//   the margin   the values whose magnitudes lie within 1.5 % of one named beforehand, and the sums above: all that sums from there on need
// Where the sample misled they look at u; the results are the same but for the rounding of the sums.
template <Order order, class T, class Index> class Candidates {
 public:
  Candidates(const T* u, size_t n, size_t rank) : u_(u), n_(n) {
    sampled_ = scratch_.take<T>(kMostSampled);
    if (!sampled_ || !look(rank)) return;
    room_ = (aim_ == kNone ? 0 : std::min(n, 2 * rank + kSpare)) + kChunk;
    margin_room_ = n / 8 + kChunk;
    pass_.index = scratch_.take<Index>(room_ + kSelectSlack);
    pass_.value = scratch_.take<T>(room_ + kSelectSlack);
    pass_.margin = scratch_.take<T>(margin_room_ + kSelectSlack);
    good_ = pass_.index && pass_.value && pass_.margin;
  }
  bool good() const { return good_; }             // or there was no memory
  double scale() const { return scale_; }         // a power of two that takes the sample's largest magnitude near 1: sums are of a * scale - shift
  const T* sampled() const { return sampled_; }   // the sample: magnitudes, 0 for the other sign
  size_t sample_size() const { return sample_size_; }

  // The pass: sums of all. `near`: the magnitude, times scale, from about which on sums will be asked for next, 0 for none. also(v, m): called for each
  // piece of the array, while it is in cache.
  template <class Also> Sums scan(double near, const Also& also) {
    const bool margin = finite(near) && near > 0;
    pass_.scale = scale_;
    pass_.shift = near;
    pass_.low = aim_;
    pass_.margin_low = margin ? std::max<Key<T>>(key_from<T>(near * (1 - kMargin) / scale_), kLeastKey<order>) : kNone;
    pass_.margin_high = margin ? key_from<T>(near * (1 + kMargin) / scale_) : kNone;
    for (size_t at = 0; at < n_; at += kChunk) {
      const size_t m = std::min(kChunk, n_ - at);
      if (room_ - pass_.found < m) pass_.low = kNone;           // the sample misled
      if (margin_room_ - pass_.within < m) pass_.margin_low = kNone;
      collect<order>(u_, at, at + m, pass_);
      also(u_ + at, m);
    }
    low_ = pass_.low;
    return pass_.all.total();
  }
  Sums sums(Key<T> least, double shift) const {
    PartialSums partial;
    if (least >= low_) add_sums<order>(pass_.value, pass_.found, least, scale_, shift, partial);
    else if (least >= pass_.margin_low && least <= pass_.margin_high) {
      add_sums<Order::magnitude>(pass_.margin, pass_.within, least, scale_, shift, partial);
      const Sums above = pass_.above.total();
      const double moved = pass_.shift - shift;
      Sums s = partial.total();
      s.count += above.count;
      s.sum += above.sum + above.count * moved;
      s.squares += above.squares + moved * (2 * above.sum + above.count * moved);
      return s;
    } else add_sums<order>(u_, n_, least, scale_, shift, partial);
    return partial.total();
  }
  Key<T> largest() const { return low_ != kNone && pass_.found ? largest_key<order>(pass_.value, pass_.found) : largest_key<order>(u_, n_); }
  // How many keys there are from `least` on; or some number above `enough`, if that is too few to say.
  size_t count(Key<T> least, size_t enough) const {
    if (least >= low_) return count_from<order>(pass_.value, pass_.found, least);
    return low_ != kNone && pass_.found > enough ? pass_.found : count_from<order>(u_, n_, least);
  }
  size_t filter(Key<T> least, Index* index, T* value) const {
    if (least >= low_) return thinwire::filter<order>(pass_.index, pass_.value, pass_.found, least, index, value);
    return thinwire::filter<order>(u_, 0, n_, least, index, value);
  }

 private:
  static constexpr size_t kChunk = 4 * kSumBlock, kSpare = 65536;
  static constexpr double kMargin = 0.015;
  static constexpr Key<T> kNone = ~Key<T>(0);     // no such threshold

  bool look(size_t rank) {
    Scratch scratch;
    auto* const keys = scratch.take<Key<T>>(kMostSampled);
    auto* const work = scratch.take<Key<T>>(kMostSampled);
    if (!keys || !work) return false;
    sample_size_ = sample<order>(u_, n_, keys);
    memcpy(sampled_, keys, sample_size_ * sizeof(T));
    scale_ = double(reciprocal<T>(largest_key<Order::magnitude>(sampled_, sample_size_)));
    const double expected = double(sample_size_) * (double(rank) / double(n_)), r = expected + 6 * std::sqrt(expected) + 8;
    if (n_ >= kLeastSampled && r < double(sample_size_))
      aim_ = std::max<Key<T>>(kLeastKey<order>, rank_of<Key<T>>(keys, sample_size_, size_t(r), 0, kNanKey<T> + 1, work).key);
    return true;
  }

  Scratch scratch_;
  const T* u_;
  size_t n_, sample_size_ = 0, room_ = 0, margin_room_ = 0;
  T* sampled_;
  double scale_ = 1;
  Key<T> aim_ = kNone, low_ = kNone;              // the least key of candidates to be collected, and of those collected
  Pass<T, Index> pass_ = {1, 0, kNone, kNone, kNone, {}, {}};
  bool good_ = false;
};

}  // namespace thinwire
