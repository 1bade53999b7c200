// Encoding and decoding by several threads: pieces of whole granules, whose place in the wire is known beforehand.
#pragma once
#include "thinwire/codec.h"

namespace thinwire {

size_t encode_parallel(const Codec& codec, const void* params, const void* x, size_t n, int dtype, uint8_t* wire, uint64_t seed, uint64_t first,
                       void* residual, int threads);
int decode_parallel(const Codec& codec, const void* params, const uint8_t* wire, size_t bytes, void* y, size_t n, int dtype, int mode, double scale,
                    int threads);

}  // namespace thinwire
