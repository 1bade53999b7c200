# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
# distutils: language = c++
"""The CPU rows as Python objects. Knows no codec by name.

Arrays are flat, contiguous numpy arrays; positions and counts are in values (of the array) or bytes (of a wire), so that no
slice is made on the way. Everything is checked against the arrays' sizes here: C++ trusts its caller.
"""
from libc.stdint cimport uint8_t, uint64_t
import numpy as np
cimport numpy as cnp
from libcpp.vector cimport vector
from codec cimport *

cnp.import_array()

SET, ACCUMULATE, ADD = 0, 1, 2

cdef int _threads = 1

def set_threads(int n):
    """Threads that encode and decode may use in one call. They change speed, never bytes."""
    global _threads
    if n < 1:
        raise ValueError(f"threads must be at least 1, not {n}")
    _threads = n

def threads():
    return _threads

cdef inline char* _span(cnp.ndarray array, size_t start, size_t n, size_t itemsize, str what) except? NULL:
    """Address of array[start], after checking that n values of this size follow."""
    cdef size_t size = <size_t>cnp.PyArray_NBYTES(array)
    if n > size // itemsize or start > size // itemsize - n:
        raise ValueError(f"{what}: values {start} to {start + n} of {itemsize} bytes lie outside an array of {size} bytes")
    if not cnp.PyArray_IS_C_CONTIGUOUS(array):
        raise ValueError(f"{what} is not contiguous")
    return <char*>cnp.PyArray_DATA(array) + start * itemsize


