"""natural: powers of two against numpy, rounding without bias, nothing that overflows."""

import ml_dtypes
import numpy as np
import pytest

from thinwire import Natural

SIZES = [0, 1, 2, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 10007]
NEAREST = Natural(rounding="nearest")


def round_trip(codec, x, seed=0):
    return codec.decode(codec.encode(x, seed=seed), np.empty_like(x))


def reference(x, block):
    """The wire of a float array without zeros and extremes, rounded to nearest."""
    wire = b""
    blocks = [x[i : i + block] for i in range(0, len(x), block)]
    for group in (blocks[i : i + 16] for i in range(0, len(blocks), 16)):
        heads = payloads = b""
        for b in group:
            top = np.frexp(np.abs(b).max())[1]
            heads += x.dtype.type(2.0**top).tobytes()
            mantissa, exponent = np.frexp(np.abs(b))
            codes = exponent - 1 + (mantissa >= 0.75) - top + 127
            payloads += np.where(np.signbit(b), codes | 128, codes).astype(np.uint8).tobytes()
        wire += heads + payloads
    return wire


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
def test_wire(n, dtype):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32).astype(dtype)
    for block in (32, 256, 4096):
        codec = Natural(block=block, rounding="nearest")
        assert codec.encode(x).tobytes() == reference(x, block)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("scale", [1e30, 1.0, 1e-3, 1e-30])
def test_error_is_relative(scale, dtype):
    with np.errstate(over="ignore"):
        x = (scale * np.random.default_rng(3).standard_normal(10007)).astype(dtype)
    x = x[np.isfinite(x.astype(float)) & (np.abs(x.astype(float)) >= ml_dtypes.finfo(dtype).smallest_normal)]
    for codec, limit in ((NEAREST, 1 / 3), (Natural(), 1.0)):
        y = round_trip(codec, x).astype(np.float64)
        assert (np.abs(y - x.astype(np.float64)) <= limit * np.abs(x.astype(np.float64))).all()
        assert (np.frexp(np.abs(y))[0] == 0.5).all()


def test_powers_of_two_are_exact():
    x = np.ldexp(np.float32(1), np.arange(-120, 5)).astype(np.float32)
    x = np.concatenate([x, -x, [0, -0.0]]).astype(np.float32)
    for seed in range(20):
        for codec in (NEAREST, Natural()):
            assert round_trip(codec, x, seed).tobytes() == x.tobytes()


@pytest.mark.parametrize("scale", [1.0, 2.0**126, 1e-30, 2.0**-140])
def test_unbiased(scale):
    x = np.float32(scale) * np.random.default_rng(4).uniform(-1, 1, 256).astype(np.float32)
    x[0] = scale  # reaches down to 2^-126 of it
    runs = 10000
    mean = np.mean([round_trip(Natural(), x, seed).astype(np.float64) for seed in range(runs)], 0)
    a = np.abs(x.astype(np.float64))
    low = 2.0 ** np.maximum(np.floor(np.log2(np.where(a > 0, a, 1))), -149)
    deviation = np.sqrt(np.maximum((a - low) * (2 * low - a), 0) / runs)
    assert (np.abs(mean - x) <= 4.5 * deviation + a * 2**-16).all()


def test_unbiased_below_the_least_power():
    x = np.zeros(256)
    x[0], x[1], x[2] = 1.0, 0.3 * 2.0**-125, 1e-60
    y = np.mean([round_trip(Natural(), x, seed) for seed in range(10000)], 0)
    assert y[0] == 1.0 and abs(y[1] - x[1]) < 4.5 * 2.0**-125 * np.sqrt(0.21 / 1e4) and y[2] == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16], ids=str)
def test_rounding_up_does_not_overflow(dtype):
    top = ml_dtypes.finfo(dtype).max
    x = np.full(1000, top, dtype)
    x[::2] = -top
    for codec in (NEAREST, Natural()):
        for v in (x, x / dtype(1.5)):
            y = round_trip(codec, v).astype(np.float64)
            assert np.isfinite(y).all() and (np.abs(y) >= float(top) / 4).all() and (np.sign(y) == np.sign(v.astype(np.float64))).all()


def test_float16_sums_see_the_power_of_two():
    x = np.full(100, 65504, np.float16)
    y = NEAREST.decode(NEAREST.encode(x), np.zeros(100, np.float32), add=True, dtype=np.float16)
    assert (y == 65536).all() and (round_trip(NEAREST, x) == 65504).all()


@pytest.mark.parametrize("codec", [NEAREST, Natural()], ids=str)
def test_subnormals_zeros_and_poison(codec):
    tiny = np.float32(2.0**-149)
    x = tiny * np.array([1, -2, 4, 1024, 0, 0, 8, 16], np.float32)
    np.testing.assert_array_equal(round_trip(codec, x), x)
    assert (round_trip(codec, np.zeros(1000, np.float32)) == 0).all()
    for bad in (np.nan, np.inf, -np.inf):
        x = np.ones(1024, np.float32)
        x[300] = bad
        y = round_trip(codec, x)
        assert np.isnan(y[256:512]).all() and (np.delete(y, np.s_[256:512]) == 1).all()
