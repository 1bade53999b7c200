"""sign: bits, means, their order of summation; checked against numpy, bit for bit."""

import numpy as np
import pytest

from thinwire import Sign

SIZES = [0, 1, 2, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 10007]


def mean(magnitudes, count, dtype):
    """Mean of a block in the order of the contract: 32 lanes, then halves."""
    rows = np.zeros((-(-len(magnitudes) // 32) or 1, 32))
    rows.flat[: len(magnitudes)] = magnitudes
    lanes = np.zeros(32)
    for row in rows:
        lanes += row
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return dtype.type(lanes[0] / max(count, 1))


def reference(x, block, means):
    """The wire and the decoded values of a float32 or float64 array."""
    wire, values = b"", []
    blocks = [x[i : i + block] for i in range(0, len(x), block)]
    for group in (blocks[i : i + 16] for i in range(0, len(blocks), 16)):
        heads = payloads = b""
        for b in group:
            minus = np.signbit(b)
            a = np.abs(b).astype(np.float64)
            if means == 1:
                head = np.array([mean(a, len(b), x.dtype)], x.dtype)
                values.append(np.where(minus, -head[0], head[0]))
            else:
                head = np.array([mean(a * ~minus, (~minus).sum(), x.dtype), -mean(a * minus, minus.sum(), x.dtype)], x.dtype)
                values.append(np.where(minus, head[1], head[0]))
            heads += head.tobytes()
            plane = -(-len(b) // 8)
            bits = np.zeros(8 * plane, np.uint8)
            bits[: len(b)] = minus
            payloads += (bits.reshape(8, plane) << np.arange(8)[:, None]).sum(0).astype(np.uint8).tobytes()
        wire += heads + payloads
    return wire, np.concatenate(values) if values else x


@pytest.mark.parametrize("means", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
def test_wire_and_values(n, dtype, means):
    x = np.random.default_rng(n).standard_normal(n).astype(dtype)
    for block in (32, 256, 4096):
        codec = Sign(block=block, means=means)
        wire = codec.encode(x)
        expected, values = reference(x, block, means)
        assert wire.tobytes() == expected
        np.testing.assert_array_equal(codec.decode(wire, np.empty_like(x)), values)


@pytest.mark.parametrize("means", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_means_do_not_overflow(dtype, means):
    top = np.finfo(dtype).max
    for block in (32, 4096):
        for x in (np.full(block, top, dtype), -np.full(block, top, dtype), np.tile(np.array([top, -top], dtype), block // 2)):
            y = Sign(block=block, means=means).decode(Sign(block=block, means=means).encode(x), np.empty_like(x))
            np.testing.assert_allclose(y, x, rtol=1e-12)
    x = np.full(4096, top, dtype)
    x[1::2] /= 3
    codec = Sign(block=4096, means=means)
    np.testing.assert_allclose(codec.decode(codec.encode(x), np.empty_like(x)) / top, 2 / 3, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e30, 1.0, 1e-30, 1e-45, 0.1])
def test_one_magnitude_is_kept(scale):
    x = np.float32(scale) * np.where(np.arange(5000) % 3, 1, -1).astype(np.float32)
    for codec in (Sign(), Sign(means=2), Sign(block=4096)):
        np.testing.assert_array_equal(codec.decode(codec.encode(x), np.empty_like(x)), x)


@pytest.mark.parametrize("means", [1, 2])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_nonfinite_poisons_its_block_alone(bad, means):
    x = np.ones(1024, np.float32)
    x[300] = bad
    codec = Sign(means=means)
    y = codec.decode(codec.encode(x), np.empty_like(x))
    assert np.isnan(y[256:512]).all() and (np.delete(y, np.s_[256:512]) == 1).all()


def test_two_means_keep_the_sum():
    x = np.random.default_rng(1).standard_normal(10000).astype(np.float32) + np.float32(0.7)
    codec = Sign(means=2)
    y = codec.decode(codec.encode(x), np.empty_like(x))
    assert abs(x.sum(dtype=np.float64) - y.sum(dtype=np.float64)) < 1e-6 * np.abs(x).sum()
    assert np.square(x - y).sum() < np.square(x - Sign().decode(Sign().encode(x), np.empty_like(x))).sum()
