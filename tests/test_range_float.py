"""range_float: the wire against numpy, the errors of the paper, the ends of the types' ranges."""
import ml_dtypes
import numpy as np
import pytest

import thinwire as tw
from thinwire import RangeFloat

SIZES = [0, 1, 2, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 10007]
LAYOUT = {np.dtype(np.float32): (np.uint32, 23, 0xFF), np.dtype(np.float64): (np.uint64, 52, 0x7FF)}  # pattern, mantissa bits, exponent of infinity


def round_trip(codec, x):
    return codec.decode(codec.encode(x), np.empty_like(x))


def planes(codes, bits):
    """Packed codes, by docs/wire.md."""
    if bits == 16:
        return codes.astype("<u2").tobytes()
    wire, shift = b"", 0
    for width in (8, 4, 2, 1):
        if bits & width:
            fields = codes >> shift & (1 << width) - 1
            size = -(-len(codes) * width // 8)
            plane = np.zeros(size, np.uint16)
            for k in range(8 // width):
                row = fields[k * size : (k + 1) * size]
                plane[: len(row)] |= row << k * width
            wire += plane.astype(np.uint8).tobytes()
            shift += width
    return wire


def reference(x, codec):
    """The wire of a finite array."""
    pattern_type, mantissa, infinity = LAYOUT[x.dtype]
    shift, top = mantissa - codec.mantissa, 2 ** (codec.bits - 1) - 1

    def pattern(a):
        below, rest = int(a) >> shift, int(a) & (1 << shift) - 1
        return below + (rest > 1 << shift - 1 or (rest == 1 << shift - 1 and below & 1))

    wire = b""
    blocks = [x[i : i + codec.block] for i in range(0, len(x), codec.block)]
    for group in (blocks[i : i + 16] for i in range(0, len(blocks), 16)):
        heads = payloads = b""
        for b in group:
            patterns = np.array([pattern(a) for a in np.abs(b).view(pattern_type)])
            base = max(min(patterns.max(), (infinity << codec.mantissa) - 1) - top, 0)
            heads += np.array([base << shift], pattern_type).tobytes()
            codes = np.clip(patterns - base, 0, min(patterns.max(), (infinity << codec.mantissa) - 1) - base) | np.signbit(b) << codec.bits - 1
            payloads += planes(codes.astype(np.uint16), codec.bits)
        wire += heads + payloads
    return wire


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bits, mantissa", [(4, 1), (5, 1), (7, 3), (8, 3), (8, 10), (11, 2), (12, 5), (15, 7), (16, 10)])
def test_wire(bits, mantissa, dtype):
    for n in SIZES[:-4]:
        x = np.random.default_rng(n).standard_normal(n).astype(dtype)
        x[n // 2 :: 7] = 0
        for block in (32, 256, 4096):
            codec = RangeFloat(bits=bits, mantissa=mantissa, block=block)
            assert codec.encode(x).tobytes() == reference(x, codec)


@pytest.mark.parametrize("mantissa, l2, flushed", [(1, 0.109, 0), (2, 0.054, 0), (3, 0.027, 5e-5), (4, 0.013, 0.016)])
def test_errors_of_the_paper(mantissa, l2, flushed):
    """8 bits on normal values, one range for the array: the relative error of what is kept, the L2 error, what becomes zero."""
    x = np.random.default_rng(5).standard_normal(1 << 20).astype(np.float32).reshape(-1, 4096)
    x[:, 0] = np.abs(x).max()  # every block has the range of the array
    x = x.ravel()
    codec = RangeFloat(bits=8, mantissa=mantissa, block=4096)
    y = round_trip(codec, x)
    kept = y != 0
    assert (np.abs(y - x) <= 2.0 ** -(mantissa + 1) * np.abs(x))[kept].all()
    largest = (np.abs(y - x)[kept] / np.abs(x[kept])).max()
    assert largest == pytest.approx(1 / (2 ** (mantissa + 1) + 1), rel=1e-3)  # midway between a power of two and what follows it
    error = np.linalg.norm(y - x) / np.linalg.norm(x)
    assert 0.94 * l2 <= error <= 1.03 * l2
    assert (~kept).mean() == pytest.approx(flushed, rel=0.8, abs=1e-6) and np.abs(x[~kept]).max(initial=0) < np.abs(y[kept]).min()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("bits, mantissa", [(8, 3), (8, 1), (12, 6), (16, 10)])
def test_codes_are_patterns_in_order(bits, mantissa, dtype):
    """Rising values have rising codes, the largest has the top one, neighbours differ by at most one step."""
    x = np.unique(np.linspace(0, 6, 2048).astype(np.float32).astype(dtype))
    codec = RangeFloat(bits=bits, mantissa=mantissa, block=4096)
    y = round_trip(codec, x).astype(np.float64)
    assert (np.diff(y) >= 0).all() and y[-1] == 6.0 and y[0] == 0
    assert round_trip(codec, y.astype(dtype)).astype(np.float64).tobytes() == y.tobytes()
    assert len(np.unique(y)) <= 2 ** (bits - 1)


def test_top_code():
    for largest in (1.0, 1.9999999, 3.1, 1e-20, 1e30, 3.4028235e38):
        x = np.float32([largest, -largest, largest / 3])
        wire = RangeFloat(bits=8).encode(x)
        assert wire[4] == 0x7F and wire[5] == 0xFF and 0x60 < wire[6] < 0x7F


@pytest.mark.parametrize("codec", [RangeFloat(), RangeFloat(bits=6, mantissa=1), RangeFloat(bits=16, mantissa=10)], ids=str)
def test_the_ends_of_the_range(codec):
    step = 2.0 ** -(codec.mantissa + 1)
    for dtype, largest in ((np.float32, 3.4028235e38), (np.float64, 1.7976931348623157e308), (np.float64, 1e300), (np.float32, 1e-30), (np.float64, 1e-300)):
        x = (np.random.default_rng(1).uniform(0.5, 1, 1000) * largest).astype(dtype)
        x[::2] *= -1
        y = round_trip(codec, x)
        with np.errstate(over="ignore"):
            assert np.isfinite(y).all() and (np.abs(y / x - 1) <= step).all()
    # below the smallest normal number the steps are those just above it
    tiny = np.float32(2.0**-149)
    denormal = tiny * np.random.default_rng(2).integers(-(2**23), 2**23, 500).astype(np.float32)
    assert np.abs(round_trip(codec, denormal) - denormal).max() <= 2.0**-126 * step
    assert (np.abs(denormal[round_trip(codec, denormal) == 0]) <= 2.0**-126 * step).all()
    zeros = np.float32([0, -0.0, 0, -0.0] * 100)
    assert round_trip(codec, zeros).tobytes() == zeros.tobytes()
    assert np.signbit(round_trip(codec, np.float32([1.0, -0.0, -1e-30, 1e-30]))[1:]).tolist() == [True, True, False]


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bits", [4, 8, 13, 16])
def test_poison(bad, bits):
    x = np.ones(1024, np.float32)
    x[300] = bad
    y = round_trip(RangeFloat(bits=bits), x)
    assert np.isnan(y[256:512]).all() and (np.delete(y, np.s_[256:512]) == 1).all()


def test_what_would_grow_goes_raw():
    """16-bit codes of 16-bit values and a header would be more than the values."""
    codec = RangeFloat(bits=16, mantissa=10)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = np.random.default_rng(3).standard_normal(1000).astype(dtype)
        assert codec.bound(1000, dtype) == 2000 and codec.encode(x).tobytes() == x.tobytes() == round_trip(codec, x).tobytes()
    assert codec.bound(1024) == 2048 + 16


def test_specs():
    assert tw.codec("range_float:6,mantissa=1") == RangeFloat(bits=6, mantissa=1) and tw.codec("hadamard|range_float").then == RangeFloat()
    for wrong in ("range_float:3", "range_float:17", "range_float:mantissa=0", "range_float:mantissa=11", "range_float:block=48"):
        with pytest.raises(ValueError):
            tw.codec(wrong)