cdef class Kernels:
    """One row: a codec's kernels on this device."""
    cdef const Codec* row
    cdef readonly int number

    @property
    def name(self):
        return self.row.name.decode()

    @property
    def params_size(self):
        return self.row.params_size

    @property
    def shares(self):
        """Whether what it selects follows from the seed alone, so that all ranks select alike."""
        return self.row.sparse != NULL and self.row.sparse.shared != NULL

    def takes(self, int dtype):
        return bool(self.row.dtypes >> dtype & 1)

    def granule(self, bytes params):
        return self.row.granule(<const char*>params)

    def bound(self, bytes params, size_t n, int dtype):
        return self.row.bound(<const char*>params, n, dtype)

    def encode(self, bytes params, cnp.ndarray x, size_t start, size_t n, int dtype, cnp.ndarray wire, size_t at,
               uint64_t seed=0, uint64_t first=0, cnp.ndarray residual=None, size_t residual_start=0):
        """x[start : start + n] into wire[at:]; gives the bytes written. `first`: index of x[start] in the array as a whole."""
        cdef const void* p = <const char*>params
        cdef const char* source = _span(x, start, n, kItemSize[dtype], "x")
        cdef uint8_t* target = <uint8_t*>_span(wire, at, self.row.bound(p, n, dtype), 1, "wire")
        cdef char* lost = NULL
        cdef size_t used
        if residual is not None:
            lost = _span(residual, residual_start, n, accumulator_size(dtype), "residual")
        with nogil:
            used = encode_parallel(self.row[0], p, source, n, dtype, target, seed, first, lost, _threads)
        if used == kNoMemory:
            raise MemoryError(f"no memory to encode {n} values in")
        return used

    def decode(self, bytes params, cnp.ndarray wire, size_t at, size_t size, cnp.ndarray y, size_t start, size_t n, int dtype,
               int mode=0, double scale=1.0):
        """wire[at : at + size] into y[start : start + n]. False if those bytes are no wire of n values."""
        cdef const void* p = <const char*>params
        cdef const uint8_t* source = <const uint8_t*>_span(wire, at, size, 1, "wire")
        cdef char* target = _span(y, start, n, kItemSize[dtype] if mode == 0 else accumulator_size(dtype), "y")
        cdef int bad
        with nogil:
            bad = decode_parallel(self.row[0], p, source, size, target, n, dtype, mode, scale, _threads)
        if bad == -2:
            raise MemoryError(f"no memory to decode {n} values in")
        return bad == 0

    # --- sparse codecs: entries instead of arrays ---

    cdef int _sparse(self, size_t n) except -1:
        if self.row.sparse == NULL:
            raise TypeError(f"{self.name} is no sparse codec")
        if n > kMostValues:
            raise ValueError(f"entries belong to arrays of no more than {kMostValues} values, not {n}")
        return 0

    def select(self, bytes params, cnp.ndarray x, size_t start, size_t n, int dtype, uint64_t seed=0, cnp.ndarray residual=None, size_t residual_start=0):
        """(index, value, poison): the entries that this codec keeps of x[start : start + n], uint32 or, above 2^32 values, uint64 and accumulators.

        With a residual, x + residual is selected from, and what is not kept is left in it. poison: a non-finite value was left out, so whatever comes of
        these entries must be NaN throughout.
        """
        self._sparse(n)
        cdef const void* p = <const char*>params
        cdef const char* source = _span(x, start, n, kItemSize[dtype], "x")
        cdef char* rest = NULL
        cdef size_t count, most = self.row.sparse.capacity(p, n)
        cdef int found = 0
        if residual is not None:
            rest = _span(residual, residual_start, n, accumulator_size(dtype), "residual")
        cdef cnp.ndarray index = np.empty(most + kSelectSlack, np.uint64 if n > <size_t>1 << 32 else np.uint32)
        cdef cnp.ndarray value = np.empty(most + kSelectSlack, np.float64 if dtype == 2 else np.float32)
        cdef void* i = cnp.PyArray_DATA(index)
        cdef void* v = cnp.PyArray_DATA(value)
        with nogil:
            count = self.row.sparse.select(p, source, n, dtype, seed, rest, i, v, &found)
        if count == kNoMemory:
            raise MemoryError(f"no memory to select from {n} values in")
        return index[:count], value[:count], bool(found & kLeftOut)

    def pack_bound(self, bytes params, size_t count, size_t n, int dtype):
        """Most bytes that `count` entries of n values take."""
        self._sparse(n)
        if count > n:
            raise ValueError(f"{count} entries of {n} values")
        return c_pack_bound(self.row[0], <const char*>params, count, n, dtype)

    def pack(self, bytes params, cnp.ndarray index, cnp.ndarray value, uint64_t base, size_t n, int dtype, cnp.ndarray wire, size_t at, uint64_t seed=0,
             bint shared=False, bint poison=False, cnp.ndarray lost=None):
        """Entries of the values [base, base + n) into wire[at:], which has room for pack_bound; gives the bytes.

        index: ascending, uint32 or uint64; value: accumulators. shared: the indices are what this codec draws for (n, seed), so the wire holds the seed.
        poison: the wire of n values that are all NaN, whatever the entries are. lost: as long as value, gets what the stage loses of each.
        """
        self._sparse(n)
        cdef Entries entries = _entries(index, value, dtype)
        entries.base = base
        cdef const void* p = <const char*>params
        cdef void* rest = NULL
        cdef size_t used
        if entries.count and not poison and (entries.count > n or not ascends(entries, n)):
            raise ValueError(f"{entries.count} indices that don't ascend within [{base}, {base + n})")
        if shared and (self.row.sparse.shared == NULL or entries.count != self.row.sparse.capacity(p, n)):
            raise ValueError(f"{self.name} draws no such {entries.count} indices from a seed")
        cdef uint8_t* target = <uint8_t*>_span(wire, at, c_pack_bound(self.row[0], p, entries.count, n, dtype), 1, "wire")
        if lost is not None:
            rest = _span(lost, 0, entries.count, accumulator_size(dtype), "lost")
        with nogil:
            used = c_pack(self.row[0], p, entries, n, dtype, seed, shared, poison, target, rest)
        if used == kNoMemory:
            raise MemoryError(f"no memory to pack {entries.count} entries in")
        return used

    def unpack(self, bytes params, cnp.ndarray wire, size_t at, size_t size, size_t n, int dtype, uint64_t base=0, bint wide=False,
               cnp.ndarray index=None, cnp.ndarray value=None):
        """(index, value, poison): the entries of a wire of n values, base added to their indices; None if those bytes are none.

        They are uint32, or uint64 if `wide` or if base + n is above 2^32, and accumulators. index, value: arrays of such to write into from their start on,
        of which parts are given back; ValueError if they are too short.
        """
        if self.row.sparse == NULL:
            raise TypeError(f"{self.name} is no sparse codec")
        cdef const void* p = <const char*>params
        cdef const uint8_t* source = <const uint8_t*>_span(wire, at, size, 1, "wire")
        cdef size_t count = packed_entries(self.row[0], p, source, size, n, dtype)
        cdef int bad
        if base > kMostValues:
            raise ValueError(f"no array has values from {base} on")
        if count == kNoEntries:
            return None
        cdef bint poison = count == kPoisoned
        if poison:
            count = 0
        wide = wide or base > <uint64_t>1 << 32 or base + n > <uint64_t>1 << 32
        if index is None:
            index = np.empty(count, np.uint64 if wide else np.uint32)
        if value is None:
            value = np.empty(count, np.float64 if dtype == 2 else np.float32)
        if index.dtype != np.uint64 and (wide or index.dtype != np.uint32):
            raise TypeError(f"indices up to {base + n} are uint{64 if wide else 32}, not {index.dtype}")
        if value.dtype != (np.float64 if dtype == 2 else np.float32):
            raise TypeError(f"entries of these arrays have {np.dtype(np.float64 if dtype == 2 else np.float32)} values, not {value.dtype}")
        wide = index.itemsize == 8
        cdef char* i = _span(index, 0, count, 8 if wide else 4, "index")
        cdef char* v = _span(value, 0, count, accumulator_size(dtype), "value")
        with nogil:
            bad = c_unpack(self.row[0], p, source, size, n, dtype, wide, base, i, v)
        if bad == -2:
            raise MemoryError(f"no memory to unpack {count} entries in")
        return None if bad else (index[:count], value[:count], poison)


