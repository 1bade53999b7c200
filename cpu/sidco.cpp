#include <algorithm>

#include "candidates.h"
#include "elementary.h"
#include "sparse.h"

namespace thinwire {
namespace {

constexpr double kFirst = 0.25;      // the part of the values that the first of several stages lets through

// The threshold that a part q of values with these moments exceeds.
double exponential(const Sums& s, double q) { return -s.sum / s.count * log_of(q); }
// Generalized Pareto, fitted by mean and variance.
double pareto(const Sums& s, double q) {
  const double mean = s.sum / s.count, variance = s.squares / s.count - mean * mean, odds = mean * mean / variance;
  const double shape = 0.5 * (odds - 1), scale = 0.5 * mean * (odds + 1), log_q = log_of(q);
  return std::fabs(shape * log_q) < 1e-9 ? -scale * log_q : scale / shape * (1 - exp_of(shape * log_q));
}
// Gamma, fitted by mean and mean logarithm (the closed form near the maximum of likelihood).
double gamma(double mean, double mean_log, double q) {
  const double s = log_of(mean) - mean_log;
  if (!(s > 1e-4)) return mean;        // hardly any spread
  const double shape = (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
  return mean / shape * upper_gamma_inverse(shape, q);
}

// The sum of ln(|u| * scale): exponents are added, mantissas multiplied, a lane each. What is 0 counts as the smallest normal number.
template <class T> TW_CLONES void add_logs(const T* __restrict u, size_t n, T scale, double* __restrict product, double* __restrict exponents) {
  using R = Real<T>;
  constexpr size_t lanes = PartialSums::kLanes;
  constexpr Key<T> least = Key<T>(1) << R::mantissa, mantissa = least - 1, one = Key<T>(R::bias) << R::mantissa;
  T p[lanes];
  Key<T> e[lanes] = {};
  for (size_t j = 0; j < lanes; ++j) p[j] = 1;
  const auto add = [&](size_t i, size_t j) __attribute__((always_inline)) {
    const Key<T> scaled = bits_of(T(float_of(magnitude_bits(u[i])) * scale)), key = scaled > least ? scaled : least;
    p[j] *= float_of(Key<T>((key & mantissa) | one));
    e[j] += key >> R::mantissa;
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) for (size_t j = 0; j < lanes; ++j) add(i + j, j);
  for (size_t j = 0; i + j < n; ++j) add(i + j, j);
  for (size_t j = 0; j < lanes; ++j) {
    const uint64_t bits = bits_of(product[j] * double(p[j]));
    product[j] = float_of((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
    exponents[j] += double(e[j]) + (double(bits >> 52) - 1023);
  }
}
struct Logs {
  static constexpr size_t kLanes = PartialSums::kLanes;
  double product[kLanes], exponents[kLanes] = {}, count = 0;
  Logs() { std::fill(product, product + kLanes, 1.0); }
  template <class T> void add(const T* u, size_t n, double scale) {
    // 64 mantissas a lane: their product stays below 2^64
    for (size_t at = 0; at < n; at += kSumBlock) add_logs(u + at, std::min(kSumBlock, n - at), T(scale), product, exponents);
    count += double(n);
  }
  template <class T> double mean() const {
    double sum = 0, exponent = 0;
    for (size_t j = 0; j < kLanes; ++j) { sum += log_of(product[j]); exponent += exponents[j]; }
    return (sum + (exponent - count * Real<T>::bias) * kLn2) / count;
  }
};

struct Sidco {
  enum Variant : int32_t { kExponential, kPareto, kGammaPareto };
  struct __attribute__((packed, aligned(4))) Params { double ratio; int32_t variant, stages, fallback, codec; uint8_t then[64]; };

  static LeftOut left_out(const Params&) { return LeftOut::kSmaller; }
  static size_t capacity(const Params& p, size_t n) { return p.fallback ? std::min(n, 2 * wanted(p.ratio, 0, n)) : n; }

  template <class T, class Index> static size_t select(const Params& p, const T*, const T* u, size_t n, uint64_t, Index* index, T* value) {
    constexpr Order order = Order::magnitude;
    if (n == 0) return 0;
    const size_t k = wanted(p.ratio, 0, n);
    // A ratio above the first stage's leaves nothing to do in stages.
    const int stages = p.ratio < kFirst ? p.stages : 1;
    const double first = stages > 1 ? kFirst : p.ratio, later = stages > 1 ? exp_of(log_of(p.ratio / kFirst) / (stages - 1)) : 1;
    // Candidates for any selection that would do, and for the sums of all stages but the first two.
    Candidates<order, T, Index> list(u, n, std::max(2 * k, stages > 2 ? size_t(1.1 * kFirst * later * double(n)) : 0));
    if (!list.good()) return kNoMemory;

    const bool logs = p.variant == kGammaPareto;
    const auto fit = [&](const Sums& s, const Logs* l, double q) {
      if (p.variant == kExponential) return exponential(s, q);
      return l ? gamma(s.sum / s.count, l->mean<T>(), q) : pareto(s, q);
    };
    Logs of_sample, of_all;
    if (logs) of_sample.add(list.sampled(), list.sample_size(), list.scale());
    PartialSums sampled;
    add_sums<order>(list.sampled(), list.sample_size(), 0, list.scale(), 0, sampled);
    const double near = stages == 1 ? 0 : fit(sampled.total(), logs ? &of_sample : nullptr, first);

    double threshold = 0;              // in units of 1 / scale
    Key<T> least = 0;
    for (int stage = 0; stage < stages; ++stage) {
      const Sums s = stage ? list.sums(least, threshold) : list.scan(near, [&](const T* v, size_t m) { if (logs) of_all.add(v, m, list.scale()); });
      if (s.count == 0) break;
      if (!finite(s.squares)) { least = Real<T>::infinity; break; }
      threshold += fit(s, logs && stage == 0 ? &of_all : nullptr, stage ? later : first);
      least = key_above<T>(threshold / list.scale());
    }
    if (p.fallback) {
      const size_t count = list.count(least, 2 * k);
      if (2 * count < k || count > 2 * k) return top_k<order>(u, n, k, index, value);
    }
    return list.filter(least, index, value);
  }
};

}  // namespace
}  // namespace thinwire

TW_SPARSE_CODEC(sidco, Sidco)
