from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "thinwire/codec.h" namespace "thinwire" nogil:
    cdef enum:
        kDtypeEnd
    const size_t* kItemSize
    # Function pointers need noexcept nogil each, or a call takes the GIL to look for an exception.
    cdef cppclass Codec:
        const char* name
        size_t params_size
        uint32_t dtypes
        size_t (*granule)(const void*) noexcept nogil
        size_t (*bound)(const void*, size_t, int) noexcept nogil
    const Codec* const* kCodecs
    const size_t kCodecCount

cdef extern from "thinwire/parallel.h" namespace "thinwire" nogil:
    size_t encode_parallel(const Codec&, const void* params, const void* x, size_t n, int dtype, uint8_t* wire, uint64_t seed, uint64_t first,
                           void* residual, int threads) noexcept
    int decode_parallel(const Codec&, const void* params, const uint8_t* wire, size_t bytes, void* y, size_t n, int dtype, int mode, double scale,
                        int threads) noexcept
    struct Term:
        const Codec* codec
        const void* params
        const uint8_t* wire
        size_t bytes
        int dtype
        double scale
    int sum_terms(const Term* terms, size_t count, void* y, size_t n, int threads) noexcept

cdef extern from "thinwire/array.h" namespace "thinwire" nogil:
    bint c_any_nonfinite "thinwire::any_nonfinite"(const void* x, size_t n, int dtype) noexcept
    void c_finish_sum "thinwire::finish_sum"(const void* acc, void* y, size_t n, int dtype, double divisor) noexcept
    uint32_t c_crc32c "thinwire::crc32c"(const uint8_t* data, size_t n) noexcept
