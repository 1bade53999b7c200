"""topk: the exact k largest against a sort, on inputs made to mislead its sample too."""
import ml_dtypes
import numpy as np
import pytest

import thinwire as tw
from thinwire import TopK

SIZES = [1, 2, 5, 63, 64, 65, 1000, 8191, 8192, 8193, 65536, 300_007]
PARTS = [0.0, 0.001, 0.01, 0.1, 0.5, 0.99, 1.0]


def largest(x, k):
    """Indices of the k largest magnitudes, NaN largest of all, the lower index first among equals; ascending."""
    key = np.abs(x.astype(np.float64))
    key[np.isnan(key)] = np.inf
    key = np.stack([np.isnan(x.astype(np.float64)), key])
    return np.sort(np.lexsort((np.arange(x.size), -key[1], ~key[0].astype(bool)))[:k])


def inputs(n):
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n)
    yield x
    yield rng.laplace(size=n)
    yield rng.integers(-7, 8, n).astype(np.float64)
    yield np.where(rng.random(n) < 0.005, x, 0)
    yield np.zeros(n)
    yield np.full(n, -2.5)
    yield np.arange(n, dtype=np.float64)
    yield -np.arange(n, dtype=np.float64)[::-1]
    yield np.where(np.arange(n) // (n // 97 + 1) == 50, 100 + x, 0.001 * x)
    yield np.where(rng.random(n) < 0.02, rng.choice([np.nan, -np.nan, np.inf, -np.inf], n), x)
    yield np.full(n, np.nan)
    yield x * 1e-42
    yield np.where(np.arange(n) % 512 < 16, 5, 1e-3 * np.arange(n) / n)
    yield np.where(np.arange(n) < n // 2, 1e-9 * x, x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
def test_exactly_the_largest(n, dtype, kit):
    with np.errstate(over="ignore"):
        for x in inputs(n):
            x = x.astype(dtype)
            for part in PARTS:
                k = max(1, round(part * n))
                index, value, _ = kit.selected(TopK(k=k), x)
                assert np.array_equal(index, largest(x, k)) and value.tobytes() == x[index].tobytes()


def test_arrays_built_against_the_sample(kit):
    """Large values just where the sample looks: select.cpp's hash, again."""
    n = 1 << 20
    lines = n // 512
    h = np.arange(lines, dtype=np.uint32) * np.uint32(0x9E3779B9) ^ np.uint32(0x7A3D1C65)
    h ^= h >> 16
    h *= np.uint32(0x85EBCA6B)
    h ^= (h >> 13) ^ np.uint32(0x7A3D1C65 >> 3)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> 16
    for each, dtype in ((16, np.float32), (8, np.float64)):
        places = np.arange(lines) * 512 + (h / 2**32 * (512 - each + 1)).astype(np.int64)
        sampled = (places[:, None] + np.arange(each)).ravel()
        for large in (np.full(sampled.size, 5.0), 10 + np.random.default_rng(0).standard_normal(sampled.size)):
            x = (1e-3 * np.arange(n) / n).astype(dtype)
            x[sampled] = large
            for k in (1, n // 1000, n // 100, n // 10, n // 2):
                assert np.array_equal(kit.selected(TopK(k=k), x)[0], largest(x, k))


def test_how_many(dtype, kit):
    for n, ratio, k in [(1, 0.01, 1), (49, 0.01, 1), (150, 0.01, 2), (149, 0.01, 1), (1000, 0.0104, 10), (1000, 1.0, 1000), (10, 1e-300, 1), (7, 0.5, 4)]:
        x = kit.values(n, dtype)
        assert kit.selected(TopK(ratio), x)[0].size == k
        assert kit.selected(TopK(0.5, k=3), x)[0].size == min(3, n)
    assert kit.selected(TopK(), np.empty(0, dtype))[0].size == 0
    assert kit.selected(TopK(k=2**48), kit.values(100, dtype))[0].size == 100
    for wrong in ({"ratio": 0.0}, {"ratio": -0.1}, {"ratio": 1.1}, {"k": -1}, {"k": 2**48 + 1}):
        with pytest.raises(ValueError):
            TopK(**wrong)


def test_spec():
    assert tw.codec("topk:0.01") == TopK(0.01) and tw.codec("topk:k=100") == TopK(k=100) and TopK.algebra == "union"
    assert tw.codec("topk:0.001|int8") == TopK(0.001, then=tw.codec("int8")) and TopK() == TopK(0.01)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_ties_of_narrow_types(dtype, kit):
    x = kit.values(100_000, dtype)
    for k in (1, 100, 1000, 30_000):
        assert np.array_equal(kit.selected(TopK(k=k), x)[0], largest(x, k))


def test_scale_changes_nothing(kit):
    x = kit.values(100_000, np.float64)
    for scale in (1e-300, 1e-30, 3.0, 1e30, 1e300):
        assert np.array_equal(kit.selected(TopK(), x * scale)[0], kit.selected(TopK(), x)[0])


def test_feedback_keeps_all_that_is_not_sent(dtype, kit):
    """Law 7: what is kept of x + residual leaves it whole, and nothing else changes."""
    residual = np.zeros(5000, kit.accumulator(dtype))
    for step in range(10):
        x = kit.values(5000, dtype, seed=step)
        u = x.astype(residual.dtype) + residual
        index, value, _ = kit.selected(TopK(0.02), x, residual=residual)
        assert np.array_equal(index, largest(u, 100)) and value.tobytes() == u[index].tobytes()
        u[index] = 0
        assert residual.tobytes() == u.tobytes()


def test_no_selection_of_as_many_values_is_better(kit):
    x = kit.values(20_000, np.float64)
    left = np.linalg.norm(x - kit.decoded(TopK(0.05), x))
    for spec in ("randomk:0.05", "clt_k:0.05", "blocktopk:0.05"):
        assert np.linalg.norm(x - kit.decoded(tw.codec(spec), x)) > left
