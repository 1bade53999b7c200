"""clt_k: the largest of each chunk, and how much of an array's energy that leaves (the figures of methods for ScaleCom)."""
import numpy as np
import pytest

import thinwire as tw
from thinwire import CltK, TopK


@pytest.mark.parametrize("n", [1, 2, 7, 100, 101, 1009, 70_001, 300_007])
def test_the_largest_of_each_chunk(n, dtype, kit):
    x = kit.values(n, dtype)
    magnitude = np.abs(kit.wide(x))
    for k in {1, min(2, n), max(1, n // 100), max(1, n // 7), max(1, n - 1), n}:
        cuts = [n * i // k for i in range(k + 1)]
        expected = [a + int(np.argmax(magnitude[a:b])) for a, b in zip(cuts, cuts[1:])]  # the first of equals
        index, value, _ = kit.selected(CltK(k=k), x)
        assert np.array_equal(index, expected) and value.tobytes() == x[index].astype(value.dtype).tobytes()


def test_exact_is_topk(dtype, kit):
    for n in (1, 1000, 30_000):
        x = kit.values(n, dtype)
        for a, b in zip(kit.selected(CltK(0.03, method="exact"), x), kit.selected(TopK(0.03), x)):
            assert np.array_equal(a, b)


def test_non_finite_values(kit):
    x = kit.values(100)
    x[17], x[18], x[55] = np.inf, np.nan, -np.inf
    index, _, poison = kit.selected(CltK(k=10), x)
    assert 18 in index and 17 not in index and 55 in index and poison
    x[17] = 0
    assert not kit.selected(CltK(k=10), x)[2]


def test_energy_left_unsent(kit):
    """8 ranks, 2 % common large coordinates and noise, k = 1 %: 0.131 of the mean's energy is left by its own top k, 0.135 by the leader's exact selection,
    0.304 by its chunked one, 0.987 by a random one."""
    rng = np.random.default_rng(5)
    common = np.where(rng.random(200_000) < 0.02, 10 * rng.standard_normal(200_000), 0)
    shares = [(common + rng.standard_normal(200_000)).astype(np.float32) for _ in range(8)]
    mean = np.mean(shares, axis=0, dtype=np.float64)
    for spec, x, unsent in (("topk", mean, 0.131), ("clt_k:method=exact", shares[0], 0.135), ("clt_k", shares[0], 0.304), ("randomk", shares[0], 0.987)):
        index = kit.selected(tw.codec(spec), x)[0]
        assert 1 - (mean[index] ** 2).sum() / (mean**2).sum() == pytest.approx(unsent, rel=0.015)
