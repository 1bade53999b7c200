#include "thinwire/hadamard.h"

#include <numeric>

#include "block_loop.h"

namespace thinwire {
namespace {

using Params = Hadamard::Params;

// What a call works in. It stays in cache, and a thread's stack might be too small for it.
template <class C> struct Scratch {
  alignas(64) C values[Hadamard::kMaxPiece];     // a piece, rotated
  alignas(64) C input[Hadamard::kMaxRun];        // a run in C, where the array isn't
  alignas(64) uint16_t there[Hadamard::kMaxRun], back[Hadamard::kMaxRun];
};
template <class C> Scratch<C>& scratch() {
  static thread_local Scratch<C> s;
  return s;
}

// The inner codec, its parameters aligned.
struct Inner {
  const Codec& codec;
  alignas(16) uint8_t params[sizeof(Params::inner)];
  explicit Inner(const Params& p) : codec(*kCodecs[p.codec]) { memcpy(params, p.inner, sizeof params); }
  // Whole runs and whole granules: this many values are rotated, then coded.
  size_t piece(const Params& p) const { return std::lcm(size_t(p.block), codec.granule(params)); }
};
template <class C> constexpr int kDtype = std::is_same_v<C, double> ? kF64 : kF32;

// Where rotations take values from, and give them to.
template <class C> struct Load { const C* v; TW_HD C operator()(size_t j) const { return v[j]; } };
template <class C> struct LoadTimes {
  const C* u;
  const uint16_t* there;
  TW_HD C operator()(size_t j) const { return u[j] * Hadamard::multiplier<C>(there[j]); }
};
template <class C, class Out> struct PutTimes {
  const uint16_t* back;
  const Out& out;
  size_t at;
  TW_HD void operator()(size_t j, C v) const { out(at + j, v * Hadamard::multiplier<C>(back[j])); }
};
// Rotates the runs of an array, in order: all but the last share their multipliers. `outside` is memory that the caller is about to
// read or write at `item` bytes a value of the run; it's on its way while the distances from kRow on are worked out in cache.
template <class C> struct Rotation {
  const Params& p;
  Scratch<C>& s;
  size_t ready = 0;                              // length of the run that the multipliers are for

  TW_HD void prepare(size_t m) {
    if (m != ready) Hadamard::multipliers<C>(p.key, m, s.there, s.back);
    ready = m;
  }
  static TW_HD void passes(C* v, size_t n, uintptr_t outside, size_t item) {
    constexpr size_t part = 16 * Hadamard::kRow;
    if (n < part) { Hadamard::passes<Hadamard::kRow>(v, n); return; }
    for (size_t at = 0; at < n; at += part) {
      for (size_t byte = at * item; byte < (at + part) * item; byte += 64) __builtin_prefetch(reinterpret_cast<const void*>(outside + byte));
      Hadamard::pass<16, Hadamard::kRow>(v + at, part);
    }
    Hadamard::passes<part>(v, n);
  }
  // u[0..m), a run, rotated to v.
  TW_HD void forward(const C* u, size_t m, C* v, uintptr_t outside, size_t item) {
    prepare(m);
    for (size_t at = 0, size; at < m; at += size) {
      size = Hadamard::cut(m - at);
      Hadamard::rows<C>(size, LoadTimes<C>{u + at, s.there + at}, Set<C>{v + at});
      passes(v + at, size, outside + at * item, item);
      if (!finite(v[at])) for (size_t j = at; j < at + size; ++j) v[j] = nan<C>();
    }
  }
  // out(j, value j) of the run that v[0..m) is the rotation of; v is overwritten.
  template <class Out> TW_HD void backward(C* v, size_t m, const Out& out, const void* outside, size_t item) {
    prepare(m);
    for (size_t at = 0, size; at < m; at += size) {
      size = Hadamard::cut(m - at);
      passes(v + at, size, reinterpret_cast<uintptr_t>(outside) + at * item, item);
      Hadamard::rows<C>(size, Load<C>{v + at}, PutTimes<C, Out>{s.back + at, out, at});
    }
  }
};

template <class C>
TW_HD size_t encode_runs(const Params& p, const void* x, size_t n, int dtype, uint8_t* wire, uint64_t seed, uint64_t first, C* residual) {
  const Inner inner(p);
  const size_t block = size_t(p.block), piece = inner.piece(p), item = kItemSize[dtype];
  const bool direct = !residual && item == sizeof(C);
  Scratch<C>& s = scratch<C>();
  Rotation<C> rotation{p, s};
  // The run from x[at] on, in C and with what was lost before.
  const auto load = [&](size_t at, size_t m) __attribute__((always_inline)) {
    widen_block(x, dtype, at, m, s.input);
    if (residual) for (size_t j = 0; j < m; ++j) s.input[j] += residual[at + j];
  };
  uint8_t* const start = wire;
  for (size_t done = 0; done < n; done += piece) {
    const size_t end = std::min(n, done + piece);
    for (size_t at = done; at < end; at += block) {
      const size_t m = std::min(end - at, block);
      if (!direct) load(at, m);
      const uintptr_t next = reinterpret_cast<uintptr_t>(x) + (at + m) * item;
      rotation.forward(direct ? static_cast<const C*>(x) + at : s.input, m, s.values + (at - done), next, item);
    }
    const size_t bytes = inner.codec.encode(inner.params, s.values, end - done, kDtype<C>, wire, seed, first + done, nullptr);
    if (residual) {
      inner.codec.decode(inner.params, wire, bytes, s.values, end - done, kDtype<C>, kSet, 1);
      for (size_t at = done; at < end; at += block) {
        const size_t m = std::min(end - at, block);
        load(at, m);
        rotation.backward(s.values + (at - done), m, Lost<C>{s.input, residual + at}, residual + at, sizeof(C));
      }
    }
    wire += bytes;
  }
  return size_t(wire - start);
}

template <class C> TW_HD int decode_runs(const Params& p, const uint8_t* wire, void* y, size_t n, int dtype, int mode, C scale) {
  const Inner inner(p);
  const size_t block = size_t(p.block), piece = inner.piece(p);
  Scratch<C>& s = scratch<C>();
  Rotation<C> rotation{p, s};
  C* const to = static_cast<C*>(y);
  for (size_t done = 0; done < n; done += piece) {
    const size_t end = std::min(n, done + piece), bytes = inner.codec.bound(inner.params, end - done, kDtype<C>);
    if (inner.codec.decode(inner.params, wire, bytes, s.values, end - done, kDtype<C>, kSet, 1)) return -1;
    wire += bytes;
    for (size_t at = done; at < end; at += block) {
      const size_t m = std::min(end - at, block);
      C* const v = s.values + (at - done);
      if (mode == kAdd) rotation.backward(v, m, Add<C>{to + at, scale}, to + at, sizeof(C));
      else if (mode == kAccumulate) rotation.backward(v, m, Accumulate<C>{to + at, scale}, to + at, sizeof(C));
      else if (kItemSize[dtype] == sizeof(C)) rotation.backward(v, m, Set<C>{to + at}, to + at, sizeof(C));
      else {
        rotation.backward(v, m, Set<C>{s.input}, static_cast<const uint8_t*>(y) + at * kItemSize[dtype], kItemSize[dtype]);
        store_block(s.input, m, y, dtype, at);
      }
    }
  }
  return 0;
}

TW_CLONES size_t encode_f32(const Params& p, const void* x, size_t n, int dtype, uint8_t* w, uint64_t seed, uint64_t first, float* r) {
  return encode_runs<float>(p, x, n, dtype, w, seed, first, r);
}
TW_CLONES size_t encode_f64(const Params& p, const void* x, size_t n, int dtype, uint8_t* w, uint64_t seed, uint64_t first, double* r) {
  return encode_runs<double>(p, x, n, dtype, w, seed, first, r);
}
TW_CLONES int decode_f32(const Params& p, const uint8_t* w, void* y, size_t n, int dtype, int mode, float scale) {
  return decode_runs<float>(p, w, y, n, dtype, mode, scale);
}
TW_CLONES int decode_f64(const Params& p, const uint8_t* w, void* y, size_t n, int dtype, int mode, double scale) {
  return decode_runs<double>(p, w, y, n, dtype, mode, scale);
}

size_t granule(const void* params) {
  const Params& p = *static_cast<const Params*>(params);
  return Inner(p).piece(p);
}
size_t bound(const void* params, size_t n, int dtype) {
  const Inner inner(*static_cast<const Params*>(params));
  return inner.codec.bound(inner.params, n, dtype == kF64 ? kF64 : kF32);
}
size_t encode(const void* params, const void* x, size_t n, int dtype, uint8_t* w, uint64_t seed, uint64_t first, void* r) {
  const Params& p = *static_cast<const Params*>(params);
  if (dtype == kF64) return encode_f64(p, x, n, dtype, w, seed, first, static_cast<double*>(r));
  return encode_f32(p, x, n, dtype, w, seed, first, static_cast<float*>(r));
}
int decode(const void* params, const uint8_t* w, size_t bytes, void* y, size_t n, int dtype, int mode, double scale) {
  const Params& p = *static_cast<const Params*>(params);
  if (bytes != bound(params, n, dtype)) return -1;
  if (dtype == kF64) return decode_f64(p, w, y, n, dtype, mode, scale);
  return decode_f32(p, w, y, n, dtype, mode, float(scale));
}

}  // namespace
extern const Codec hadamard_row;
const Codec hadamard_row = {"hadamard", sizeof(Params), kFloats, granule, bound, encode, decode};
}  // namespace thinwire
