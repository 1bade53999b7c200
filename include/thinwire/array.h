// Operations on whole arrays that collectives need beside the codecs. Accumulator types: see Mode in codec.h.
#pragma once
#include <cstddef>
#include <cstdint>

namespace thinwire {

// True if a float array holds an infinity or a NaN; false for integers.
bool any_nonfinite(const void* x, size_t n, int dtype);
// y[i] = acc[i] / divisor, narrowed from the accumulator to dtype with one rounding. y may be acc where the types are the same.
void finish_sum(const void* acc, void* y, size_t n, int dtype, double divisor);
// CRC-32C (Castagnoli) of bytes.
uint32_t crc32c(const uint8_t* bytes, size_t n);

}  // namespace thinwire
