"""threshold: what reaches it, compared exactly in every type."""
import numpy as np
import pytest

from thinwire import Threshold


def test_what_reaches_it_is_kept(dtype, kit):
    x = kit.values(10_007, dtype)
    x[[3, 50, 7000]] = np.inf, -np.inf, np.nan
    magnitude = np.abs(kit.wide(x))
    exact = float(magnitude[100])
    for t in (0.0, 5e-324, 1e-3, 0.5, exact, np.nextafter(exact, 9), np.nextafter(exact, 0), 3.0, 1e300):
        index, value, poison = kit.selected(Threshold(t), x)
        assert np.array_equal(index, np.flatnonzero(~(magnitude < t))) and not poison
        assert value.tobytes() == x[index].astype(value.dtype).tobytes()


@pytest.mark.parametrize("t, kept", [(0.1, [0.1]), (np.float32(0.1), [0.1]), (np.nextafter(np.float64(np.float32(0.1)), 1), [])])
def test_between_two_floats(t, kept, kit):
    """A threshold that no float equals keeps the floats above it: float32(0.1) is above 0.1."""
    x = np.float32([np.nextafter(np.float32(0.1), np.float32(0)), 0.1])
    assert np.array_equal(kit.selected(Threshold(float(t)), x)[1], np.float32(kept))


def test_zero_keeps_all(kit):
    for x in (np.zeros(100, np.float32), np.float32([-0.0, 1e-45, -1]), np.empty(0, np.float32)):
        index, value, _ = kit.selected(Threshold(0.0), x)
        assert index.size == x.size and value.tobytes() == x.tobytes()


def test_range():
    for wrong in (-1.0, -1e-300, np.inf, np.nan):
        with pytest.raises(ValueError):
            Threshold(wrong)
