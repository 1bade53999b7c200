#include "thinwire/parallel.h"

#include <algorithm>
#include <numeric>

#include "scratch.h"
#include "thinwire/array.h"

namespace thinwire {
namespace {

constexpr size_t kWorthwhile = 32768;   // values a thread: below, waking one costs more than it saves

// Values per piece: equal shares of whole granules; 0 where one thread does it all.
size_t share(size_t granule, size_t n, int threads) {
  if (threads < 2 || granule == 0 || n < 2 * kWorthwhile) return 0;
  const size_t pieces = std::min<size_t>(size_t(threads), n / kWorthwhile);
  return ((n + pieces - 1) / pieces + granule - 1) / granule * granule;
}

constexpr size_t kSumPiece = 32768;      // values of an accumulator that stay in a core's L2 beside the wires

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

int sum_terms(const Term* terms, size_t count, void* y, size_t n, bool streamed, int threads) {
  size_t piece = n;
  for (size_t t = 0, common = 1; t < count; ++t) {
    const Term& term = terms[t];
    const size_t granule = term.codec->granule(term.params);
    if (granule == 0 || term.bytes != term.codec->bound(term.params, n, term.dtype)) { piece = n; break; }
    common = std::lcm(common, granule);
    piece = (kSumPiece + common - 1) / common * common;
  }
  int bad = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(| : bad) if (threads > 1 && piece < n)
  for (size_t at = 0; at < n; at += piece) {
    const size_t m = std::min(piece, n - at), size = count ? accumulator_size(terms->dtype) : 0;
    Scratch scratch;
    uint8_t* const place = static_cast<uint8_t*>(y) + at * size;
    uint8_t* const room = streamed && piece < n ? scratch.take<uint8_t>(m * size + kPage) : nullptr;
    uint8_t* const to = room ? opposite(room, place) : place;
    for (size_t t = 0; t < count; ++t) {
      const Term& term = terms[t];
      const size_t begin = at ? term.codec->bound(term.params, at, term.dtype) : 0;
      const size_t end = m < n ? term.codec->bound(term.params, at + m, term.dtype) : term.bytes;
      bad |= term.codec->decode(term.params, term.wire + begin, end - begin, to, m, term.dtype, t ? kAdd : kAccumulate, term.scale);
    }
    if (room) copy_out(place, to, m * size);
  }
  return bad;
}

}  // namespace thinwire
