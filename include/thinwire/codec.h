// The codec contract: what a codec is to the rest of the library. One row a codec and device.
//
// Kernels here throw nothing, allocate nothing (but through cpu/scratch.h), print nothing; sizes are 64-bit. A wire depends on (codec, parameters, values,
// seed) only: not on rank, device, instruction set, thread count or the pieces in which it was written.
#pragma once
#include <cstddef>
#include <cstdint>

namespace thinwire {

// Element types, by the number that a frame carries. Values up to kE5M2 are floats.
enum Dtype : int {
  kF32 = 1, kF64, kF16, kBF16, kE4M3, kE5M2,
  kI8, kU8, kI16, kU16, kI32, kU32, kI64, kU64, kBool, kC64, kC128, kDtypeEnd
};

constexpr size_t kItemSize[kDtypeEnd] = {0, 4, 8, 2, 2, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 1, 8, 16};

// What decode does with a value v. The accumulator of a type is float32 for float32, float16, bfloat16 and fp8, float64 for
// float64, the type itself for integers and complex numbers (float32/float64 pairs).
enum Mode : int {
  kSet = 0,         // y[i] = v, y has the wire's dtype
  kAccumulate = 1,  // y[i] = v * scale, y is an accumulator: the first term of a sum (a sum that started from +0 would lose -0)
  kAdd = 2,         // y[i] += v * scale, y is an accumulator
};

// Bytes of an accumulator of this type.
constexpr size_t accumulator_size(int dtype) { return dtype <= kE5M2 && dtype != kF64 ? 4 : kItemSize[dtype]; }

// scale is 1 or a power of two: a mean over W ranks adds v * 2^-k so that it cannot overflow before the division.

// What encode and select give, and decode's -2: there was no memory to work in.
constexpr size_t kNoMemory = ~size_t(0);

// What a sparse codec is beside its wire: a selection of entries, pairs of an index and a value. Indices are uint32_t where n <= 2^32, else
// uint64_t, and ascend; values are accumulators.
enum Found : int {
  kLeftOut = 1,    // a non-finite value was left out: every decoded value must be NaN
  kUntouched = 2,  // x holds a non-finite value: the selection is of x alone, the residual is as it was
  kAltered = 4,    // values are the selection's own, not those of x
};
constexpr size_t kSelectSlack = 64;  // entries behind the last one that select and shared may overwrite
struct Sparse {
  // Most entries that a selection from n values has.
  size_t (*capacity)(const void* params, size_t n);
  // Selects from u = x (+ residual, n accumulators or null) and gives the count. index and value have room for capacity + kSelectSlack entries.
  // The residual is left as u where nothing was selected and u - value where something was. *found: what Found says, or 0.
  size_t (*select)(const void* params, const void* x, size_t n, int dtype, uint64_t seed, void* residual, void* index, void* value, int* found);
  // Where the indices follow from (n, seed) alone: writes them and gives their count; null for others. Such a wire holds the seed, not
  // the indices. Always `capacity` of them.
  size_t (*shared)(const void* params, size_t n, uint64_t seed, void* index);
};

struct Codec {
  const char* name;
  size_t params_size;
  // Bit d is set if the codec takes Dtype d.
  uint32_t dtypes;
  // The encoding of n values is the concatenation of the encodings of pieces of this many values (the last one shorter), each
  // of a size that depends on its count alone; 0: the array is coded as a whole. Always even.
  size_t (*granule)(const void* params);
  // Most bytes that n values can take; with a granule: exactly what they take.
  size_t (*bound)(const void* params, size_t n, int dtype);
  // Bytes written. `first` is the index of x[0] in the whole array: it moves the random counters, so that pieces and whole agree.
  // With `residual` (n accumulators): x + residual is encoded and what was lost is left in it; where a block holds a non-finite
  // value the residual stays as it was.
  size_t (*encode)(const void* params, const void* x, size_t n, int dtype, uint8_t* wire, uint64_t seed, uint64_t first,
                   void* residual);
  // 0, or -1 if the bytes are no wire of n values. Nothing outside [wire, wire + bytes) is read, nothing outside y is written.
  int (*decode)(const void* params, const uint8_t* wire, size_t bytes, void* y, size_t n, int dtype, int mode, double scale);
  // Not null if this is a sparse codec. Its parameters then end in a stage: a row's number (int32_t) and 64 bytes of parameters.
  const Sparse* sparse = nullptr;
};

extern const Codec* const kCodecs[];
extern const size_t kCodecCount;

constexpr uint32_t kFloats = 1u << kF32 | 1u << kF64 | 1u << kF16 | 1u << kBF16;
constexpr uint32_t kEveryDtype = (1u << kDtypeEnd) - 2;

}  // namespace thinwire
