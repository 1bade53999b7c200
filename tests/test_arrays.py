"""thinwire.compress.array: every kind and layout of array in, the same kind out, no memory lost."""

import array
import ctypes
import gc
import mmap
import sys
import tracemalloc
import weakref

import ml_dtypes
import numpy as np
import pytest

from thinwire import _dlpack
from thinwire.compress.array import DTYPES, dtype_code, dtype_of, target, view

VALUES = [1, 0, 3, 2, 5, 4]
DTYPE = pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)


def typed(dtype, values=VALUES):
    """The values in a dtype, flat: what every test expects, made by no code under test."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        values = [value % 2 for value in values]
    if dtype.kind == "c":
        values = [complex(value, value + 0.5) for value in values]
    return np.array(values, dtype)


def same(got, expected):
    """Equal dtypes and equal bits, which for bfloat16 and fp8 is also the safest comparison."""
    assert type(got) is np.ndarray
    assert got.dtype == expected.dtype and got.dtype.isnative
    assert got.tobytes() == expected.tobytes()


# What each layout does to six values; the logical order stays.

def strided(a):
    wide = np.repeat(a, 2)
    wide[1::2] = 1
    return wide[::2]


def reverse(a):
    return a[::-1].copy()[::-1]


def transposed(a):
    return a.reshape(2, 3).T.copy().T


def fortran(a):
    return np.asfortranarray(a.reshape(2, 3))


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def unaligned(a):
    memory = np.zeros(a.nbytes + 1, np.uint8)
    memory[1:] = a.view(np.uint8)
    return memory[1:].view(a.dtype)


def swapped(a):
    return a.astype(a.dtype.newbyteorder("S"))


LAYOUTS = [lambda a: a.reshape(2, 3), strided, reverse, transposed, fortran, read_only, unaligned, swapped]
LAYOUT = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__.replace("<lambda>", "contiguous"))


# dtypes

def test_dtype_codes_are_the_wire_formats():
    names = ("float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 int8 uint8 int16 uint16 int32 "
             "uint32 int64 uint64 bool complex64 complex128").split()
    assert [(code, dtype.name) for code, dtype in DTYPES.items()] == list(enumerate(names, 1))


def test_dtype_codes_both_ways():
    for code, dtype in DTYPES.items():
        assert dtype_code(dtype) == code and dtype_of(code) == dtype
    assert dtype_code(np.dtype("longlong")) == 13       # another C type than int64's, the same dtype


@pytest.mark.parametrize("dtype", ["U3", "O", "f4,i4", "M8[s]", np.longdouble, ml_dtypes.float8_e4m3fnuz])
def test_other_dtypes_are_refused(dtype):
    dtype = np.dtype(dtype)
    with pytest.raises(TypeError) as error:
        dtype_code(dtype)
    assert str(dtype) in str(error.value) and "bfloat16" in str(error.value)
    with pytest.raises(TypeError, match="expected one of float32"):
        view(np.zeros(3, dtype))


@pytest.mark.parametrize("code", [0, 18, -1, 255])
def test_unknown_codes_are_refused(code):
    with pytest.raises(ValueError, match=f"{code} is unknown"):
        dtype_of(code)


# numpy

@DTYPE
@LAYOUT
def test_layouts(dtype, layout):
    expected = typed(dtype)
    x = layout(expected.copy())
    v = view(x)
    same(v.flat, expected)
    assert v.flat.ndim == 1 and v.flat.flags.c_contiguous and v.flat.flags.aligned
    assert (v.n, v.dtype, v.code, v.shape) == (6, expected.dtype, dtype_code(expected.dtype), x.shape)
    assert dtype_of(v.code).isnative and v.dtype.isnative


@DTYPE
def test_no_copy_where_the_layout_allows(dtype):
    x = typed(dtype)
    for same_memory in (x, x.reshape(2, 3), x.reshape(1, 6, 1), read_only(x), x[2:5], x[:0]):
        v = view(same_memory)
        assert v.flat.__array_interface__["data"][0] == same_memory.__array_interface__["data"][0]
    x = typed(dtype)
    v = view(x.reshape(3, 2))
    x[4] = typed(dtype, [0])[0]
    same(v.flat, typed(dtype, [1, 0, 3, 2, 0, 4]))


@DTYPE
def test_zero_dimensions_scalars_and_empty_arrays(dtype):
    x = typed(dtype, [3])
    for zero_d in (x.reshape(()), x[0]):        # an array and a numpy scalar
        v = view(zero_d)
        same(v.flat, x)
        assert (v.n, v.shape) == (1, ())
        result = v.like(v.flat)
        assert type(result) is np.ndarray and result.shape == ()
    for shape in ((0,), (3, 0, 2)):
        v = view(np.empty(shape, dtype))
        assert (v.n, v.shape, v.flat.shape, v.dtype) == (0, shape, (0,), x.dtype)
        assert v.target().finish().shape == shape


def test_more_dimensions_and_lost_alignment_together():
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    same(view(x[:, ::-1, 1::2].transpose(2, 0, 1)).flat,
         np.array([9, 5, 1, 21, 17, 13, 11, 7, 3, 23, 19, 15], np.int32))
    same(view(np.frombuffer(b"\0" + x.astype(">i4").tobytes(), ">i4", offset=1)[::-5]).flat,
         np.array([23, 18, 13, 8, 3], np.int32))


def test_copies_keep_every_bit():
    bits = np.array([0x7f800001, 0xff800001, 0x80000000, 0x7fc01234, 1, 0], np.uint32)    # signalling NaNs too
    for layout in LAYOUTS:
        same(view(layout(bits.view(np.float32))).flat.view(np.uint32), bits)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_subclasses_are_plain_arrays_and_masks_are_refused():
    class Mine(np.ndarray):
        pass

    for x in (np.arange(3.0).view(Mine), np.matrix([0.0, 1.0, 2.0])):
        v = view(x)
        same(v.flat, np.array([0.0, 1.0, 2.0]))
        assert type(v.target().finish()) is np.ndarray
    for masked in (np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.zeros(3), np.ma.masked):
        with pytest.raises(TypeError, match="masked array"):
            view(masked)
        with pytest.raises(TypeError, match="masked array"):
            target(masked, 2, np.dtype(np.float64))


# Buffers

def mapped(data):
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memory


@pytest.mark.parametrize("x, dtype", [
    (bytes([1, 0, 3, 2, 5, 4]), np.uint8),
    (bytearray([1, 0, 3, 2, 5, 4]), np.uint8),
    (memoryview(bytes([1, 0, 3, 2, 5, 4])), np.uint8),
    (mapped(bytes([1, 0, 3, 2, 5, 4])), np.uint8),
    (memoryview(array.array("f", VALUES)), np.float32),
    (memoryview(array.array("h", [1, 9, 0, 9, 3, 9, 2, 9, 5, 9, 4]))[::2], np.int16),
    (memoryview(np.float16([[1, 3, 5], [0, 2, 4]]).T), np.float16),
    (memoryview(np.array(VALUES, ">u4")), np.uint32),
    ((ctypes.c_double * 6)(*VALUES), np.float64),
    *((array.array(char, VALUES), char) for char in "bBhHiIlLqQfd"),
], ids=lambda x: type(x).__name__)
def test_buffers(x, dtype):
    v = view(x)
    same(v.flat, typed(dtype))
    assert type(v.target().finish()) is np.ndarray      # buffers come back as numpy arrays


def test_buffers_share_memory():
    x = bytearray(4)
    v = view(x)
    x[2] = 7
    assert v.flat.tolist() == [0, 0, 7, 0]
    out = array.array("f", [0] * 6)
    t = view(typed(np.float32)).target(out)
    t.flat[:] = VALUES
    assert out.tolist() == VALUES and t.finish() is out


@pytest.mark.parametrize("x", [[1.0, 2.0], (1, 2), 1.0, 1, True, None, "text", {}, range(3), object()],
                         ids=lambda x: type(x).__name__)
def test_what_is_no_array_is_refused(x):
    with pytest.raises(TypeError, match=f"expected an array .*, got {type(x).__name__}"):
        view(x)
    if x is not None:
        with pytest.raises(TypeError, match=f"expected an array .*, got {type(x).__name__}"):
            target(x, 2, np.dtype(np.float32))


@pytest.mark.parametrize("x", [array.array("u", "ab"), memoryview(b"ab").cast("c"), np.array(["ab"])],
                         ids=["array-u", "memoryview-c", "numpy-str"])
def test_buffers_of_characters_are_refused(x):
    with pytest.raises(TypeError, match="is not supported"):
        view(x)


# Results

@DTYPE
def test_fresh_results(dtype):
    x = typed(dtype)
    v = view(x.reshape(2, 3))
    for t, shape in ((v.target(), (2, 3)), (v.target(n=6), (6,)), (v.target(shape=(3, 2)), (3, 2)),
                     (v.target(n=6, shape=(6, 1)), (6, 1)), (target(None, 6, x.dtype), (6,)),
                     (target(None, 6, x.dtype, (1, 6)), (1, 6))):
        assert not t.aliases(v)
        t.flat[:] = x[::-1]
        result = t.finish()
        assert result.shape == shape
        same(result, x[::-1])
        assert np.shares_memory(result, t.flat)
    t = v.target(n=2)
    assert t.flat.shape == (2,) and t.finish().shape == (2,)


def test_size_and_shape_must_agree():
    v = view(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="5 values"):
        v.target(n=5, shape=(2, 3))
    with pytest.raises(ValueError):
        v.like(np.zeros(5))


def test_like_shares_memory():
    flat = np.arange(6.0)
    result = view(np.zeros((2, 3))).like(flat)
    assert result.tolist() == [[0, 1, 2], [3, 4, 5]] and np.shares_memory(result, flat)
    assert view(np.zeros(2)).like(flat, (3, 2)).shape == (3, 2)


@DTYPE
@pytest.mark.parametrize("layout", [f for f in LAYOUTS if f is not read_only],
                         ids=lambda f: f.__name__.replace("<lambda>", "contiguous"))
def test_out(dtype, layout):
    x = typed(dtype)
    out = layout(typed(dtype, [0] * 6))
    t = view(x).target(out)
    assert t.flat.shape == (6,) and t.flat.dtype == x.dtype and t.flat.flags.carray
    t.flat[:] = x
    assert t.finish() is out
    assert out.astype(x.dtype).tobytes() == x.tobytes()     # tobytes is in logical order


def test_out_writes_only_its_own_values():
    memory = np.full(12, 9.0)
    t = target(memory[1:9:2], 4, memory.dtype)
    t.flat[:] = [1, 2, 3, 4]
    assert memory.tolist() == [9] * 12      # until finish, where the memory is not shared
    t.finish()
    assert memory.tolist() == [9, 1, 9, 2, 9, 3, 9, 4, 9, 9, 9, 9]


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_out_of_another_shape_or_subclass():
    out = np.matrix(np.zeros((2, 3)))
    t = view(np.zeros(6)).target(out)
    t.flat[:] = VALUES
    assert t.finish() is out and out.tolist() == [[1, 0, 3], [2, 5, 4]]


def test_in_place_and_overlap():
    x = np.arange(8.0)
    v = view(x)
    assert v.target(x).aliases(v)
    assert v.target(x[2:6], n=4).aliases(v)
    assert not view(x[:4]).target(x[4:]).aliases(view(x[:4]))
    assert not v.target(np.zeros(8)).aliases(v)
    strided_x = x[::2]
    v = view(strided_x)
    t = v.target(strided_x)
    t.flat[:] = v.flat * 10
    assert t.finish() is strided_x and x.tolist() == [0, 1, 20, 3, 40, 5, 60, 7]


F32 = np.dtype(np.float32)


@pytest.mark.parametrize("out, error, message", [
    (np.zeros(5, np.float32), ValueError, "expected 6 values of float32, got 5"),
    (np.zeros((2, 4), np.float32), ValueError, "expected 6 values of float32, got 8"),
    (np.zeros(6), TypeError, "expected 6 values of float32, got 6 of float64"),
    (np.zeros(6, np.int32), TypeError, "got 6 of int32"),
    (np.zeros(6, ">f8"), TypeError, "got 6 of >f8"),
    (np.zeros(24, np.uint8), TypeError, "got 24 of uint8"),
    (read_only(np.zeros(6, np.float32)), ValueError, "read-only"),
    (read_only(np.zeros(12, np.float32))[::2], ValueError, "read-only"),
    (memoryview(array.array("f", VALUES)).toreadonly(), ValueError, "read-only"),
    (np.lib.stride_tricks.as_strided(np.zeros(3, np.float32), (2, 3), (0, 4)), ValueError, "share memory"),
    (np.float32(0), TypeError, "numpy scalar"),
])
def test_out_refusals(out, error, message):
    with pytest.raises(error, match=message):
        target(out, 6, F32)
    with pytest.raises(error, match=message):
        view(typed(np.float32)).target(out)


# DLPack, without any other library: capsules made by _dlpack.Lent and by hand

class Producer:
    """A DLPack producer of a given device whose capsules come from a function."""

    def __init__(self, make, device=(1, 0)):
        self.make, self.device = make, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self.make(max_version)


class OldProducer(Producer):
    """As producers were before 2023: no keyword but stream, capsules without version."""

    def __dlpack__(self, *, stream=None):
        return self.make(None)


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)), ("flags", ctypes.c_uint64),
                ("tensor", Tensor)]


class Handmade(Producer):
    """A producer whose every field is chosen by the test; counts the calls of its deleter."""

    def __init__(self, data, shape, strides=None, dtype=(2, 32, 1), device=(1, 0), offset=0, major=1, flags=0):
        self.data = data
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = (ctypes.c_int64 * len(shape))(*strides) if strides is not None else None
        self.deleted = 0

        def delete(_):
            self.deleted += 1

        self.managed = Versioned(
            major, 0, None, Versioned._fields_[3][1](delete), flags,
            Tensor(data.ctypes.data if data is not None else None, *device, len(shape), *dtype,
                   ctypes.addressof(self.shape),
                   None if strides is None else ctypes.addressof(self.strides), offset))
        super().__init__(self.capsule, device)

    def capsule(self, _):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor_versioned", None)


def lent(flat, shape=None, dtype=(2, 32, 1)):
    return _dlpack.Lent(flat.view(np.uint8), flat.shape if shape is None else shape, dtype)


@pytest.mark.parametrize("wrap", [
    lambda lent: lent,
    lambda lent: Producer(lambda version: lent.__dlpack__(max_version=version)),
    lambda lent: Producer(lambda version: lent.__dlpack__()),       # may answer without a version
    lambda lent: OldProducer(lambda version: lent.__dlpack__()),
    lambda lent: Producer(lambda version: lent.__dlpack__(max_version=version), (3, 0)),    # page-locked
])
def test_dlpack_capsules_of_both_forms(wrap):
    memory = typed(np.float32)
    v = view(wrap(lent(memory, (2, 3))))
    same(v.flat, typed(np.float32))
    assert v.shape == (2, 3) and np.shares_memory(v.flat, memory) and v.flat.flags.writeable


@DTYPE
def test_dlpack_carries_every_dtype(dtype):
    kinds = {"f": 2, "i": 0, "u": 1, "c": 5, "b": 6}
    codes = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}
    code = codes.get(dtype.name, kinds.get(dtype.kind))
    v = view(lent(typed(dtype), dtype=(code, 8 * dtype.itemsize, 1)))
    same(v.flat, typed(dtype))
    # And back: the other library is one that hands the producer over as it comes.
    v.kind = lambda producer: _dlpack.Borrowed(producer)
    borrowed = v.like(typed(dtype), (3, 2))
    assert borrowed.dtype == (code, 8 * dtype.itemsize, 1) and borrowed.shape == (3, 2)
    assert bytes(borrowed) == typed(dtype).tobytes()


def test_dlpack_strides():
    data = np.arange(24, dtype=np.float32)
    for shape, strides, offset, expected in (
            ((2, 3), None, 0, data[:6]),
            ((2, 3), (12, 2), 4, data[1:].reshape(-1)[[0, 2, 4, 12, 14, 16]]),
            ((3, 2), (-4, 1), 4 * 20, data[[20, 21, 16, 17, 12, 13]]),
            ((2, 2), (3, -3), 4 * 20, data[[20, 17, 23, 20]]),
            ((3,), (0,), 8, data[[2, 2, 2]]),
            ((), None, 12, data[[3]]),
            ((2, 0), None, 0, data[:0])):
        x = Handmade(data, shape, strides, offset=offset)
        v = view(x)
        same(v.flat, expected)
        assert v.shape == shape
    same(view(Handmade(None, (0,))).flat, data[:0])     # an empty tensor's pointer may be NULL


def test_dlpack_read_only():
    data = np.arange(3, dtype=np.float32)
    assert not view(Handmade(data, (3,), flags=1)).flat.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        target(Handmade(data, (3,), flags=1), 3, F32)
    read = lent(read_only(data))
    assert not view(read).flat.flags.writeable
    with pytest.raises(BufferError, match="read-only"):     # an old capsule could not say so
        view(OldProducer(lambda version: read.__dlpack__()))


def test_dlpack_out():
    data = np.zeros(12, np.float32)
    out = Handmade(data, (2, 3), (6, 2))
    t = target(out, 6, F32)
    t.flat[:] = VALUES
    assert t.finish() is out
    assert data.tolist() == [1, 0, 0, 0, 3, 0, 2, 0, 5, 0, 4, 0]


@pytest.mark.parametrize("x, error, message", [
    (Handmade(np.zeros(3), (3,), dtype=(2, 32, 4)), TypeError, r"\(2, 32, 4\)"),
    (Handmade(np.zeros(3), (3,), dtype=(17, 4, 1)), TypeError, r"\(17, 4, 1\)"),
    (Handmade(np.zeros(3), (3,), major=2), BufferError, "DLPack 2.0"),
    (Handmade(np.zeros(3), (3,), device=(2, 0)), TypeError, "no CUDA"),
    (Producer(lambda _: None), BufferError, "no fresh DLPack capsule"),
    (Producer(Handmade(np.zeros(3), (3,), device=(2, 0)).make), BufferError, "device type 2"),
])
def test_dlpack_refusals(x, error, message):
    with pytest.raises(error, match=message):
        view(x)


def test_dlpack_capsules_are_taken_once_and_deleted_once():
    x = Handmade(np.arange(3, dtype=np.float32), (3,))
    capsule = x.capsule(None)
    once = Producer(lambda _: capsule)
    v = view(once)
    with pytest.raises(BufferError, match="no fresh"):
        view(once)
    del capsule, once
    flat = v.flat[1:]
    del v
    assert x.deleted == 0 and flat.tolist() == [1, 2]
    del flat
    assert x.deleted == 1
    for bad in (Handmade(None, (3,), major=2), Handmade(np.zeros(3), (3,), dtype=(2, 32, 4))):
        with pytest.raises((BufferError, TypeError)):
            view(bad)
        gc.collect()
        assert bad.deleted == 1     # also where it is of no use


def test_lent_memory():
    flat = typed(np.float32)
    alive = weakref.ref(flat)
    producer = lent(flat, (2, 3))
    capsules = [producer.__dlpack__(), producer.__dlpack__(max_version=(1, 0))]     # never consumed
    borrowed = _dlpack.Borrowed(producer)
    del flat, producer
    assert bytes(borrowed) == typed(np.float32).tobytes() and borrowed.strides == (12, 4)
    del borrowed
    assert alive() is not None
    capsules.pop()
    assert alive() is not None
    capsules.pop()
    assert alive() is None


def test_lent_refusals():
    flat = typed(np.float32)
    for shape in ((5,), (7,), (2, 4), (), (-2, -3)):
        with pytest.raises(ValueError, match="shape"):
            lent(flat, shape)
    with pytest.raises(BufferError, match="copies"):
        lent(flat).__dlpack__(copy=True)
    with pytest.raises(BufferError, match="device"):
        lent(flat).__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="contiguous"):
        _dlpack.Lent(np.zeros(12, np.uint8)[::2], (6,), (1, 8, 1))


def test_device_arrays_are_refused():
    class Device:
        __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (0, False), "version": 3}

    for x in (Device(), Producer(None, (2, 0)), Producer(None, (10, 1))):
        with pytest.raises(TypeError, match="on a device, and this build of thinwire has no CUDA"):
            view(x)
        with pytest.raises(TypeError, match="on a device, and this build of thinwire has no CUDA"):
            target(x, 3, F32)


# Memory

def growth(step, rounds=1000):
    """Bytes of Python and numpy memory that `rounds` calls leave behind."""
    for _ in range(20):
        step()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(rounds):
            step()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("make", [
    lambda: np.ones((8, 32), np.float32),
    lambda: np.ones((8, 64), np.float32)[:, ::2],
    lambda: bytearray(1024),
    lambda: lent(np.ones(256, np.float32)),
    lambda: OldProducer(lambda version, x=lent(np.ones(256, np.float32)): x.__dlpack__()),
], ids=["contiguous", "strided", "bytearray", "dlpack", "dlpack-old"])
def test_a_thousand_calls_leave_memory_flat(make):
    def step():
        x = make()
        v = view(x)
        v.target().finish()
        v.target(x).finish()
        v.kind = _dlpack.Borrowed
        v.target().finish()

    assert growth(step) < 20_000    # a leaked KiB a call would be a million


def test_views_hold_references_only_while_they_live():
    x = np.arange(6.0)
    before = sys.getrefcount(x)
    v, t = view(x), view(x).target(x)
    assert sys.getrefcount(x) > before
    del v, t
    assert sys.getrefcount(x) == before


# torch

class TestTorch:
    NAMES = ("float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 int8 uint8 int16 uint16 int32 "
             "uint32 int64 uint64 bool complex64 complex128").split()

    @pytest.fixture(autouse=True)
    def torch(self):
        self.torch = pytest.importorskip("torch")

    def tensor(self, name, values=VALUES):
        if name == "bool":
            values = [value % 2 for value in values]
        if name.startswith("complex"):
            values = [complex(value, value + 0.5) for value in values]
        return self.torch.tensor(values).to(getattr(self.torch, name))

    def bits(self, tensor):
        """The bytes of a tensor in logical order, read by torch itself."""
        return bytes(tensor.contiguous().reshape(-1).view(self.torch.uint8).tolist())

    @pytest.mark.parametrize("name", NAMES)
    def test_in_and_out(self, name):
        expected = typed(dtype_of(self.NAMES.index(name) + 1))
        x = self.tensor(name).reshape(2, 3)
        v = view(x)
        same(v.flat, expected)
        assert v.shape == (2, 3) and v.flat.__array_interface__["data"][0] == x.data_ptr()
        t = v.target()
        t.flat[:] = expected[::-1]
        result = t.finish()
        assert type(result) is self.torch.Tensor and result.dtype is x.dtype and result.shape == x.shape
        assert result.data_ptr() == t.flat.__array_interface__["data"][0]
        assert self.bits(result) == expected[::-1].tobytes()
        result = v.target(n=2).finish()
        assert result.dtype is x.dtype and result.shape == (2,)
        out = self.torch.zeros(6, dtype=x.dtype)
        t = v.target(out)
        t.flat[:] = expected
        assert t.finish() is out and self.bits(out) == expected.tobytes()

    @pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "complex64", "float8_e5m2"])
    def test_layouts(self, name):
        expected = typed(dtype_of(self.NAMES.index(name) + 1))
        row = self.tensor(name, [1, 9, 0, 9, 3, 9, 2, 9, 5, 9, 4, 9])
        matrix = self.tensor(name, [1, 2, 0, 5, 3, 4]).reshape(3, 2)
        for x in (row[::2], matrix.t(), row.reshape(2, 6)[:, ::2]):
            same(view(x).flat, expected)
        same(view(matrix[1:, 1]).flat, expected[[4, 5]])
        same(view(matrix[0, 0]).flat, expected[[0]])
        same(view(matrix[1].expand(2, 2)).flat, expected[[1, 4, 1, 4]])
        assert view(matrix[0, 0]).target().finish().shape == ()
        empty = view(matrix[:0])
        assert empty.n == 0 and empty.target().finish().shape == (0, 2)
        out = matrix.clone().t()
        t = view(out).target(out)
        t.flat[:] = expected[::-1]
        assert t.finish() is out and self.bits(out) == expected[::-1].tobytes()

    def test_torchs_own_refusals(self):
        torch = self.torch
        for x in (torch.zeros(3, requires_grad=True), torch.nn.Parameter(torch.zeros(3)),
                  torch.zeros(3, dtype=torch.complex64).conj(), torch.zeros(3).to_sparse()):
            with pytest.raises((BufferError, RuntimeError)):
                view(x)
        with pytest.raises(BufferError):
            view(torch.zeros(3)).target(torch.zeros(3, requires_grad=True))
        assert view(torch.nn.Parameter(torch.ones(3)).detach()).flat.tolist() == [1, 1, 1]

    def test_out_refusals(self):
        torch = self.torch
        v = view(torch.zeros(6))
        for out, error in ((torch.zeros(5), ValueError), (torch.zeros(6, dtype=torch.bfloat16), TypeError),
                           (torch.zeros(1).expand(6), ValueError)):
            with pytest.raises(error, match="out: expected 6 values of float32, got"):
                v.target(out)

    def test_kinds_mix(self):
        torch = self.torch
        out = np.zeros(3, np.float32)
        t = view(torch.tensor([1.0, 2.0, 3.0])).target(out)
        t.flat[:] = [4, 5, 6]
        assert t.finish() is out and out.tolist() == [4, 5, 6]
        assert view(torch.zeros(3)).target(torch.zeros(3)).aliases(view(torch.zeros(3))) is False
        x = torch.zeros(3)
        assert view(x).target(x).aliases(view(x))

    def test_derived_tensors_come_back_as_tensors(self):
        class Mine(self.torch.Tensor):
            pass

        result = view(self.torch.ones(3).as_subclass(Mine)).target().finish()
        assert type(result) is self.torch.Tensor

    def test_a_view_keeps_its_tensor_alive(self):
        x = self.torch.full((1 << 16,), 7.0)
        flat = view(x).flat
        del x
        gc.collect()
        others = [self.torch.zeros(1 << 16) for _ in range(16)]     # would take freed memory
        assert (flat == 7).all() and len(others) == 16

    def test_a_result_keeps_its_memory_alive(self):
        for name in ("float32", "bfloat16"):
            v = view(self.tensor(name))
            t = v.target(shape=(1 << 16,))
            t.flat[:] = 7
            alive = weakref.ref(t.flat)
            result = t.finish()
            del t, v
            gc.collect()
            assert alive() is not None
            others = [np.zeros(1 << 16, np.float32) for _ in range(16)]
            assert bool((result == 7).all()) and len(others) == 16
            part = result[5:9]
            del result
            assert part.tolist() == [7, 7, 7, 7]
            del part
            gc.collect()
            assert alive() is None

    def test_a_thousand_tensors_leave_memory_flat(self):
        def resident():
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * mmap.PAGESIZE

        def step():
            x = self.torch.ones(1 << 18, dtype=self.torch.bfloat16)     # 512 KiB, touched
            v = view(x)
            t = v.target()
            t.flat[:] = v.flat
            t.finish()
            v.target(x).finish()

        if sys.platform != "linux":
            pytest.skip("reads /proc/self/statm")
        assert growth(step, 100) < 20_000
        before = resident()
        for _ in range(1000):
            step()
        assert resident() - before < 64 << 20       # a leak would be a GiB


# jax

def test_jax():
    jax = pytest.importorskip("jax")
    for name in ("float32", "bfloat16", "float8_e4m3fn"):
        x = jax.numpy.array(VALUES, name).reshape(2, 3)
        v = view(x)
        same(v.flat, typed(x.dtype))
        t = v.target()
        t.flat[:] = typed(x.dtype)[::-1]
        result = t.finish()
        assert isinstance(result, jax.Array) and result.dtype == x.dtype and result.shape == (2, 3)
        assert np.asarray(result).tobytes() == typed(x.dtype)[::-1].tobytes()
        with pytest.raises(TypeError, match="never change"):
            v.target(x)
