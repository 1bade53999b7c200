from __future__ import annotations

import functools
import math
import struct

import ml_dtypes
import numpy as np

from .. import _native
from .array import DTYPES
from .codec import Codec, Real, Stage, param
from .range_float import RangeFloat

_STAGES = {row.number: row for row in _native.kernels().values()}
_F64 = 2  # dtype codes: float64 has a spectrum of its own type, every other dtype one of float32
_LARGEST = {code: float(ml_dtypes.finfo(DTYPES[code]).max) for code in range(1, 5)}


class _Shape:
    """Where things stand in the wire of n values: `kept` of `frequencies`, `bitmap` bytes, then the stage's wire of `values` numbers; or the values, raw."""

    def __init__(self, params, n, dtype):
        keep, number, inner = _PARAMS.unpack(params)
        self.stage = _STAGES[number]
        self.inner = inner[: self.stage.params_size]
        self.code = _F64 if dtype == _F64 else 1
        self.frequencies = n // 2 + 1
        self.kept = math.ceil(keep * self.frequencies)
        self.bitmap = -(-self.frequencies // 8) if self.kept < self.frequencies else 0
        self.values = 2 * self.kept
        self.bound = self.bitmap + self.stage.bound(self.inner, self.values, self.code)
        raw = n * DTYPES[dtype].itemsize
        self.raw = not n or self.bound > raw + 8  # imaginary parts that are 0 whatever the array, two at most, are no reason
        if self.raw:
            self.bound = raw


_PARAMS = struct.Struct("=d" + Stage.code)
_shape = functools.lru_cache(maxsize=256)(_Shape)


class _Kernels:
    """What _native.Kernels are to native codecs: the same methods, in numpy. Their arguments are checked as there."""

    name, number, params_size, shares = "fft", 128, _PARAMS.size, False

    @staticmethod
    def takes(dtype):
        return dtype in _LARGEST

    @staticmethod
    def granule(params):
        return 0

    @staticmethod
    def bound(params, n, dtype):
        if not 0 <= n < 1 << 64:
            raise OverflowError(f"{n} is no number of values")
        return _shape(params, n, dtype).bound

    @classmethod
    def encode(cls, params, x, start, n, dtype, wire, at, seed=0, first=0, residual=None, residual_start=0):
        shape = _shape(params, n, dtype)
        if shape.raw:
            return _native.IDENTITY.encode(b"", x, start, n, dtype, wire, at, seed, first, residual, residual_start)
        u, room = _part(x, start, n, "x"), _part(wire, at, shape.bound, "wire")
        if residual is not None:
            rest = _part(residual, residual_start, n, "residual")
            with np.errstate(over="ignore", invalid="ignore"):
                u = u.astype(rest.dtype) + rest
        scaled, exponent = _scaled(u)
        if scaled is None:
            chosen, values = np.arange(shape.frequencies) < shape.kept, np.full(shape.values, np.nan, DTYPES[shape.code])
        else:
            spectrum = np.fft.rfft(scaled, norm="forward")
            chosen = _largest(spectrum, shape.kept)
            values = _unscaled(spectrum[chosen].view(np.float64), exponent, shape.code)
        if shape.bitmap:
            room[: shape.bitmap] = np.packbits(chosen, bitorder="little")
        used = shape.bitmap + shape.stage.encode(shape.inner, values, 0, shape.values, shape.code, wire, at + shape.bitmap, seed)
        if residual is not None and scaled is not None:
            with np.errstate(over="ignore"):
                lost = u - cls._decoded(shape, wire, at, used, n)
            np.copyto(rest, lost, where=np.isfinite(lost))
        return used

    @classmethod
    def decode(cls, params, wire, at, size, y, start, n, dtype, mode=_native.SET, scale=1.0):
        shape = _shape(params, n, dtype)
        if shape.raw:
            return _native.IDENTITY.decode(b"", wire, at, size, y, start, n, dtype, mode, scale)
        _part(wire, at, size, "wire")
        to = _part(y, start, n, "y")
        v = cls._decoded(shape, wire, at, size, n)
        if v is None:
            return False
        if mode == _native.SET:
            if v.dtype != to.dtype:
                np.clip(v, -_LARGEST[dtype], _LARGEST[dtype], out=v)
            _native.finish_sum(v, 0, y, start, n, dtype)
            return True
        v *= v.dtype.type(scale)
        if mode == _native.ADD:
            to += v
        else:
            to[:] = v
        return True

    @staticmethod
    def _decoded(shape, wire, at, size, n):
        """The values of a wire as accumulators; None if it is none."""
        if size < shape.bitmap:
            return None
        chosen = slice(None)
        if shape.bitmap:
            bits = np.unpackbits(wire[at : at + shape.bitmap], bitorder="little").view(bool)
            chosen = bits[: shape.frequencies]
            if np.count_nonzero(bits) != shape.kept or np.count_nonzero(chosen) != shape.kept:
                return None
        values = np.empty(shape.values, DTYPES[shape.code])
        if not shape.stage.decode(shape.inner, wire, at + shape.bitmap, size - shape.bitmap, values, 0, shape.values, shape.code):
            return None
        scaled, exponent = _scaled(values)
        if scaled is None:
            return np.full(n, np.nan, values.dtype)
        spectrum = np.zeros(shape.frequencies, np.complex128)
        spectrum[chosen] = scaled.view(np.complex128)
        return _unscaled(np.fft.irfft(spectrum, n, norm="forward"), exponent, shape.code)


class Fft(Codec, name="fft"):
    """The largest frequencies of an array, coded by another codec: "fft:keep=0.15|range_float".

    X = the real Fourier transform of the array as a whole, divided by its length n. Of its n // 2 + 1 frequencies the ceil(keep * (n // 2 + 1)) of the
    largest magnitude are kept, the lower one of equals; a bitmap says which, and `then` codes their real and imaginary parts as one array. What is left out
    is, by Parseval's theorem, all that is lost beside what `then` loses. An array that this would not make shorter goes as it is.

    It transforms and selects in float64, whatever the dtype: which frequencies are kept, and so the bytes, then hardly depends on how an
    FFT was compiled, and no sum overflows. `then` gets float32, or float64 for float64 arrays. A non-finite value makes the whole array NaN. Decoded values
    beyond the dtype's largest become that. This codec is numpy's, not a kernel: expect 0.1 to 0.2 s for 16 MiB.

    Source: FFT-based Gradient Sparsification for the Distributed Training of Deep Neural Networks, Wang et al., HPDC 2020 (theta = 1 - keep).
    """

    kernels = _Kernels

    keep: float = param(0.15, Real(0.0, 1.0, above=True), "part of the frequencies that is kept")
    then: Codec = param(RangeFloat(), Stage(), "codes the kept frequencies: any codec that doesn't select itself")

    def __post_init__(self):
        super().__post_init__()
        if self.then.selects:
            raise ValueError(f"fft: then must be a codec of dense values, not {self.then.name}, which is sparse itself")


def _part(array, start, n, what):
    if start < 0 or n < 0 or start + n > array.size:
        raise ValueError(f"{what}: values {start} to {start + n} lie outside an array of {array.size}")
    return array[start : start + n]


def _scaled(u):
    """(u / 2^exponent, exponent), as float64, the largest magnitude within 1/2 to 1: nothing of it overflows. (None, 0) if u is not finite."""
    with np.errstate(invalid="ignore"):  # of signalling NaN
        u = u.astype(np.float64)
    largest = max(-u.min(), u.max())  # NaN stays NaN
    if not math.isfinite(largest):
        return None, 0
    exponent = math.frexp(largest)[1]
    return np.ldexp(u, -exponent, out=u), exponent


def _largest(spectrum, k):
    """Where the k largest magnitudes are, of equals the first: a mask."""
    if k == spectrum.size:
        return np.ones(k, bool)
    power = spectrum.real**2 + spectrum.imag**2
    limit = np.partition(power, power.size - k)[power.size - k]
    chosen = power > limit
    chosen[np.flatnonzero(power == limit)[: k - np.count_nonzero(chosen)]] = True
    return chosen


def _unscaled(values, exponent, code):
    """values * 2^exponent, float64, as accumulators; what lies beyond their largest becomes that."""
    with np.errstate(over="ignore"):
        np.ldexp(values, exponent, out=values)
    return np.clip(values, -_LARGEST[code], _LARGEST[code], out=values).astype(DTYPES[code], copy=False)
