"""Any array in, the same kind of array out: the one file that knows array libraries.

`view(x)` is what a call sees of an array, `Target` is where its result is written:

    v = view(x)                 # flat, native values, from numpy, torch, a buffer, ...
    t = v.target(out)           # out's own memory, or a fresh array's
    t.flat[:] = ...             # compute
    return t.finish()           # out itself, or an array of x's kind and shape

Kinds, in the order in which they are tried: numpy arrays and scalars; DLPack on the host (torch,
jax, ...), read through `thinwire._dlpack`, since numpy's DLPack knows neither bfloat16 nor fp8; the
buffer protocol (memoryview, bytearray, array.array, mmap, ...), whose results are numpy arrays.
"""

import math
import sys
from functools import lru_cache, partial

import ml_dtypes
import numpy as np
from numpy import empty, ndarray

from .. import _dlpack, _native

# One row a dtype: its code in a frame's header, numpy's dtype, DLPack's type code. Codes are part
# of the wire format: rows may be added, never renumbered.
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL, _E4M3FN, _E5M2 = 0, 1, 2, 4, 5, 6, 10, 12
_ROWS = tuple((code, np.dtype(scalar), dlpack) for code, scalar, dlpack in (
    (1, np.float32, _FLOAT),
    (2, np.float64, _FLOAT),
    (3, np.float16, _FLOAT),
    (4, ml_dtypes.bfloat16, _BFLOAT),
    (5, ml_dtypes.float8_e4m3fn, _E4M3FN),
    (6, ml_dtypes.float8_e5m2, _E5M2),
    (7, np.int8, _INT),
    (8, np.uint8, _UINT),
    (9, np.int16, _INT),
    (10, np.uint16, _UINT),
    (11, np.int32, _INT),
    (12, np.uint32, _UINT),
    (13, np.int64, _INT),
    (14, np.uint64, _UINT),
    (15, np.bool_, _BOOL),
    (16, np.complex64, _COMPLEX),
    (17, np.complex128, _COMPLEX),
))

DTYPES = {code: dtype for code, dtype, _ in _ROWS}
"""The dtypes that a frame can name, by their code in its header."""

# A byte-swapped dtype differs from its native one, so it is not found here: finding a dtype also
# says that it is native.
_CODES = {dtype: code for code, dtype, _ in _ROWS}
_TO_DLPACK = {dtype: (dlpack, 8 * dtype.itemsize, 1) for _, dtype, dlpack in _ROWS}
_FROM_DLPACK = {key: dtype for dtype, key in _TO_DLPACK.items()}

# Libraries whose arrays are values, though their DLPack capsules do not say read-only: a result
# written into one would show up in every other array that shares its memory.
_IMMUTABLE = {"jax", "jaxlib", "tensorflow"}


def dtype_code(dtype):
    """The code of a native dtype, 1 to 17; `TypeError` for a dtype that a frame cannot name."""
    code = _CODES.get(dtype)
    if code is None:
        raise TypeError(f"dtype {dtype} is not supported, expected one of "
                        + ", ".join(map(str, _CODES)))
    return code


def dtype_of(code):
    """The numpy dtype of a code; `ValueError` for a code that names none."""
    dtype = DTYPES.get(code)
    if dtype is None:
        raise ValueError(f"dtype code {code} is unknown, expected 1 to {max(DTYPES)}")
    return dtype


class View:
    """What a call sees of an array.

    Attributes
    ----------
    flat : 1-D ndarray, C-contiguous, aligned, native-endian: the values in C (logical) order
        The caller's memory where its layout allows, else a copy. It may be read-only, and it keeps
        the memory alive whatever object that belongs to.
    n : int, the number of values
    dtype : np.dtype, one of `DTYPES`
    code : int, the dtype's code in a frame
    shape : tuple of int
    kind : the `from_dlpack` of the library that the array came from; None for numpy
    """

    __slots__ = ("flat", "n", "dtype", "code", "shape", "kind")

    def __init__(self, flat, code, shape, kind=None):
        self.flat = flat
        self.n = flat.size
        self.dtype = flat.dtype
        self.code = code
        self.shape = shape
        self.kind = kind

    def like(self, flat, shape=None):
        """A flat ndarray as the kind of array that this view was made of, without a copy.

        `shape` is the view's where none is given; `ValueError` if `flat` has not as many values.
        The array that comes back shares `flat`'s memory and keeps it alive.
        """
        return _as_kind(self.kind, flat, self.shape if shape is None else shape)

    def target(self, out=None, n=None, shape=None):
        """A `Target` for a result of this view's dtype and kind.

        The result has the view's shape; with `shape` that shape, with `n` alone it is flat.
        """
        if n is None:
            if shape is None:
                n, shape = self.n, self.shape
            else:
                n = math.prod(shape)
        elif shape is None:
            shape = (n,)
        elif n != math.prod(shape):
            raise ValueError(f"{n} values do not fill shape {shape}")
        return target(out, n, self.dtype, shape, self.kind)


class Target:
    """Where a result is written, and the object that the caller gets for it.

    `flat` is a 1-D, contiguous, aligned, native-endian, writable ndarray: the memory of the result
    itself wherever possible. Write it, then `return target.finish()`, once.
    """

    __slots__ = ("flat", "_out", "_last")

    def __init__(self, flat, out, last=None):
        self.flat = flat
        self._out = out
        self._last = last       # the step between a written `flat` and the result, if there is one

    def aliases(self, view):
        """Whether writing `flat` changes the values of `view`: a call in place, or any overlap."""
        return _native.overlap(self.flat, view.flat)

    def finish(self):
        """The result, complete: the very `out` that was given, else an array of the view's kind."""
        return self._out if self._last is None else self._last()


