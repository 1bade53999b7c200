"""mx against a slow reading of the specification (OCP MX v1.0, 6.3), with ml_dtypes' types for elements and scales."""

import ml_dtypes
import numpy as np
import pytest

import thinwire as tw
from thinwire.compress.array import dtype_code

FORMATS = {
    "fp8_e4m3": (8, ml_dtypes.float8_e4m3fn),
    "fp8_e5m2": (8, ml_dtypes.float8_e5m2),
    "fp6_e3m2": (6, ml_dtypes.float6_e3m2fn),
    "fp6_e2m3": (6, ml_dtypes.float6_e2m3fn),
    "fp4_e2m1": (4, ml_dtypes.float4_e2m1fn),
    "int8": (8, None),
}
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
BLOCK, CHUNK = 32, 512
every_format = pytest.mark.parametrize("format", FORMATS)
every_float = pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: np.dtype(t).name)


@pytest.fixture(autouse=True)
def quiet():
    """Infinities, NaN and overflow are meant here."""
    with np.errstate(all="ignore"):
        yield


def elements(format):
    """The value of every code, as float64."""
    bits, element = FORMATS[format]
    codes = np.arange(1 << bits, dtype=np.uint8)
    return codes.view(np.int8) / 64 if element is None else codes.view(element).astype(np.float64)


def usable(format):
    """The values that an encoder writes: not int8's -2, which has no counterpart."""
    values = elements(format)
    return values[np.isfinite(values) & (values >= -values[np.isfinite(values)].max())]


def planes(bits, codes):
    """Codes packed as include/thinwire/pack.h says, by single fields."""
    out, shift = [], 0
    for width in (w for w in (8, 4, 2) if bits & w):
        rows = 8 // width
        size = -(-len(codes) * width // 8)
        fields = np.zeros(rows * size, np.int64)
        fields[: len(codes)] = codes >> shift & (1 << width) - 1
        out.append((fields.reshape(rows, size) << (np.arange(rows) * width)[:, None]).sum(0).astype(np.uint8))
        shift += width
    return np.concatenate(out)


def expected_chunk(format, x):
    """Wire and values of a chunk by the specification."""
    bits, _ = FORMATS[format]
    values = elements(format)
    table = values[: 1 << bits - 1]                             # magnitudes, ascending by code
    table = table[np.isfinite(table)]
    double = x.dtype == np.float64
    lowest, nan = (-1023, 2047) if double else (-127, 255)
    wide = x.astype(np.float64)
    scales, codes, decoded = [], [], []
    for block in np.split(wide, range(BLOCK, len(wide), BLOCK)):
        if not np.isfinite(block).all():
            scales.append(nan)
            codes.append(np.signbit(block) * 0)
            decoded.append(np.full(len(block), np.nan))
            continue
        top = np.abs(block).max()
        exponent = lowest if top == 0 else max(int(np.frexp(top)[1]) - 1 - (int(np.frexp(table[-1])[1]) - 1), lowest)
        a = np.minimum(np.abs(np.ldexp(block, -exponent)), table[-1])
        low = np.minimum(np.searchsorted(table, a, side="right") - 1, len(table) - 2)
        middle = (table[low] + table[low + 1]) / 2
        code = low + ((a > middle) | ((a == middle) & (low % 2 == 1)))
        negative = np.signbit(block)
        code = np.where(negative, -code & 255 if format == "int8" else code | 1 << bits - 1, code)
        scales.append(exponent - lowest)
        codes.append(code)
        decoded.append(np.ldexp(values[code], exponent))
    head = np.array(scales, np.uint16 if double else np.uint8)
    if not double:                                              # E8M0 as ml_dtypes reads it
        np.testing.assert_array_equal(head.view(ml_dtypes.float8_e8m0fnu).astype(np.float64), np.where(head == 255, np.nan, 2.0 ** (head - 127.0)))
    return np.concatenate([head.view(np.uint8), planes(bits, np.concatenate(codes))]), np.concatenate(decoded)


def expected(format, x):
    chunks = [expected_chunk(format, c) for c in np.split(x, range(CHUNK, len(x), CHUNK))]
    return np.concatenate([wire for wire, _ in chunks]), np.concatenate([values for _, values in chunks])


def samples(format, dtype):
    """Blocks of every magnitude, ties, zeros, denormals, non-finite values; and a last block that is short."""
    rng = np.random.default_rng(3)
    dtype = np.dtype(dtype)
    table = usable(format)
    spread = rng.standard_normal((300, BLOCK)) * 2.0 ** rng.integers(-60, 60, (300, 1)) * 2.0 ** rng.integers(-12, 1, (300, BLOCK))
    bits = np.frombuffer(rng.bytes(200 * BLOCK * dtype.itemsize), dtype).reshape(200, BLOCK).copy()
    bits[::2][~np.isfinite(bits[::2].astype(np.float64))] = 1
    top = table.max()
    ties = rng.choice(np.concatenate([table, table[1:] / 2 + table[:-1] / 2]), (300, BLOCK))
    ties[:, 0] = top
    near = np.nextafter(ties.astype(dtype), dtype.type(0))
    over = rng.uniform(-1, 1, (100, BLOCK)) * np.exp2(np.floor(np.log2(top)) + 1)
    tiny = np.zeros((4, BLOCK))
    tiny[1], tiny[2, 5], tiny[3] = -0.0, float(ml_dtypes.finfo(dtype).smallest_subnormal), rng.standard_normal(BLOCK) * float(ml_dtypes.finfo(dtype).tiny)
    large = rng.uniform(-1, 1, (50, BLOCK)) * float(ml_dtypes.finfo(dtype).max)
    bad = np.ones((3, BLOCK))
    bad[0, 3], bad[1, 31], bad[2, 0] = np.inf, np.nan, -np.inf
    blocks = [spread, bits, ties, ties * 2.0**-9, near, over, tiny, large, bad]
    x = np.concatenate([b.astype(dtype) for b in blocks])
    return np.append(rng.permutation(x).ravel(), x[0, :19])


@every_format
@every_float
def test_wire_and_values_are_the_specifications(format, dtype):
    codec = tw.Mx(format)
    x = samples(format, dtype)
    wire, values = expected(format, x)
    np.testing.assert_array_equal(codec.encode(x), wire)
    assert codec.bound(x.size, dtype) == wire.size
    total = codec.decode(wire, np.zeros(x.size, np.float64 if dtype is np.float64 else np.float32), add=True, dtype=dtype)
    np.testing.assert_array_equal(total, values.astype(total.dtype))
    y = codec.decode(wire, np.empty_like(x))
    np.testing.assert_array_equal(y.astype(np.float64), values.astype(dtype).astype(np.float64))


@every_format
@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 511, 512, 513, 1009])
def test_any_length(format, n):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    np.testing.assert_array_equal(tw.Mx(format).encode(x), expected(format, x)[0])