# --- entries: pairs of an ascending index, uint32 or uint64, and a value, an accumulator ---

cdef Entries _entries(cnp.ndarray index, cnp.ndarray value, int dtype) except *:
    """Arrays of entries, checked."""
    cdef Entries entries
    if index.dtype != np.uint32 and index.dtype != np.uint64:
        raise TypeError(f"indices are uint32 or uint64, not {index.dtype}")
    if value.dtype != (np.float64 if dtype == 2 else np.float32):
        raise TypeError(f"entries of these arrays have {np.dtype(np.float64 if dtype == 2 else np.float32)} values, not {value.dtype}")
    if index.ndim != 1 or value.ndim != 1 or index.size != value.size:
        raise ValueError(f"{index.size} indices and {value.size} values")
    entries.count, entries.wide, entries.base = index.size, index.itemsize == 8, 0
    entries.index, entries.value = _span(index, 0, entries.count, index.itemsize, "index"), _span(value, 0, entries.count, value.itemsize, "value")
    return entries


def scatter(cnp.ndarray index, cnp.ndarray value, cnp.ndarray y, size_t start, size_t n, int dtype, uint64_t base=0, int mode=0, double scale=1.0):
    """Entries into y[start : start + n], which holds the values [base, base + n) of an array: set, in dtype (mode SET), or as v * scale in an
    accumulator, put there (ACCUMULATE) or added (ADD). Other values of y stay. ValueError if an index lies outside; then nothing was written."""
    cdef Entries entries = _entries(index, value, dtype)
    entries.base = base
    cdef char* target = _span(y, start, n, kItemSize[dtype] if mode == 0 else accumulator_size(dtype), "y")
    cdef int bad
    with nogil:
        bad = c_scatter(entries, target, n, dtype, mode, scale)
    if bad:
        raise ValueError(f"an index lies outside [{base}, {base + n})")


