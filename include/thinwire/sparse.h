// Entries: pairs of an index and a value, what a sparse codec keeps of an array; their wire, and what can be done with them.
//
// Indices are uint32_t where the array has no more than 2^32 values, else uint64_t, and ascend. Values are accumulators.
#pragma once
#include "thinwire/codec.h"

namespace thinwire {

constexpr bool wide_index(size_t n) { return n > size_t(1) << 32; }
constexpr size_t kMostValues = size_t(1) << 48;   // an array that entries belong to has no more; so index arithmetic fits 64 bits with room to spare

// How a sparse codec's parameters end: the codec of the kept values, its row's number and parameters.
struct StageParams { int32_t codec; uint8_t then[64]; };
static_assert(sizeof(StageParams) == 68);

// Entries of the values [base, base + n) of an array: `wide` indices or not, counted from 0.
struct Entries { size_t count; const void* index; const void* value; bool wide; uint64_t base; };

// Whether the indices ascend within [base, base + n). What is packed must.
bool ascends(const Entries& entries, size_t n);
// Most bytes that `count` entries of n values or fewer take.
size_t pack_bound(const Codec& codec, const void* params, size_t count, size_t n, int dtype);
// The wire of entries, as `codec` (a sparse one, of which only the stage and the rule for shared indices matter) writes it: bytes, or kNoMemory.
// poison: the wire of n values that are all NaN. shared: the indices are what codec.sparse->shared gives for (n, seed). `lost`, if not null: count
// accumulators, what the stage lost of each value (0 where it made something non-finite of it).
size_t pack(const Codec& codec, const void* params, const Entries& entries, size_t n, int dtype, uint64_t seed, bool shared, bool poison, uint8_t* wire,
            void* lost);
// How many entries a wire of n values says it has, no more than n and no more than its bytes can hold; kNoEntries if it is none, kPoisoned if all of
// its values are NaN. Only unpack knows whether the rest of it is in order.
constexpr size_t kNoEntries = ~size_t(0), kPoisoned = ~size_t(0) - 1;
size_t packed_entries(const Codec& codec, const void* params, const uint8_t* wire, size_t bytes, size_t n, int dtype);
// Those entries, base added to each index; no more than packed_entries says. 0, -1 if the bytes are no wire of n values, -2 if there is no memory.
int unpack(const Codec& codec, const void* params, const uint8_t* wire, size_t bytes, size_t n, int dtype, bool wide, uint64_t base, void* index,
           void* value);

// y[index - base] = value * scale, or += (mode kAccumulate, kAdd; kSet: narrowed to dtype); other values of y stay. -1 if an index lies outside
// [base, base + n); then nothing is written.
int scatter(const Entries& entries, void* y, size_t n, int dtype, int mode, double scale);
// Two lists of entries as one, values of a common index added (a + b). Room for a.count + b.count entries; gives the count. double_values: doubles, else floats.
size_t merge(const Entries& a, const Entries& b, bool double_values, void* index, void* value);
// y[0..n) = the sum of several lists of entries (indices in [base, base + n), one base for all), each value times scale: the first list's as they are, the others added in order.
// A piece of y at a time, in cache; what is large is written past the caches. kNoMemory, or 0.
size_t sum_entries(const Entries* lists, size_t count, void* y, size_t n, bool double_values, double scale);

// Indices without values: their count in eight bytes, then their section. As above: the most bytes of `count` indices below n, the bytes written, how many
// a wire says it has (kNoEntries if it is none), and those themselves (0, or -1).
size_t positions_bound(size_t count, size_t n);
size_t pack_positions(const Entries& entries, size_t n, uint8_t* wire);
size_t packed_positions(const uint8_t* wire, size_t bytes, size_t n);
int unpack_positions(const uint8_t* wire, size_t bytes, size_t n, bool wide, void* index);

}  // namespace thinwire
