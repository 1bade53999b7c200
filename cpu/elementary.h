// Logarithm, exponential and gamma functions of doubles by arithmetic alone: a C library's may differ in the last bit between machines, and what is
// selected must not. Relative errors are a few 2^-52, of the gamma functions a few 2^-45.
#pragma once
#include <cmath>

#include "thinwire/numeric.h"

namespace thinwire {

constexpr double kLn2 = 0x1.62e42fefa39efp-1, kLn2Low = 0x1.abc9e3b39803fp-56;

// ln x, x > 0 and finite: x = m 2^e with m near 1, ln m = 2 artanh z for z = (m - 1) / (m + 1).
inline double log_of(double x) {
  int e = 0;
  double m = 2 * std::frexp(x, &e);
  --e;
  if (m > 1.4142135623730951) { m *= 0.5; ++e; }
  const double z = (m - 1) / (m + 1), w = z * z;
  double s = 0;
  for (int i = 23; i >= 3; i -= 2) s = (s + 1.0 / i) * w;
  return e * kLn2 + (2 * z * (1 + s) + e * kLn2Low);
}
inline double exp_of(double x) {
  if (!(x > -745)) return x != x ? x : 0;
  if (x > 709.7) return HUGE_VAL;
  const double k = std::floor(x / kLn2 + 0.5), r = (x - k * kLn2) - k * kLn2Low;
  double s = 1;
  for (int i = 16; i >= 1; --i) s = 1 + s * r / i;
  return std::ldexp(s, int(k));
}
// ln Gamma(a), a > 0: Stirling's series, from 10 on.
inline double log_gamma(double a) {
  double product = 1;
  for (; a < 10; ++a) product *= a;
  const double w = 1 / (a * a), series = ((((w / 1188 - 1.0 / 1680) * w + 1.0 / 1260) * w - 1.0 / 360) * w + 1.0 / 12) / a;
  return (a - 0.5) * log_of(a) - a + 0.91893853320467274 + series - log_of(product);
}
// The regularized upper incomplete gamma function Q(a, z), by the series of P below a + 1, else by Lentz's continued fraction.
inline double upper_gamma(double a, double z) {
  constexpr int steps = 1000;
  if (!(z > 0)) return 1;
  const double front = exp_of(a * log_of(z) - z - log_gamma(a));
  if (z < a + 1) {
    double term = 1 / a, sum = term;
    for (int i = 1; i < steps && term > sum * 1e-17; ++i) sum += term *= z / (a + i);
    return 1 - front * sum;
  }
  double b = z + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int i = 1; i < steps; ++i) {
    const double an = i * (a - i);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    const double step = c * d;
    h *= step;
    if (std::fabs(step - 1) < 1e-16) break;
  }
  return front * h;
}
// The z at which Q(a, z) is q, 0 < q < 1, by bisection.
inline double upper_gamma_inverse(double a, double q) {
  double low = 0, high = a + 1;
  while (upper_gamma(a, high) > q) { low = high; high *= 2; }
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (upper_gamma(a, middle) > q ? low : high) = middle;
  }
  return high;
}

}  // namespace thinwire
