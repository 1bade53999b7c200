"""adacomp: what has grown large in its bin, and the published steady state."""
import numpy as np
import pytest

from thinwire import AdaComp


def reference(x, u, bin, factor):
    """Indices and values in float64."""
    x, u = x.astype(np.float64), u.astype(np.float64)
    index, tops = [], []
    for at in range(0, x.size, bin):
        g = np.abs(u[at : at + bin])
        tops.append(g.max())
        h = np.abs(u[at : at + bin] + (factor - 1) * x[at : at + bin])
        index.append(at + np.flatnonzero((h >= tops[-1]) & (g > 0)))
    index = np.concatenate(index) if index else np.zeros(0, int)
    return index, np.sign(u[index]) * (np.mean(tops) if tops else 0)


@pytest.mark.parametrize("n", [0, 1, 7, 50, 51, 499, 500, 501, 10_007])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_what_has_grown_large(n, dtype, kit):
    for bin in (8, 50, 500, 16384):
        for factor in (1.0, 1.5, 2.0, 3.0):
            x = np.round(64 * kit.values(n, np.float64)).astype(dtype) / 64  # sums and products are exact
            residual = np.round(256 * kit.values(n, np.float64, seed=1)).astype(dtype) / 64
            u = x + residual
            index, value, _ = kit.selected(AdaComp(bin, factor), x, residual=residual)
            expected, values = reference(x, u, bin, factor)
            assert np.array_equal(index, expected) and np.allclose(value, values, rtol=1e-6, atol=0)
            u[index] -= value
            assert residual.tobytes() == u.tobytes()


# entries a bin in the steady state: normal and Laplace
@pytest.mark.parametrize("bin, expected", [(50, (5.0, 3.9)), (500, (6.3, 5.6))])
def test_steady_state(bin, expected, kit):
    n = 500 * bin
    for law, entries in zip((lambda rng: rng.standard_normal(n), lambda rng: rng.laplace(size=n)), expected):
        rng, residual, counts = np.random.default_rng(3), np.zeros(n, np.float32), []
        for step in range(300):
            index = kit.selected(AdaComp(bin), law(rng).astype(np.float32), residual=residual)[0]
            if step >= 200:
                counts.append(np.bincount(index // bin, minlength=n // bin))
        assert np.mean(counts) == pytest.approx(entries, rel=0.1)
        assert np.mean(np.array(counts) == 0) < 0.01


def test_a_bin_may_stay_empty(kit):
    """Where the newest gradient points against what has gathered."""
    residual = np.float32([4, 1, 1, 1, 1, 1, 1, 1])
    x = np.float32([-2, 0, 0, 0, 0, 0, 0, 0])
    assert kit.selected(AdaComp(8), x, residual=residual)[0].size == 0
    assert kit.decoded(AdaComp(8), np.zeros(8, np.float32)).tobytes() == bytes(32)


def test_order_within_a_bin_is_no_matter(kit):
    x, rng = kit.values(5000), np.random.default_rng(0)
    order = np.concatenate([at + rng.permutation(500) for at in range(0, 5000, 500)])
    assert np.array_equal(kit.decoded(AdaComp(), x)[order], kit.decoded(AdaComp(), x[order]))


def test_non_finite_values(dtype, kit):
    x = kit.values(1000, dtype)
    clean = kit.selected(AdaComp(), x)
    x[[3, 700]] = np.nan, -np.inf
    index, value, poison = kit.selected(AdaComp(), x)
    assert not poison and {3, 700} <= set(index) and not np.isfinite(value[np.isin(index, [3, 700])]).any()
    assert np.isfinite(value[~np.isin(index, [3, 700])]).all()
    assert kit.selected(AdaComp(), np.full(100, 1e-45, np.float32))[0].size == 100 and clean[0].size
    top = np.full(1000, np.finfo(np.float64).max)
    assert np.array_equal(kit.selected(AdaComp(), top)[1], top)
