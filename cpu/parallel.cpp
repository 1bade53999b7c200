#include "thinwire/parallel.h"

#include <algorithm>

namespace thinwire {
namespace {

constexpr size_t kWorthwhile = 32768;   // values a thread: below, waking one costs more than it saves

// Values per piece: equal shares of whole granules; 0 where one thread does it all.
size_t share(size_t granule, size_t n, int threads) {
  if (threads < 2 || granule == 0 || n < 2 * kWorthwhile) return 0;
  const size_t pieces = std::min<size_t>(size_t(threads), n / kWorthwhile);
  return ((n + pieces - 1) / pieces + granule - 1) / granule * granule;
}
size_t accumulator_size(int dtype) { return dtype <= kE5M2 && dtype != kF64 ? 4 : kItemSize[dtype]; }

}  // namespace

size_t encode_parallel(const Codec& codec, const void* params, const void* x, size_t n, int dtype, uint8_t* wire, uint64_t seed, uint64_t first,
                       void* residual, int threads) {
  const size_t piece = share(codec.granule(params), n, threads);
  if (piece == 0) return codec.encode(params, x, n, dtype, wire, seed, first, residual);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (size_t at = 0; at < n; at += piece) {
    codec.encode(params, static_cast<const uint8_t*>(x) + at * kItemSize[dtype], std::min(piece, n - at), dtype,
                 wire + codec.bound(params, at, dtype), seed, first + at,
                 residual ? static_cast<uint8_t*>(residual) + at * accumulator_size(dtype) : nullptr);
  }
  return codec.bound(params, n, dtype);
}

int decode_parallel(const Codec& codec, const void* params, const uint8_t* wire, size_t bytes, void* y, size_t n, int dtype, int mode, double scale,
                    int threads) {
  const size_t piece = share(codec.granule(params), n, threads);
  if (piece == 0 || bytes != codec.bound(params, n, dtype)) return codec.decode(params, wire, bytes, y, n, dtype, mode, scale);
  const size_t size = mode == kSet ? kItemSize[dtype] : accumulator_size(dtype);
  int bad = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(| : bad)
  for (size_t at = 0; at < n; at += piece) {
    const size_t m = std::min(piece, n - at), begin = codec.bound(params, at, dtype);
    bad |= codec.decode(params, wire + begin, codec.bound(params, at + m, dtype) - begin, static_cast<uint8_t*>(y) + at * size, m, dtype, mode, scale);
  }
  return bad;
}

}  // namespace thinwire
