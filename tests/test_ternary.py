"""ternary: digits and scales against numpy, rounding without bias."""

import numpy as np
import pytest

from thinwire import Ternary

SIZES = [0, 1, 2, 4, 5, 6, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 10007]
NEAREST = Ternary(rounding="nearest")


def round_trip(codec, x, seed=0):
    return codec.decode(codec.encode(x, seed=seed), np.empty_like(x))


def reference(x, block):
    """The wire of an array, rounded to nearest."""
    wire = b""
    blocks = [x[i : i + block] for i in range(0, len(x), block)]
    for group in (blocks[i : i + 16] for i in range(0, len(blocks), 16)):
        heads = payloads = b""
        for b in group:
            scale = np.abs(b).max()
            heads += scale.tobytes()
            row = -(-len(b) // 5)
            digits = np.zeros(5 * row, np.int64)
            digits[: len(b)] = 1 + np.sign(b) * (2 * np.abs(b).astype(np.float64) >= scale)
            payloads += (digits.reshape(5, row) * 3 ** np.arange(5)[:, None]).sum(0).astype(np.uint8).tobytes()
        wire += heads + payloads
    return wire


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
def test_wire(n, dtype):
    x = np.random.default_rng(n).standard_normal(n).astype(dtype)
    for block in (32, 256, 4096):
        codec = Ternary(block=block, rounding="nearest")
        assert codec.encode(x).tobytes() == reference(x, block)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("n", SIZES)
def test_values(n, rounding):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    y = round_trip(Ternary(rounding=rounding), x, seed=n)
    for i in range(0, n, 256):
        a, b = x[i : i + 256], y[i : i + 256]
        scale = np.abs(a).max()
        assert np.isin(b, [0, scale, -scale]).all() and (b * a >= 0).all()
        assert np.abs(b - a).max() <= scale * (0.5 if rounding == "nearest" else 1)
        assert np.abs(b)[np.abs(a) == scale] == scale


@pytest.mark.parametrize("scale", [1.0, 3e38, 1e-30, 1e-38, 1e-40])
def test_unbiased(scale):
    x = np.float32(scale) * np.linspace(-1, 1, 256, dtype=np.float32)
    s, runs = np.abs(x).max(), 10000
    mean = np.zeros(256)
    for seed in range(runs):
        mean += round_trip(Ternary(), x, seed) / np.float64(s)
    p = np.abs(x / np.float64(s))
    assert (np.abs(mean / runs - x / np.float64(s)) <= 4.5 * np.sqrt(p * (1 - p) / runs) + 2**-17).all()


def test_unbiased_in_float64_beyond_float32():
    x = 1e300 * np.linspace(-1, 1, 4096)
    mean = np.mean([round_trip(Ternary(block=4096), x, seed) for seed in range(500)], 0)
    assert np.abs(mean - x).max() <= 5 * 1e300 / np.sqrt(4 * 500)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_extremes(rounding):
    codec = Ternary(rounding=rounding)
    for dtype in (np.float32, np.float64, np.float16):
        for value in (np.finfo(dtype).max, np.finfo(dtype).smallest_normal, np.finfo(dtype).smallest_subnormal):
            x = np.where(np.arange(1000) % 3 == 0, value, -value).astype(dtype)
            np.testing.assert_array_equal(round_trip(codec, x), x)
    assert (round_trip(codec, np.zeros(1000, np.float32)) == 0).all()
    for bad in (np.nan, np.inf, -np.inf):
        x = np.ones(1024, np.float32)
        x[300] = bad
        y = round_trip(codec, x)
        assert np.isnan(y[256:512]).all() and (np.delete(y, np.s_[256:512]) == 1).all()


def test_every_byte_is_five_digits():
    x = np.ones(5, np.float32)
    for byte in range(256):
        wire = np.frombuffer(np.float32(2).tobytes() + bytes([byte]), np.uint8)
        digits = [byte // 3**k % 3 for k in range(5)]
        np.testing.assert_array_equal(NEAREST.decode(wire, np.empty_like(x)), 2.0 * np.array(digits) - 2)
