from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "thinwire/codec.h" namespace "thinwire" nogil:
    cdef enum:
        kDtypeEnd
    const size_t* kItemSize
    size_t accumulator_size(int dtype) noexcept
    # Function pointers need noexcept nogil each, or a call takes the GIL to look for an exception.
    const size_t kNoMemory, kSelectSlack
    cdef enum:
        kLeftOut
    cdef cppclass Sparse:
        size_t (*capacity)(const void*, size_t) noexcept nogil
        size_t (*select)(const void*, const void*, size_t, int, uint64_t, void*, void*, void*, int*) noexcept nogil
        size_t (*shared)(const void*, size_t, uint64_t, void*) noexcept nogil
    cdef cppclass Codec:
        const char* name
        size_t params_size
        uint32_t dtypes
        size_t (*granule)(const void*) noexcept nogil
        size_t (*bound)(const void*, size_t, int) noexcept nogil
        const Sparse* sparse
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
    int sum_terms(const Term* terms, size_t count, void* y, size_t n, bint streamed, int threads) noexcept

cdef extern from "thinwire/array.h" namespace "thinwire" nogil:
    bint c_any_nonfinite "thinwire::any_nonfinite"(const void* x, size_t n, int dtype) noexcept
    void c_finish_sum "thinwire::finish_sum"(const void* acc, void* y, size_t n, int dtype, double divisor) noexcept
    void c_clear "thinwire::clear"(void* memory, size_t size) noexcept
    uint32_t c_crc32c "thinwire::crc32c"(const uint8_t* data, size_t n) noexcept

cdef extern from "thinwire/sparse.h" namespace "thinwire" nogil:
    const size_t kMostValues, kNoEntries, kPoisoned
    struct Entries:
        size_t count
        const void* index
        const void* value
        bint wide
        uint64_t base
    bint ascends(const Entries&, size_t n) noexcept
    size_t c_pack_bound "thinwire::pack_bound"(const Codec&, const void* params, size_t count, size_t n, int dtype) noexcept
    size_t c_pack "thinwire::pack"(const Codec&, const void* params, const Entries&, size_t n, int dtype, uint64_t seed, bint shared, bint poison,
                                   uint8_t* wire, void* lost) noexcept
    size_t packed_entries(const Codec&, const void* params, const uint8_t* wire, size_t size, size_t n, int dtype) noexcept
    int c_unpack "thinwire::unpack"(const Codec&, const void* params, const uint8_t* wire, size_t size, size_t n, int dtype, bint wide, uint64_t base,
                                    void* index, void* value) noexcept
    int c_scatter "thinwire::scatter"(const Entries&, void* y, size_t n, int dtype, int mode, double scale) noexcept
    size_t c_merge "thinwire::merge"(const Entries& a, const Entries& b, bint double_values, void* index, void* value) noexcept
    size_t c_sum_entries "thinwire::sum_entries"(const Entries* lists, size_t count, void* y, size_t n, bint double_values, double scale) noexcept
    size_t c_positions_bound "thinwire::positions_bound"(size_t count, size_t n) noexcept
    size_t c_pack_positions "thinwire::pack_positions"(const Entries&, size_t n, uint8_t* wire) noexcept
    size_t packed_positions(const uint8_t* wire, size_t size, size_t n) noexcept
    int c_unpack_positions "thinwire::unpack_positions"(const uint8_t* wire, size_t size, size_t n, bint wide, void* index) noexcept
