// Encoding and decoding by several threads: pieces of whole granules, whose place in the wire is known beforehand.
#pragma once
#include "thinwire/codec.h"

namespace thinwire {

size_t encode_parallel(const Codec& codec, const void* params, const void* x, size_t n, int dtype, uint8_t* wire, uint64_t seed, uint64_t first,
                       void* residual, int threads);
int decode_parallel(const Codec& codec, const void* params, const uint8_t* wire, size_t bytes, void* y, size_t n, int dtype, int mode, double scale,
                    int threads);

// One term of a sum: a wire of n values.
struct Term {
  const Codec* codec;
  const void* params;
  const uint8_t* wire;
  size_t bytes;
  int dtype;
  double scale;
};
// y = the sum of the terms, in their order, y an accumulator of all their dtypes: as kAccumulate and kAdd would give it one term after another, but a piece of
// y that stays in cache at a time. -1 if one of them is no wire of n values.
int sum_terms(const Term* terms, size_t count, void* y, size_t n, bool streamed, int threads);

}  // namespace thinwire