def view(x):
    """See an array of any kind as flat, native values.

    Parameters
    ----------
    x : ndarray or numpy scalar; a host array with DLPack; or an object with the buffer protocol
        Any shape and layout: strided, Fortran-ordered, read-only, unaligned, byte-swapped, empty.

    Raises
    ------
    TypeError
        `x` is no array (lists and Python's numbers are not), its dtype is not one of `DTYPES`, it
        is masked (the mask would be dropped), or it is not in host memory.
    Whatever x's library raises when it is asked for the memory, such as torch's BufferError for a
    tensor that requires grad.
    """
    array, kind = (x, None) if type(x) is ndarray else _ndarray(x)
    code = _CODES.get(array.dtype)
    if code is None or not array.flags.aligned:
        native = array.dtype.newbyteorder("=")
        code = dtype_code(native)
        array = array.astype(native, order="C")
    # ravel copies what is not contiguous, in C order, and nothing else.
    return View(array.ravel(), code, array.shape, kind)


def target(out, n, dtype, shape=None, kind=None):
    """A `Target` for n values of a dtype: `out`, or a fresh array where `out` is None.

    Parameters
    ----------
    out : None, or a writable array of any kind that `view` takes, of any shape
        Where it is contiguous, aligned and native, its own memory is the target's `flat`. It may
        be the input of the same call: a result in place.
    n, dtype : what the result has; `dtype` is one of `DTYPES`
    shape : of a fresh array; flat where none is given
    kind : of a fresh array, as in `View`

    Raises
    ------
    TypeError
        `out` is not an array or has another dtype.
    ValueError
        `out` has another number of values, is read-only, or has values that share memory.
    """
    if out is None:
        if kind is not None:
            flat = empty(n, dtype)
            return Target(flat, None, partial(_as_kind, kind, flat, (n,) if shape is None else shape))
        array = out = empty(n if shape is None else shape, dtype)
    elif type(out) is ndarray:
        array = out
    else:
        array, _ = _ndarray(out)
        if isinstance(out, np.generic):
            raise TypeError(f"out: expected {n} writable values of {dtype}, got a numpy scalar")
        if type(out).__module__.partition(".")[0] in _IMMUTABLE:
            raise TypeError(f"out: expected {n} writable values of {dtype}, got "
                            f"{_name(type(out))}, whose values never change")
    flags = array.flags
    if flags.carray and array.size == n and array.dtype == dtype:
        return Target(array.ravel(), out)

    got = array.dtype
    if got.newbyteorder("=") != dtype:
        raise TypeError(f"out: expected {n} values of {dtype}, got {array.size} of {got}")
    if array.size != n:
        raise ValueError(f"out: expected {n} values of {dtype}, got {array.size}")
    if not flags.writeable:
        raise ValueError(f"out: expected {n} writable values of {dtype}, got a read-only array")
    if any(step == 0 and length > 1 for step, length in zip(array.strides, array.shape)):
        raise ValueError(f"out: expected {n} values of {dtype}, got a broadcast array, "
                         "whose values share memory")
    flat = empty(n, dtype)
    return Target(flat, out, partial(_copy_back, flat, array, out))


def _copy_back(flat, array, out):
    array[...] = flat.reshape(array.shape)
    return out


def _as_kind(kind, flat, shape):
    array = flat.reshape(shape)
    if kind is None:
        return array
    # As bytes, since ml_dtypes' arrays refuse the buffer protocol.
    return kind(_dlpack.Lent(flat.view(np.uint8), array.shape, _TO_DLPACK[flat.dtype]))


def _ndarray(x):
    """Any array on the host: a plain ndarray over its memory (a scalar's is a copy), and its kind."""
    if isinstance(x, ndarray | np.generic):
        if isinstance(x, np.ma.MaskedArray):
            raise TypeError("expected an array, got a masked array, whose mask would be dropped: "
                            "fill it first (x.filled(...))")
        return np.asarray(x), None
    if hasattr(x, "__dlpack__"):
        if x.__dlpack_device__()[0] not in _dlpack.HOST:
            raise _on_a_device(x)
        tensor = _dlpack.Borrowed(x)
        dtype = _FROM_DLPACK.get(tensor.dtype)
        if dtype is None:
            raise TypeError("expected an array of a supported dtype, got {} with DLPack's (code, "
                            "bits, lanes) = {}".format(_name(type(x)), tensor.dtype))
        return ndarray(tensor.shape, dtype, tensor, tensor.offset, tensor.strides), _kind(x)
    if hasattr(x, "__cuda_array_interface__"):
        raise _on_a_device(x)
    try:
        buffer = memoryview(x)
    except TypeError:
        raise TypeError("expected an array (numpy, an array library with DLPack such as torch, or "
                        f"an object with the buffer protocol), got {_name(type(x))}") from None
    return np.asarray(buffer), None


def _on_a_device(x):
    return TypeError(f"expected an array in host memory, got {_name(type(x))} on a device, and this "
                     "build of thinwire has no CUDA: copy it to the host first")


def _name(type):
    return type.__qualname__ if type.__module__ == "builtins" else f"{type.__module__}.{type.__qualname__}"


def _kind(x):
    """The `from_dlpack` of the library of a DLPack producer; None if it has none."""
    namespace = getattr(x, "__array_namespace__", None)
    if namespace is not None:       # the array API's way: jax, cupy, ...
        return getattr(namespace(), "from_dlpack", None)
    return _kind_of_type(type(x))


@lru_cache(maxsize=64)
def _kind_of_type(type):
    # torch has no array namespace, but its root module has the function. Bases count, since users
    # derive their own classes from torch.Tensor.
    for base in type.__mro__:
        root = sys.modules.get(base.__module__.partition(".")[0])
        if hasattr(root, "from_dlpack"):
            return root.from_dlpack
    return None
