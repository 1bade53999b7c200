// Block codecs: blocks of values, each with a header (a scale, say) and a payload of packed codes.
//
// Wire: groups of 16 blocks; a group is its headers, then its payloads. So headers and full payloads start at multiples of 16
// bytes from the wire's start, whatever a header's size. The last block is shorter, the last group has fewer blocks; nothing is
// padded but the last byte of a plane.
//
// A block codec K supplies
//   Params                                         its parameters, plain ints and floats
//   template <class C> struct Header               what a block may store beside its codes; C is float, or double for float64
//   size_t header_bytes<C>(p)                      how much of it these parameters store: all of it, or its first half
//   size_t block(p), size_t payload(p, m)          values a block; bytes of the codes of m values
//   encode<C>(p, u, m, noise, header&, payload)    u[0..m) to header and codes
//   decode<C>(p, header, payload, m, out)          calls out(j, value) for j in 0..m
#pragma once
#include "thinwire/numeric.h"
#include "thinwire/pack.h"

namespace thinwire {

constexpr size_t kMaxBlock = 4096;
constexpr size_t kGroupBlocks = 16;

// memcpy of the stored part of a header, one number or two, each a single move.
template <class Header> TW_HD void copy_header(void* to, const void* from, size_t bytes) {
  if (bytes == sizeof(Header)) memcpy(to, from, sizeof(Header));
  else memcpy(to, from, sizeof(Header) / 2);
}

template <class K, class C> TW_HD size_t block_wire_bytes(const typename K::Params& p, size_t n) {
  const size_t block = K::block(p), full = n / block, tail = n % block;
  return (full + (tail != 0)) * K::template header_bytes<C>(p) + full * K::payload(p, block) + (tail ? K::payload(p, tail) : 0);
}

}  // namespace thinwire
