// Operations on whole arrays that collectives need beside the codecs. Accumulator types: see Mode in codec.h.
#pragma once
#include <cstddef>
#include <cstdint>

namespace thinwire {

// True if a float array holds an infinity or a NaN; false for integers.
bool any_nonfinite(const void* x, size_t n, int dtype);
// y[i] = acc[i] / divisor, narrowed from the accumulator to dtype with one rounding. y may be acc where the types are the same.
void finish_sum(const void* acc, void* y, size_t n, int dtype, double divisor);
// Bytes from which on an array is taken to be out of cache.
constexpr size_t kMany = size_t(1) << 22;
// Zeros, written past the caches where there are many: a plain store would read each line from memory first, which takes 2.5 times as long.
void clear(void* memory, size_t bytes);
// Copies what is in cache to an array that is not, past the caches. The two share no memory. `from` should come from `opposite`.
void copy_out(void* to, const void* from, size_t bytes);
// A place in a buffer that has kPage bytes more than will be used, half a page off `to`: a load that agrees with an earlier store in its lowest 12 bits
// waits for it, and such stores take so long that copying was 50 times slower where the two happened to lie so.
constexpr size_t kPage = 4096;
inline uint8_t* opposite(uint8_t* buffer, const void* to) {
  const size_t place = (reinterpret_cast<uintptr_t>(to) + kPage / 2 - reinterpret_cast<uintptr_t>(buffer)) % kPage;
  return buffer + place / 64 * 64;
}
// CRC-32C (Castagnoli) of bytes.
uint32_t crc32c(const uint8_t* bytes, size_t n);

}  // namespace thinwire
