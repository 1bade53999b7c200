"""The casts against a search for the nearest of all values that a format has, and against ml_dtypes' own conversions."""

import ml_dtypes
import numpy as np
import pytest

import thinwire as tw
from thinwire.compress.array import dtype_code

FORMATS = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp8_e4m3": ml_dtypes.float8_e4m3fn, "fp8_e5m2": ml_dtypes.float8_e5m2}
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
every_format = pytest.mark.parametrize("name", FORMATS)
every_float = pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: np.dtype(t).name)
either = pytest.mark.parametrize("saturate", [True, False])


@pytest.fixture(autouse=True)
def quiet():
    """Infinities, NaN and overflow are meant here."""
    with np.errstate(all="ignore"):
        yield


def magnitudes(narrow):
    """The finite values of a format from 0 up, by code, as float64."""
    bits = np.arange(1 << (8 * np.dtype(narrow).itemsize - 1), dtype=f"u{np.dtype(narrow).itemsize}")
    values = bits.view(narrow).astype(np.float64)
    return values[np.isfinite(values)]


def nearest(x, table):
    """Codes of the values of `table` (ascending) nearest to |x|; ties to the even code; the last one for everything above."""
    a = np.minimum(np.abs(x), table[-1])
    low = np.minimum(np.searchsorted(table, a, side="right") - 1, len(table) - 2)
    middle = table[low] / 2 + table[low + 1] / 2
    return low + ((a > middle) | ((a == middle) & (low % 2 == 1)))


def patterns(dtype, narrow):
    """Every bit pattern of a 16-bit type; of a wider one random bits, and the neighbourhood of all values and midpoints of `narrow`."""
    dtype = np.dtype(dtype)
    if dtype.itemsize == 2:
        return np.arange(1 << 16, dtype=np.uint16).view(dtype)
    rng = np.random.default_rng(1)
    unsigned = f"u{dtype.itemsize}"
    table = magnitudes(narrow)
    points = np.concatenate([table, table[1:] / 2 + table[:-1] / 2, table[-1] + (table[-1] - table[-2]) * np.array([0.5, 1, 2])]).astype(dtype)
    scaled = (rng.standard_normal(100_000) * 2.0 ** rng.uniform(-30, 30, 100_000)).astype(dtype)
    special = np.array([0, np.inf, np.nan, 1e30, 1e-30, 1e-45, 65504, 65519.996, 65520, 448, 464, 57344, 61440], dtype)
    special = np.concatenate([special, np.array([np.finfo(dtype).max, np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal], dtype)])
    payloads = np.array([np.inf], dtype).view(unsigned) + np.array([1, 2, 3, 1 << (dtype.itemsize * 4)], unsigned)
    random = np.frombuffer(rng.bytes(300_000 * dtype.itemsize), dtype)
    x = np.concatenate([points, np.nextafter(points, dtype.type(np.inf)), np.nextafter(points, dtype.type(0)), scaled, special, payloads.view(dtype)])
    return np.concatenate([x, -x, random])


def same_values(got, expected):
    """Equal bits, or NaN on both sides with the same sign."""
    unsigned = f"u{got.dtype.itemsize}"
    both_nan = np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    equal = (got.view(unsigned) == expected.view(unsigned)) | (both_nan & (np.signbit(got) == np.signbit(expected)))
    assert equal.all(), (got[~equal][:5], expected[~equal][:5])


def expected_cast(x, narrow, saturate):
    narrow, wide = np.dtype(narrow), x.astype(np.float64)
    table = magnitudes(narrow)
    if saturate:
        table = table[table <= float(ml_dtypes.finfo(x.dtype).max)]
    else:
        table = np.append(table, 2 * table[-1] - table[-2])      # the code after the largest value's is that of infinity, or NaN
    code = nearest(np.where(np.isfinite(wide), wide, 0), table)
    code = code.astype(f"u{narrow.itemsize}")
    infinity, nan = np.array([np.inf, np.nan]).astype(narrow).view(code.dtype) & (code.dtype.type(-1 % (1 << 8 * narrow.itemsize)) >> 1)
    code = np.where(np.isnan(wide), nan, np.where(np.isinf(wide), infinity, code)).astype(code.dtype)
    return (code | np.signbit(wide).astype(code.dtype) << (8 * narrow.itemsize - 1)).view(narrow)


@every_format
@every_float
@either
def test_every_value_goes_to_the_nearest(name, dtype, saturate):
    x = patterns(dtype, FORMATS[name])
    wire = tw.codec(f"{name}:saturate={str(saturate).lower()}").encode(x)
    same_values(wire.view(FORMATS[name]), expected_cast(x, FORMATS[name], saturate))


@every_format
def test_float32_casts_as_ml_dtypes_does(name):
    x = patterns(np.float32, FORMATS[name])
    same_values(tw.codec(name + ":saturate=false").encode(x).view(FORMATS[name]), x.astype(FORMATS[name]))


@every_format
@every_float
def test_every_code_decodes(name, dtype):
    narrow = np.dtype(FORMATS[name])
    codes = np.arange(1 << 8 * narrow.itemsize, dtype=f"u{narrow.itemsize}")
    expected = codes.view(narrow).astype(np.float32).astype(dtype)
    same_values(tw.codec(name).decode(codes.view(np.uint8), np.empty(codes.size, dtype)), expected)
    total = np.full(codes.size, 3, np.float64 if dtype is np.float64 else np.float32)
    tw.codec(name).decode(codes.view(np.uint8), total, add=True, dtype=dtype)
    same_values(total, 3 + codes.view(narrow).astype(total.dtype))


@every_format
@every_float
def test_finite_values_stay_finite_when_saturating(name, dtype):
    x = patterns(dtype, FORMATS[name])
    y = tw.codec(name).decode(tw.codec(name).encode(x), np.empty_like(x))
    assert (np.isfinite(y) == np.isfinite(x)).all()


@every_format
@every_float
@either
def test_the_residual_is_what_was_lost(name, dtype, saturate):
    codec = tw.codec(f"{name}:saturate={str(saturate).lower()}")
    x = patterns(dtype, FORMATS[name])
    residual = np.random.default_rng(2).standard_normal(x.size).astype(np.float64 if dtype is np.float64 else np.float32)
    u = x.astype(residual.dtype) + residual
    before, wire = residual.copy(), np.empty(codec.bound(x.size, dtype), np.uint8)
    codec.kernels.encode(codec.params, x, 0, x.size, dtype_code(np.dtype(dtype)), wire, 0, 0, 0, residual, 0)
    lost = u - wire.view(FORMATS[name]).astype(residual.dtype)
    assert np.isfinite(residual).all()
    np.testing.assert_array_equal(residual, np.where(np.isfinite(lost), lost, before))
    if dtype is np.float32 or dtype is np.float64:      # other types hold no u to compare with
        np.testing.assert_array_equal(wire, codec.encode(u))


def test_the_same_type_is_copied():
    for name, dtype in ("fp16", np.float16), ("bf16", ml_dtypes.bfloat16):
        x = np.arange(1 << 16, dtype=np.uint16)
        assert (tw.codec(name).encode(x.view(dtype)) == x.view(np.uint8)).all()
