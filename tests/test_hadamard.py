"""hadamard: the rotation bit for bit against numpy, what it does to errors, residuals and non-finite values."""

import ml_dtypes
import numpy as np
import pytest

import thinwire as tw
from thinwire import Bf16, BlockInt, Hadamard, Natural, Raw
from thinwire.compress.array import dtype_code

SIZES = [0, 1, 2, 31, 32, 33, 255, 256, 257, 1023, 1025, 4095, 4096, 4097, 10007]


def signs(key, m):
    """+-1 by place in a run, from the definitions in numeric.h."""
    mask = (1 << 64) - 1
    z = key + 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    key = np.uint32((z ^ z >> 31) >> 16 & 0xFFFFFFFF)
    h = np.arange(256, dtype=np.uint32) * np.uint32(0x9E3779B9) ^ key
    h ^= h >> 16
    h *= np.uint32(0x85EBCA6B)
    h ^= (h >> 13) ^ (key >> 3)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> 16
    i = np.arange(m)
    return 1 - 2 * (h[i % 256] >> (i // 256).astype(np.uint32) & 1).astype(np.float32)


def butterflies(v, distances):
    for d in distances:
        pairs = v.reshape(-1, 2, d)
        v = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).reshape(-1)
    return v


def cuts(x, block):
    """(slice of the array, slice of its run) of every cut."""
    for run in range(0, len(x), block):
        at, m = 0, min(block, len(x) - run)
        while at < m:
            size = 1 << (m - at).bit_length() - 1
            yield slice(run + at, run + at + size), slice(at, at + size)
            at += size


def rotated(x, block, key):
    y = np.empty_like(x)
    for whole, place in cuts(x, block):
        k = (place.stop - place.start).bit_length() - 1
        v = x[whole] * signs(key, block).astype(x.dtype)[place] * x.dtype.type(2.0 ** -((k + 1) // 2))
        y[whole] = butterflies(v, [2**i for i in range(k)])
    return y


def rotated_back(y, block, key):
    x = np.empty_like(y)
    for whole, place in cuts(y, block):
        k = (place.stop - place.start).bit_length() - 1
        v = butterflies(y[whole], [2**i for i in [*range(5, k), *range(min(k, 5))]])
        x[whole] = v * signs(key, block).astype(y.dtype)[place] * y.dtype.type(2.0 ** -(k // 2))
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("block", [1024, 2048, 4096, 8192])
@pytest.mark.parametrize("n", SIZES)
def test_rotation(n, block, dtype, monkeypatch):
    monkeypatch.setattr(Raw, "identity", False)  # refused as pointless, but it shows the rotation itself
    x = np.random.default_rng(n).standard_normal(n).astype(dtype)
    codec = Hadamard(block=block, key=n, then=Raw())
    wire = codec.encode(x)
    y = rotated(x, block, n)
    assert wire.tobytes() == y.tobytes()
    back = codec.decode(wire, np.empty_like(x))
    assert back.tobytes() == rotated_back(y, block, n).tobytes()
    np.testing.assert_allclose(back, x, atol=64 * np.finfo(dtype).eps)


def test_signs_are_even():
    for key in range(5):
        s = signs(key, 8192)
        assert abs(s.sum()) < 4 * np.sqrt(8192) and abs((s[:-1] * s[1:]).sum()) < 4 * np.sqrt(8192) and abs((s[256:] * s[:-256]).sum()) < 4 * np.sqrt(8192)


@pytest.mark.parametrize("then", ["int4", "int8:block=4096", "sign", "ternary", "natural:rounding=nearest"])
def test_wire_is_the_inner_codecs(then):
    x = np.random.default_rng(5).standard_normal(150001).astype(np.float32)
    codec, inner = Hadamard(then=then), tw.codec(then)
    y = rotated(x, 4096, 0)
    wire = codec.encode(x, seed=9)
    assert wire.tobytes() == inner.encode(y, seed=9).tobytes() and len(wire) == codec.bound(len(x))
    np.testing.assert_array_equal(codec.decode(wire, np.empty_like(x)), rotated_back(inner.decode(wire, np.empty_like(y)), 4096, 0))
    accumulator = np.ones_like(x)
    np.testing.assert_allclose(codec.decode(wire, accumulator, add=True) - 1, codec.decode(wire, np.empty_like(x)), atol=1e-5)
    # a piece alone gives the same bytes
    k, n = codec.granule, len(x) - codec.granule
    part = np.empty(codec.bound(n), np.uint8)
    codec.kernels.encode(codec.params, x, k, n, dtype_code(x.dtype), part, 0, 9, k)
    assert wire.tobytes() == codec.encode(x[:k], seed=9).tobytes() + part.tobytes()


def test_outliers_cost_less():
    x = np.random.default_rng(6).standard_normal(1 << 16).astype(np.float32)
    x[::256] = 10
    plain, rotation = (np.square(c.decode(c.encode(x), np.empty_like(x)) - x).mean() for c in (BlockInt(bits=4), Hadamard()))
    assert rotation < plain / 2


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64], ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_other_types(n, dtype):
    x = np.random.default_rng(n).standard_normal(n).astype(dtype)
    codec = Hadamard(then=BlockInt(bits=8))
    y = codec.decode(codec.encode(x), np.empty_like(x))
    error = np.linalg.norm(x.astype(np.float64) - y.astype(np.float64))
    assert error <= 0.03 * np.linalg.norm(x.astype(np.float64))


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_range(scale):
    x = (scale * np.random.default_rng(7).standard_normal(5000)).astype(np.float32)
    codec = Hadamard(then=BlockInt(bits=8))
    y = codec.decode(codec.encode(x), np.empty_like(x))
    assert np.linalg.norm((x - y) / scale) <= 0.02 * np.linalg.norm(x / scale)
    assert (codec.decode(codec.encode(0 * x), np.empty_like(x)) == 0).all()
    half = np.full(5000, 65504, np.float16)
    assert np.isfinite(Hadamard().decode(Hadamard().encode(half), np.empty_like(half))).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64], ids=str)
def test_residual(dtype):
    """Decoded + residual = input + what was left before, and a poisoned run leaves its residual as it was."""
    n, codec, rng = 10007, Hadamard(), np.random.default_rng(8)
    x = rng.standard_normal(n).astype(dtype)
    accumulator = np.float64 if dtype is np.float64 else np.float32
    before = rng.standard_normal(n).astype(accumulator)
    x[5000] = np.nan
    code, wire, residual, y = dtype_code(x.dtype), np.empty(codec.bound(n, x.dtype), np.uint8), before.copy(), np.zeros(n, accumulator)
    codec.kernels.encode(codec.params, x, 0, n, code, wire, 0, 3, 0, residual)
    assert codec.kernels.decode(codec.params, wire, 0, wire.size, y, 0, n, code, 1, 0.5)
    poisoned = np.s_[4096:8192]
    assert np.isnan(y[poisoned]).all() and (residual[poisoned] == before[poisoned]).all()
    u = np.delete(x.astype(accumulator) + before, poisoned)
    np.testing.assert_array_equal(np.delete(residual, poisoned), u - np.delete(2 * y, poisoned))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("then", [BlockInt(bits=4), Natural(), Bf16()], ids=str)
def test_nonfinite_stays_in_its_run(bad, then):
    codec = Hadamard(block=1024, then=then)
    for n, at in ((5000, 3000), (5000, 4999), (1, 0)):
        x = np.ones(n, np.float32)
        x[at] = bad
        y = codec.decode(codec.encode(x), np.empty_like(x))
        assert not np.isfinite(y[at]) and np.isfinite(y[: at // 1024 * 1024]).all() and np.isfinite(y[at // 1024 * 1024 + 1024 :]).all()


def test_specs_and_refusals(monkeypatch):
    assert tw.codec("hadamard|int4") == Hadamard() == eval(repr(Hadamard()), vars(tw))
    assert tw.codec("hadamard:block=2048,key=7|natural") == Hadamard(block=2048, key=7, then=Natural())
    with pytest.raises(ValueError, match="rounds, not hadamard"):
        tw.codec("hadamard|hadamard|int4")
    with pytest.raises(ValueError, match="1024 to 8192"):
        Hadamard(block=512)
    with pytest.raises(TypeError, match="then must be a codec"):
        Hadamard(then=4)
    with pytest.raises(ValueError, match="rounds"):
        Hadamard(then=Raw())
    monkeypatch.setattr(Raw, "identity", False)
    monkeypatch.setattr(Raw, "granule", 0)
    with pytest.raises(ValueError, match="as a whole"):
        Hadamard(then=Raw())
    monkeypatch.setattr(Raw, "granule", 3 << 15)
    with pytest.raises(ValueError, match="fit 65536"):
        Hadamard(block=8192, then=Raw())