@every_format
def test_every_code_and_scale_decodes(format):
    bits, _ = FORMATS[format]
    codec, values = tw.Mx(format), elements(format)
    codes = np.resize(np.arange(1 << bits), CHUNK)
    for scales in np.arange(256, dtype=np.uint8).reshape(-1, CHUNK // BLOCK):
        wire = np.concatenate([scales, planes(bits, codes)])
        with_scale = values[codes] * np.repeat(scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float64), BLOCK)
        np.testing.assert_array_equal(codec.decode(wire, np.empty(CHUNK, np.float32)), with_scale.astype(np.float32))


@every_format
@every_float
def test_stochastic_rounding_has_no_bias(format, dtype):
    """Every value goes to one of its two neighbours, and in the mean to itself, except where it saturates."""
    table = np.unique(usable(format))
    rng = np.random.default_rng(4)
    x = rng.uniform(table[0], table[-1], CHUNK) * 2.0 ** rng.integers(-10, 1, CHUNK)
    x[::BLOCK] = table[-1]                                      # so that the scale is 1
    x = x.astype(dtype)
    wide = x.astype(np.float64)
    codec = tw.Mx(format, rounding="stochastic")
    rounds = 2000
    out = np.empty(CHUNK, np.float64 if dtype is np.float64 else np.float32)
    total = np.zeros(CHUNK)
    high = table[np.minimum(np.searchsorted(table, wide), len(table) - 1)]
    low = table[np.searchsorted(table, wide, side="right") - 1]
    for seed in range(rounds):
        out[:] = 0
        codec.decode(codec.encode(x, seed=seed), out, add=True, dtype=dtype)
        assert ((out == low) | (out == high)).all()
        total += out
    variance = (high - wide) * (wide - low) / rounds
    error = total / rounds - wide
    inner = variance > 0
    assert (error[~inner] == 0).all()
    z = error[inner] / np.sqrt(variance[inner])
    likely = variance[inner] * rounds > 0.01 * (high - low)[inner] ** 2
    assert abs((z[likely] ** 2).mean() - 1) < 0.3
    assert abs(error.sum()) < 5 * np.sqrt(variance.sum())


@every_format
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_a_bad_block_spoils_no_other_blocks_residual(format, rounding):
    codec = tw.Mx(format, rounding)
    rng = np.random.default_rng(5)
    x = rng.standard_normal(3 * CHUNK + 77).astype(np.float32)
    x[[40, CHUNK + 5]] = np.nan, np.inf
    residual = rng.standard_normal(x.size).astype(np.float32) / 16
    before, u = residual.copy(), x + residual
    wire = np.empty(codec.bound(x.size), np.uint8)
    codec.kernels.encode(codec.params, x, 0, x.size, dtype_code(x.dtype), wire, 0, 9, 0, residual, 0)
    np.testing.assert_array_equal(wire, codec.encode(u, seed=9))
    y = codec.decode(wire, np.empty_like(x))
    spoiled = np.zeros(x.size, bool)
    spoiled[BLOCK : 2 * BLOCK] = spoiled[CHUNK : CHUNK + BLOCK] = True
    np.testing.assert_array_equal(np.isnan(y), spoiled)
    np.testing.assert_array_equal(residual, np.where(spoiled, before, u - y))


def test_aliases():
    assert [tw.codec(name).format for name in ("mxfp8", "mxfp6", "mxfp4", "mxint8")] == ["fp8_e4m3", "fp6_e2m3", "fp4_e2m1", "int8"]
