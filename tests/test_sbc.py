"""sbc: one sign, one value."""
import numpy as np
import pytest

from thinwire import Sbc


def reference(x, k):
    u = x.astype(np.float64)
    chosen = {}
    for sign in (1, -1):
        v = np.sort((sign * u)[sign * u > 0])[::-1][:k]
        chosen[sign] = (v.sum() / max(v.size, 1), v[-1] if v.size else np.inf)
    sign = 1 if chosen[1][0] > chosen[-1][0] else -1
    return np.flatnonzero((sign * u >= chosen[sign][1]) & (sign * u > 0))


@pytest.mark.parametrize("n", [1, 2, 3, 100, 1009, 30_000])
def test_the_sign_with_the_larger_mean(n, dtype, kit):
    for seed in range(4):
        normal = kit.values(n, dtype, seed)
        for x in (normal, np.abs(normal), -np.abs(normal), np.round(2 * kit.wide(normal)).astype(dtype)):
            for ratio in (0.001, 0.01, 0.3, 1.0):
                k = max(1, round(ratio * n))
                assert np.array_equal(kit.selected(Sbc(ratio), x)[0], reference(x, k))


def test_one_distinct_value(kit):
    x = kit.values(50_000)
    y = kit.decoded(Sbc(0.01), x)
    levels = np.unique(y[y != 0])
    kept = kit.selected(Sbc(0.01), x)[1].astype(np.float64)
    assert levels.size == 1 and levels[0] == pytest.approx(kept.mean(), rel=1e-6) and np.count_nonzero(y) == 500
    # Golomb's 8.1 bits an index, and a float for all values
    assert Sbc(0.01).encode(x).size <= 500 * 8.6 / 8 + 64


def test_what_is_sent_and_what_is_left_make_the_whole(kit):
    """Law 7 over steps of both signs, and a contraction in each."""
    acc, residual, sent, total, signs = np.float32, np.zeros(5000, np.float32), np.zeros(5000), np.zeros(5000), set()
    codec, wire = Sbc(0.01), np.empty(Sbc(0.01).bound(5000), np.uint8)
    for step in range(40):
        x = kit.values(5000, seed=step)
        before = np.linalg.norm(residual + x)
        used = codec.kernels.encode(codec.params, x, 0, x.size, 1, wire, 0, step, 0, residual)
        y = codec.decode(wire[:used], np.zeros(5000, acc))
        signs.add(np.sign(y[y != 0][0]))
        assert np.linalg.norm(residual) <= before * (1 + 1e-6)
        sent, total = sent + y, total + x
    assert signs == {1, -1} and np.abs(sent + residual - total).max() < 1e-4


def test_nothing_to_send(dtype, kit):
    assert kit.selected(Sbc(), np.zeros(100, dtype))[0].size == 0 and kit.selected(Sbc(), np.empty(0, dtype))[0].size == 0
    assert (kit.decoded(Sbc(), np.zeros(100, dtype)) == 0).all()
    assert kit.selected(Sbc(), np.full(100, -1.5, dtype))[0].size == 100  # all tie
