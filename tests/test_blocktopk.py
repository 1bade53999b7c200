"""blocktopk: whole blocks, by their norms or because they are not zero."""
import numpy as np
import pytest

from thinwire import BlockTopK


def places(blocks, block, n):
    return np.concatenate([np.arange(b * block, min((b + 1) * block, n)) for b in blocks] or [np.zeros(0, int)])


@pytest.mark.parametrize("n", [0, 1, 2, 255, 256, 257, 10_007, 300_007])
def test_the_blocks_of_largest_norms(n, dtype, kit):
    x = kit.values(n, dtype)
    for block in (2, 100, 256, 65536):
        count = -(-n // block)
        norms = np.array([np.linalg.norm(kit.wide(x[at : at + block])) for at in range(0, n, block)])
        for ratio in (0.001, 0.1, 0.5, 1.0):
            k = min(max(1, round(ratio * count)), count)
            index, value, _ = kit.selected(BlockTopK(ratio, block), x)
            assert value.tobytes() == x[index].astype(value.dtype).tobytes()
            chosen = np.unique(index // block)
            assert chosen.size == k and np.array_equal(index, places(chosen, block, n))
            left = np.setdiff1d(np.arange(count), chosen)
            assert not left.size or norms[left].max() <= norms[chosen].min() * (1 + 1e-12)


def test_ties_go_to_the_lower_block(dtype, kit):
    assert np.array_equal(kit.selected(BlockTopK(0.25, 8), np.ones(128, dtype))[0], np.arange(32))


def test_blocks_that_are_not_zero(dtype, kit):
    x = np.zeros(10_007, dtype)
    x[[300, 301, 5000, 10_006]] = 1, -1, np.finfo(np.float32).tiny if dtype != np.float16 else 1, np.nan
    x[7000] = -0.0
    index, value, poison = kit.selected(BlockTopK(choose="nonzero"), x)
    assert np.array_equal(index, places([1, 19, 39], 256, x.size)) and value.tobytes() == x[index].astype(value.dtype).tobytes() and not poison
    assert kit.selected(BlockTopK(choose="nonzero"), np.zeros(1000, dtype))[0].size == 0


@pytest.mark.parametrize("dtype, scales", [(np.float32, (1e-44, 1e-30, 1e30, 1e37)), (np.float64, (1e-320, 1e-300, 1e300, 1e307))], ids=["float32", "float64"])
def test_norms_neither_overflow_nor_vanish(dtype, scales, kit):
    x = np.ones(1024)
    x[600] = 3
    for scale in scales:
        assert np.array_equal(kit.selected(BlockTopK(0.25), (x * scale).astype(dtype))[0], np.arange(512, 768))


def test_non_finite_values(kit):
    x = kit.values(1024)
    x[700] = np.inf
    assert np.array_equal(kit.selected(BlockTopK(0.25), x)[0], np.arange(512, 768)) and not kit.selected(BlockTopK(0.25), x)[2]
    x[100] = np.nan
    index, _, poison = kit.selected(BlockTopK(0.25), x)
    assert np.array_equal(index, np.arange(256)) and poison
