"""randomk: every set of places is equally likely, and follows from the seed and the count alone."""
import itertools
import math

import numpy as np
import pytest

from thinwire import RandomK


@pytest.mark.parametrize("n", [1, 2, 3, 100, 4095, 4096, 4097, 100_003])
def test_exactly_k_places(n, dtype, kit):
    x = kit.values(n, dtype)
    for k in {1, max(1, n // 100), max(1, n // 2), n}:
        for seed in (0, 1, 2**64 - 1):
            index, value, poison = kit.selected(RandomK(k=k), x, seed)
            assert index.size == k == np.unique(index).size and index[-1] < n and not poison
            assert value.tobytes() == x[index].astype(value.dtype).tobytes()
            assert np.array_equal(index, kit.selected(RandomK(k=k), np.zeros(n, np.float64), seed)[0])


def test_every_set_is_as_likely(kit):
    """All 15 pairs of 6 places, and all sets of 3 of 5."""
    for n, k in ((6, 2), (5, 3), (7, 1)):
        x, seeds = np.zeros(n, np.float32), 6000
        sets = {c: 0 for c in itertools.combinations(range(n), k)}
        for seed in range(seeds):
            sets[tuple(int(i) for i in kit.selected(RandomK(k=k), x, seed)[0])] += 1
        expected = seeds / math.comb(n, k)
        chi = sum((c - expected) ** 2 / expected for c in sets.values())
        free = len(sets) - 1
        assert abs(chi - free) < 5 * math.sqrt(2 * free)


def test_places_are_spread_evenly(kit):
    n, k = 1 << 20, 1 << 14
    x = np.zeros(n, np.float32)
    gaps, parts = [], np.zeros(64)
    for seed in range(20):
        index = kit.selected(RandomK(k=k), x, seed)[0].astype(np.int64)
        parts += np.bincount(index * 64 // n, minlength=64)
        gaps.append(np.diff(index))
    expected = 20 * k / 64
    assert abs(((parts - expected) ** 2 / expected).sum() - 63) < 5 * math.sqrt(126)
    gaps = np.concatenate(gaps)
    assert gaps.var() == pytest.approx((1 - k / n) * (n / k) ** 2, rel=0.03)  # geometric
    same = np.intersect1d(kit.selected(RandomK(k=k), x, 1)[0], kit.selected(RandomK(k=k), x, 2)[0]).size
    assert abs(same - k * k / n) < 6 * math.sqrt(k * k / n)


def test_no_indices_are_sent(kit):
    x = kit.values(100_000)
    assert RandomK(0.01).encode(x, seed=3).size <= 4 * 1000 + 32


def test_what_is_not_looked_at_may_be_anything(kit):
    x = kit.values(1000)
    places = kit.selected(RandomK(0.1), x, 4)[0]
    x[np.setdiff1d(np.arange(1000), places)[:5]] = np.nan
    assert np.isfinite(kit.decoded(RandomK(0.1), x, 4)).all()
    x[places[3]] = np.inf
    assert not np.isfinite(kit.decoded(RandomK(0.1), x, 4)[places[3]])
