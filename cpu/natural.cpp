#include "thinwire/natural.h"

#include "block_loop.h"

TW_BLOCK_CODEC(natural_blocks, Natural)

namespace thinwire {
namespace {

// What was rounded up to 2^16 is no float16: as one it is the largest, not an infinity.
TW_CLONES void saturate(uint16_t* y, size_t n) {
  for (size_t j = 0; j < n; ++j) y[j] = uint16_t(y[j] - ((y[j] & 0x7fff) == 0x7c00));
}
int decode_finite(const void* params, const uint8_t* w, size_t bytes, void* y, size_t n, int dtype, int mode, double scale) {
  if (dtype != kF16 || mode != kSet) return decode(params, w, bytes, y, n, dtype, mode, scale);
  if (bytes != bound(params, n, dtype)) return -1;
  uint16_t* const to = static_cast<uint16_t*>(y);
  for (size_t at = 0, m; at < n; at += m) {      // a piece at a time: it is still in cache
    m = std::min(granule(params), n - at);
    const size_t size = bound(params, m, dtype);
    decode(params, w, size, to + at, m, dtype, mode, scale);
    saturate(to + at, m);
    w += size;
  }
  return 0;
}

}  // namespace
extern const Codec natural_row;
const Codec natural_row = {"natural", sizeof(Params), kFloats, granule, bound, encode, decode_finite};
}  // namespace thinwire
