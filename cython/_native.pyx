# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
# distutils: language = c++
"""The CPU rows as Python objects. Knows no codec by name.

Arrays are flat, contiguous numpy arrays; positions and counts are in values (of the array) or bytes (of a wire), so that no
slice is made on the way. Everything is checked against the arrays' sizes here: C++ trusts its caller.
"""
from libc.stdint cimport uint8_t, uint64_t
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

cdef inline size_t _accumulator_size(int dtype) noexcept nogil:
    return 4 if dtype <= 6 and dtype != 2 else kItemSize[dtype]

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
            lost = _span(residual, residual_start, n, _accumulator_size(dtype), "residual")
        with nogil:
            used = encode_parallel(self.row[0], p, source, n, dtype, target, seed, first, lost, _threads)
        return used

    def decode(self, bytes params, cnp.ndarray wire, size_t at, size_t size, cnp.ndarray y, size_t start, size_t n, int dtype,
               int mode=0, double scale=1.0):
        """wire[at : at + size] into y[start : start + n]. False if those bytes are no wire of n values."""
        cdef const void* p = <const char*>params
        cdef const uint8_t* source = <const uint8_t*>_span(wire, at, size, 1, "wire")
        cdef char* target = _span(y, start, n, kItemSize[dtype] if mode == 0 else _accumulator_size(dtype), "y")
        cdef int bad
        with nogil:
            bad = decode_parallel(self.row[0], p, source, size, target, n, dtype, mode, scale, _threads)
        return bad == 0


cdef Kernels _row(int number):
    cdef Kernels k = Kernels.__new__(Kernels)
    k.row, k.number = kCodecs[number], number
    return k


IDENTITY = _row(0)  # an array as it is: how uncoded values enter a sum


def kernels():
    """Every row, by name, in the order of their numbers."""
    return {row.name: row for row in map(_row, range(kCodecCount))}


def add_up(terms, cnp.ndarray y, size_t start, size_t n):
    """y[start : start + n], an accumulator, = the sum of wires of n values each, in their order.

    terms: (kernels, params, array, at, size, dtype, scale): the wire is bytes [at, at + size) of the array. False if one of them is no wire
    of n values of its dtype.
    """
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
        target = _span(y, start, n, _accumulator_size(term.dtype), "y")
        wires.push_back(term)
    with nogil:
        bad = sum_terms(wires.data(), wires.size(), target, n, _threads)
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
    cdef const char* source = _span(acc, acc_start, n, _accumulator_size(dtype), "acc")
    cdef char* target = _span(y, start, n, kItemSize[dtype], "y")
    with nogil:
        c_finish_sum(source, target, n, dtype, divisor)


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
