"""redsync: between k and 2k values of every law, and the search step by step."""
import numpy as np
import pytest

import thinwire as tw
from thinwire import RedSync

LAWS = {
    "normal": lambda rng, n: rng.standard_normal(n), "laplace": lambda rng, n: rng.laplace(size=n), "t3": lambda rng, n: rng.standard_t(3, n),
    "mixture": lambda rng, n: np.where(rng.random(n) < 0.01, 100, 1) * rng.standard_normal(n), "constant": lambda rng, n: np.full(n, 0.7),
    "zeros": lambda rng, n: np.zeros(n), "cauchy": lambda rng, n: rng.standard_cauchy(n), "blocks": lambda rng, n: np.sort(rng.standard_normal(n)) ** 3,
}  # fmt: skip


def magnitudes(x, sign):
    u = x.astype(np.float64)
    return {"both": np.abs(u), "positive": np.maximum(u, 0), "negative": np.maximum(-u, 0)}[sign]


def search(x, k, sign):
    """The indices that the search gives, or None where it falls back."""
    a = magnitudes(x, sign)
    mean, top, left, right = a.mean(), a.max(), 0.0, 1.0
    for _ in range(20):
        middle = (left + right) / 2
        above = np.flatnonzero((a > mean + middle * (top - mean)) & (a > 0))
        if k <= above.size <= 2 * k:
            return above
        left, right = (left, middle) if above.size < k else (middle, right)
    return None


@pytest.mark.parametrize("sign", ["both", "positive", "negative"])
@pytest.mark.parametrize("name", LAWS)
def test_between_k_and_2k(name, sign, kit):
    for dtype in (np.float32, np.float64):
        for n in (1, 2, 1000, 8192, 400_003):
            x = LAWS[name](np.random.default_rng(n), n).astype(dtype)
            for ratio in (0.0001, 0.01, 0.1, 0.7):
                k = max(1, round(ratio * n))
                there = np.count_nonzero(magnitudes(x, sign)) if sign != "both" else n
                index, value, _ = kit.selected(RedSync(ratio, sign=sign), x)
                assert min(k, there) <= index.size <= 2 * k
                expected = search(x, k, sign)
                if expected is None:  # equal values, or a tail so long that 20 steps do not part it
                    assert np.array_equal(index, kit.selected(RedSync(ratio, "trimmed", sign), x)[0])
                elif name != "constant":  # there it is the rounding of a mean that decides
                    assert np.setxor1d(index, expected).size <= 3


def test_trimmed_is_topk(dtype, kit):
    for n in (1, 100, 30_000):
        x = kit.values(n, dtype)
        for a, b in zip(kit.selected(RedSync(0.01, "trimmed"), x), kit.selected(tw.codec("topk:0.01"), x)):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("method", ["search", "trimmed"])
def test_signs(method, dtype, kit):
    x = kit.values(30_000, dtype)
    for sign, way in (("positive", 1), ("negative", -1)):
        value = kit.selected(RedSync(0.01, method, sign), x)[1]
        assert (np.sign(value) == way).all() and value.size >= 300
        least = np.abs(value).min()
        assert np.count_nonzero(way * kit.wide(x) > least) <= value.size
        for seed in (1 if way < 0 else 0, 2**63 + (way < 0)):
            assert np.array_equal(value, kit.selected(RedSync(0.01, method, "alternate"), x, seed)[1])
        few = np.where(np.arange(30_000) % 10_000, -way * np.abs(x), way * np.abs(x)).astype(dtype)
        assert kit.selected(RedSync(0.01, method, sign), few)[0].size == np.count_nonzero(few * way > 0)


def test_alternation_loses_nothing(kit):
    codec = tw.codec("redsync:0.01,sign=alternate|mean")
    residual, sent, total, wire = np.zeros(5000, np.float32), np.zeros(5000), np.zeros(5000), np.empty(codec.bound(5000), np.uint8)
    for step in range(40):
        x = kit.values(5000, seed=step)
        used = codec.kernels.encode(codec.params, x, 0, x.size, 1, wire, 0, step, 0, residual)
        y = codec.decode(wire[:used], np.empty(5000, np.float32))
        assert np.unique(y[y != 0]).size == 1 and (y.max() > 0) == (step % 2 == 0)
        sent, total = sent + y, total + x
    assert np.abs(sent + residual - total).max() < 1e-4


def test_non_finite_values(dtype, kit):
    x = kit.values(30_000, dtype)
    x[[5, 100]] = np.inf, np.nan
    for method in ("search", "trimmed"):
        index, _, poison = kit.selected(RedSync(0.01, method), x)
        assert 5 in index and 100 in index and not poison and index.size >= 300
        x[100] = 0
        assert kit.selected(RedSync(0.01, method, "negative"), x)[2]
        x[100] = np.nan