def merge(cnp.ndarray index_a, cnp.ndarray value_a, cnp.ndarray index_b, cnp.ndarray value_b, cnp.ndarray index=None, cnp.ndarray value=None):
    """(index, value): two lists of entries as one, the values of a common index added, a + b. Indices ascend, all of one type.

    index, value: arrays to write into from their start on, with room for all entries of both; they share no memory with a and b.
    """
    cdef int dtype = 2 if value_a.itemsize == 8 else 1
    cdef Entries a = _entries(index_a, value_a, dtype), b = _entries(index_b, value_b, dtype)
    cdef size_t count
    if a.wide != b.wide:
        raise TypeError(f"indices of two types, {index_a.dtype} and {index_b.dtype}")
    if index is None:
        index = np.empty(a.count + b.count, index_a.dtype)
    if value is None:
        value = np.empty(a.count + b.count, value_a.dtype)
    if index.dtype != index_a.dtype or value.dtype != value_a.dtype:
        raise TypeError(f"entries of {index_a.dtype} and {value_a.dtype} do not fit arrays of {index.dtype} and {value.dtype}")
    cdef char* i = _span(index, 0, a.count + b.count, 8 if a.wide else 4, "index")
    cdef char* v = _span(value, 0, a.count + b.count, 8 if dtype == 2 else 4, "value")
    with nogil:
        count = c_merge(a, b, dtype == 2, i, v)
    return index[:count], value[:count]


def sum_entries(lists, cnp.ndarray y, double scale=1.0, uint64_t base=0):
    """y, a float32 or float64 array that holds the values [base, base + n) of an array, = the sum of several lists of entries (index, value), added in their
    order, each value times scale; 0 elsewhere."""
    cdef vector[Entries] all_of_them
    cdef int dtype = 2 if y.itemsize == 8 else 1
    cdef size_t n = <size_t>y.size, used
    cdef char* target = _span(y, 0, n, 8 if dtype == 2 else 4, "y")
    for index, value in lists:
        all_of_them.push_back(_entries(index, value, dtype))
        all_of_them.back().base = base
        if not ascends(all_of_them.back(), n) or all_of_them.back().wide != all_of_them.front().wide:
            raise ValueError(f"{index.size} indices that don't ascend within [{base}, {base + n}), or of two types")
    with nogil:
        used = c_sum_entries(all_of_them.data(), all_of_them.size(), target, n, dtype == 2, scale)
    if used == kNoMemory:
        raise MemoryError("no memory to add entries in")


def positions_bound(size_t count, size_t n):
    """Most bytes that `count` indices below n take."""
    return c_positions_bound(count, n)


def pack_positions(cnp.ndarray index, size_t n, cnp.ndarray wire, size_t at):
    """Ascending indices below n into wire[at:], which has room for positions_bound; gives the bytes."""
    cdef Entries entries
    entries.count, entries.wide, entries.base = index.size, index.itemsize == 8, 0
    entries.index = _span(index, 0, entries.count, index.itemsize, "index")
    if not ascends(entries, n):
        raise ValueError(f"{entries.count} indices that don't ascend within [0, {n})")
    cdef uint8_t* target = <uint8_t*>_span(wire, at, c_positions_bound(entries.count, n), 1, "wire")
    cdef size_t used
    with nogil:
        used = c_pack_positions(entries, n, target)
    return used


def unpack_positions(cnp.ndarray wire, size_t at, size_t size, size_t n):
    """The indices of a wire, uint32 or, where n is above 2^32, uint64; None if those bytes are none."""
    cdef const uint8_t* source = <const uint8_t*>_span(wire, at, size, 1, "wire")
    cdef size_t count = packed_positions(source, size, n)
    if count == kNoEntries:
        return None
    cdef bint wide = n > <size_t>1 << 32
    cdef cnp.ndarray index = np.empty(count, np.uint64 if wide else np.uint32)
    cdef void* i = cnp.PyArray_DATA(index)
    cdef int bad
    with nogil:
        bad = c_unpack_positions(source, size, n, wide, i)
    return None if bad else index


