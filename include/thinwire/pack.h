// Codes of 1 to 8 bits, packed into planes.
//
// A width is the sum of its binary digits: 3 bits are a plane of 2-bit fields and a plane of 1-bit fields, 7 bits are 4 + 2 + 1.
// The widest plane comes first and holds the lowest bits of each code. A plane of w-bit fields over m codes has
// P = ceil(m * w / 8) bytes; field k (from the low end) of byte j belongs to code j + k * P. So packing is the same operation on
// neighbouring bytes of P-long rows, which vectorizes as it stands. Fields past the last code are 0.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "thinwire/target.h"

namespace thinwire {

constexpr size_t kPackSlack = 8;   // codes past m that pack reads as 0 and unpack may write

TW_HD size_t plane_bytes(unsigned width, size_t m) { return (m * width + 7) / 8; }
TW_HD size_t packed_bytes(unsigned bits, size_t m) {
  size_t bytes = 0;
  for (unsigned w = 8; w; w >>= 1) bytes += bits & w ? plane_bytes(w, m) : 0;
  return bytes;
}

template <unsigned W> TW_HD void pack_plane(const uint8_t* __restrict codes, size_t m, unsigned shift, uint8_t* __restrict plane) {
  constexpr uint8_t mask = uint8_t((1u << W) - 1);
  const size_t P = plane_bytes(W, m);
  for (size_t j = 0; j < P; ++j) {
    uint8_t byte = 0;
    for (unsigned k = 0; k < 8 / W; ++k) byte = uint8_t(byte | (codes[j + k * P] >> shift & mask) << k * W);
    plane[j] = byte;
  }
}
template <unsigned W> TW_HD void unpack_plane(const uint8_t* __restrict plane, size_t m, unsigned shift, uint8_t* __restrict codes) {
  constexpr uint8_t mask = uint8_t((1u << W) - 1);
  const size_t P = plane_bytes(W, m);
  if (shift == 0) {
    for (unsigned k = 0; k < 8 / W; ++k)
      for (size_t j = 0; j < P; ++j) codes[j + k * P] = plane[j] >> k * W & mask;
  } else {
    for (unsigned k = 0; k < 8 / W; ++k)
      for (size_t j = 0; j < P; ++j) codes[j + k * P] = uint8_t(codes[j + k * P] | (plane[j] >> k * W & mask) << shift);
  }
}

// codes has m + kPackSlack bytes; those from m on are set to 0 here.
TW_HD void pack(unsigned bits, uint8_t* __restrict codes, size_t m, uint8_t* __restrict out) {
  memset(codes + m, 0, kPackSlack);
  unsigned shift = 0;
  if (bits & 8) { memcpy(out, codes, m); return; }
  if (bits & 4) { pack_plane<4>(codes, m, shift, out); out += plane_bytes(4, m); shift += 4; }
  if (bits & 2) { pack_plane<2>(codes, m, shift, out); out += plane_bytes(2, m); shift += 2; }
  if (bits & 1) pack_plane<1>(codes, m, shift, out);
}
TW_HD void unpack(unsigned bits, const uint8_t* __restrict in, size_t m, uint8_t* __restrict codes) {
  unsigned shift = 0;
  if (bits & 8) { memcpy(codes, in, m); return; }
  if (bits & 4) { unpack_plane<4>(in, m, shift, codes); in += plane_bytes(4, m); shift += 4; }
  if (bits & 2) { unpack_plane<2>(in, m, shift, codes); in += plane_bytes(2, m); shift += 2; }
  if (bits & 1) unpack_plane<1>(in, m, shift, codes);
}

}  // namespace thinwire
