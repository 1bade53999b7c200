// Compiler vocabulary shared by every kernel: where a function runs and for which instruction sets it is built.
#pragma once
#include <cstddef>  // any libc header: it defines __GLIBC__

#if defined(__CUDACC__)
#define TW_HD __host__ __device__ __forceinline__
#else
#define TW_HD inline __attribute__((always_inline))
#endif

// A loop marked TW_CLONES is compiled once per instruction-set level and picked at load time. Everything it calls must be
// TW_HD (always inlined), or the call would leave the clone for baseline code. `arch=` because gcc 12 knows no feature names
// such as avx512bw here. Clones need ifunc, so musl and macOS build the baseline alone (THINWIRE_CLONES=0 does so by hand, and
// CI compares the bytes of the two builds).
#if !defined(THINWIRE_CLONES)
#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__)
#define THINWIRE_CLONES 1
#else
#define THINWIRE_CLONES 0
#endif
#endif
#if THINWIRE_CLONES && !defined(__CUDACC__)
#define TW_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TW_CLONES
#endif

#if !defined(__CUDACC__)
// Ask for what lies a page behind these bytes. Hardware prefetchers stop at page boundaries; asking by hand took encoding from 0.74
// to 0.89 of a read pass, and decoding from 0.8 to 0.95 (block_int, 64 MiB). Past the array's end it does nothing.
TW_HD void prefetch_ahead(const void* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + 4096 + i);
}
#endif