cdef Kernels _row(int number):
    cdef Kernels k = Kernels.__new__(Kernels)
    k.row, k.number = kCodecs[number], number
    return k


IDENTITY = _row(0)  # an array as it is: how uncoded values enter a sum


def kernels():
    """Every row, by name, in the order of their numbers."""
    return {row.name: row for row in map(_row, range(kCodecCount))}


def add_up(terms, cnp.ndarray y, size_t start, size_t n, bint streamed=False):
    """y[start : start + n], an accumulator, = the sum of wires of n values each, in their order.

    terms: (kernels, params, array, at, size, dtype, scale): the wire is bytes [at, at + size) of the array. False if one of them is no wire
    of n values of its dtype. Kernels that are not native add their term by themselves.
    """
    terms = list(terms)
    if not all([isinstance(row, Kernels) for row, *_ in terms]):
        return all([row.decode(params, array, at, size, y, start, n, dtype, ADD if place else ACCUMULATE, scale)
                    for place, (row, params, array, at, size, dtype, scale) in enumerate(terms)])
    cdef vector[Term] wires
    cdef Term term
    cdef Kernels kernels
    cdef char* target = NULL
    cdef int bad
    for row, params, array, at, size, dtype, scale in terms:
        kernels = row
        term.codec, term.params = kernels.row, <const char*><bytes>params
        term.wire = <const uint8_t*>_span(array, at, size, 1, "wire")
        term.bytes, term.dtype, term.scale = size, dtype, scale
        target = _span(y, start, n, accumulator_size(term.dtype), "y")
        wires.push_back(term)
    with nogil:
        bad = sum_terms(wires.data(), wires.size(), target, n, streamed, _threads)
    if bad == -2:
        raise MemoryError(f"no memory to decode {n} values in")
    return bad == 0


def any_nonfinite(cnp.ndarray x, size_t start, size_t n, int dtype):
    """True if x[start : start + n] holds an infinity or a NaN."""
    cdef const char* source = _span(x, start, n, kItemSize[dtype], "x")
    cdef bint found
    with nogil:
        found = c_any_nonfinite(source, n, dtype)
    return found


def finish_sum(cnp.ndarray acc, size_t acc_start, cnp.ndarray y, size_t start, size_t n, int dtype, double divisor=1.0):
    """y[start : start + n] = acc / divisor, narrowed from the accumulator to dtype with one rounding."""
    cdef const char* source = _span(acc, acc_start, n, accumulator_size(dtype), "acc")
    cdef char* target = _span(y, start, n, kItemSize[dtype], "y")
    with nogil:
        c_finish_sum(source, target, n, dtype, divisor)


def clear(cnp.ndarray array):
    """Zeros throughout a contiguous array. Of many values, in less than half the time that array.fill takes."""
    cdef size_t size = <size_t>cnp.PyArray_NBYTES(array)
    cdef char* memory = _span(array, 0, size, 1, "array")
    with nogil:
        c_clear(memory, size)


def address(cnp.ndarray array):
    """Where an array's memory starts. (ndarray.ctypes takes ten times as long.)"""
    return <size_t>cnp.PyArray_DATA(array)


def overlap(cnp.ndarray a, cnp.ndarray b):
    """Whether two contiguous arrays share memory."""
    cdef size_t p = <size_t>cnp.PyArray_DATA(a), q = <size_t>cnp.PyArray_DATA(b)
    return p < q + <size_t>cnp.PyArray_NBYTES(b) and q < p + <size_t>cnp.PyArray_NBYTES(a)


def crc32c(const uint8_t[::1] data):
    """CRC-32C of bytes."""
    return c_crc32c(&data[0] if data.shape[0] else NULL, data.shape[0])
