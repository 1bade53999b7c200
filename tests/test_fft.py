"""fft: the transform against numpy's, what dropping frequencies costs, the wire, the ends of the range."""
import ml_dtypes
import numpy as np
import pytest

import thinwire as tw
from thinwire import Fft
from thinwire.compress.array import dtype_code

FLOATS = [np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]
SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 16, 33, 100, 255, 256, 1009, 4096, 10007]
EVERYTHING = Fft(keep=1, then="raw")


def round_trip(codec, x):
    return codec.decode(codec.encode(x), np.empty_like(x))


def normal(n, dtype=np.float32, seed=0):
    return np.random.default_rng([seed, n]).standard_normal(n).astype(dtype)


def dropped(x, keep):
    """A float64 array without its smaller frequencies, and their energy."""
    spectrum = np.fft.rfft(x.astype(np.float64))
    kept = -int(-keep * spectrum.size // 1)
    order = np.argsort(-np.abs(spectrum), kind="stable")
    weight = np.full(spectrum.size, 2.0)  # every frequency stands for its mirror image too
    weight[0] = 1
    if x.size % 2 == 0:
        weight[-1] = 1
    energy = (weight * np.abs(spectrum) ** 2)[order[kept:]].sum() / x.size
    spectrum[order[kept:]] = 0
    return np.fft.irfft(spectrum, x.size), energy


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_all_frequencies_give_the_array(n, dtype):
    x = normal(n, dtype)
    epsilon = 2.0**-23 if dtype != np.float64 else 2.0**-52
    y = round_trip(EVERYTHING, x).astype(np.float64)
    slack = 0 if dtype.itemsize == 2 else 8 * epsilon * np.abs(x.astype(np.float64)).max(initial=0)  # a 16-bit array is shorter as it is
    assert np.abs(y - x.astype(np.float64)).max(initial=0) <= slack
    assert EVERYTHING.bound(n, dtype) <= x.nbytes + 8


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("keep", [0.02, 0.15, 0.5, 0.85])
def test_what_is_dropped_is_what_is_lost(keep, dtype):
    """Parseval: the error's energy is that of the dropped frequencies, DC and Nyquist once, others twice; odd and even counts."""
    codec = Fft(keep=keep, then="raw")
    for n in (1000, 1001, 4096, 10007):
        x = normal(n, dtype)
        expected, energy = dropped(x, keep)
        y = round_trip(codec, x)
        assert codec.encode(x).size < x.nbytes
        np.testing.assert_allclose(y, expected, atol=1e-6 if dtype == np.float32 else 1e-13)
        lost = ((y.astype(np.float64) - x) ** 2).sum()
        assert lost == pytest.approx(energy, rel=1e-5) and energy > 0


def test_constants_and_alternation_are_single_frequencies():
    for n in (2, 100, 1000, 1001):
        codec = Fft(keep=1e-6)
        constant = np.full(n, 3.0, np.float32)
        assert np.abs(round_trip(codec, constant) - 3).max() <= 3 * 2.0**-4
        if n % 2 == 0:
            alternating = constant * np.where(np.arange(n) % 2, -1, 1).astype(np.float32)
            assert np.abs(round_trip(codec, alternating) - alternating).max() <= 3 * 2.0**-4
    wave = np.cos(2 * np.pi * 7 * np.arange(1000) / 1000).astype(np.float32)
    assert np.abs(round_trip(Fft(keep=1 / 501, then="raw"), wave) - wave).max() < 1e-6
    assert Fft(keep=1 / 501).encode(wave).size == 63 + 4 + 2


def test_equal_magnitudes_keep_the_lower_frequency():
    x = np.zeros(64, np.float32)
    x[0] = 1.0  # all frequencies alike
    wire = Fft(keep=0.5, then="raw").encode(x)
    assert np.flatnonzero(np.unpackbits(wire[:5], bitorder="little")).tolist() == list(range(17))
    assert np.unique(wire[5:].view(np.float32)).tolist() == [0.0, 1 / 64]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_wire(dtype):
    """docs/wire.md, by hand: bitmap, then the stage's wire of real and imaginary parts."""
    x = normal(1000, dtype)
    spectrum = np.fft.rfft(x.astype(np.float64)) / 1000
    chosen = np.zeros(501, bool)
    chosen[np.argsort(-np.abs(spectrum), kind="stable")[:76]] = True
    values = spectrum[chosen].view(np.float64).astype(np.float64 if dtype == np.float64 else np.float32)
    for then in ("range_float", "int4", "raw", "sign"):
        if dtype.itemsize == 2 and then == "raw":
            continue
        wire = Fft(then=then).encode(x, seed=5).tobytes()
        assert wire == np.packbits(chosen, bitorder="little").tobytes() + tw.codec(then).encode(values, seed=5).tobytes()
        assert len(wire) == Fft(then=then).bound(1000, dtype)


def test_wires_that_are_none():
    codec = Fft()
    x = normal(1000)
    wire = codec.encode(x)
    assert wire.size == 63 + tw.RangeFloat().bound(152)
    for at in (0, 5, 62):  # one frequency more, or less, or one that there is not
        bad = wire.copy()
        bad[at] ^= 0x80
        with pytest.raises(tw.WireError):
            codec.decode(bad, np.empty(1000, np.float32))
    for bad in (wire[:-1], wire[:62], wire[:0], np.append(wire, wire[:1])):
        with pytest.raises(tw.WireError):
            codec.decode(bad, np.empty(1000, np.float32))
    for n in (990, 1010, 2000):
        with pytest.raises(tw.WireError):
            codec.decode(wire, np.empty(n, np.float32))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("codec", [Fft(), Fft(keep=1), Fft(keep=0.3, then="int8")], ids=str)
def test_sizes_and_residual(codec, dtype):
    kind = np.float64 if dtype == np.float64 else np.float32
    for n in SIZES:
        residual, sent, total = np.zeros(n, kind), np.zeros(n), np.zeros(n)
        for step in range(8):
            x, before = normal(n, dtype, step), residual.copy()
            wire = np.empty(codec.bound(n, dtype), np.uint8)
            used = codec.kernels.encode(codec.params, x, 0, n, dtype_code(dtype), wire, 0, 0, 0, residual)
            v = codec.decode(wire[:used], np.zeros(n, kind), add=True, dtype=dtype)
            assert (residual == x.astype(kind) + before - v).all()
            total += x.astype(np.float64)
            sent += v
        assert np.abs(sent + residual - total).max(initial=0) <= 1e-4


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_scales_and_the_ends_of_the_range(dtype):
    top, least = float(ml_dtypes.finfo(dtype).max), float(ml_dtypes.finfo(dtype).smallest_subnormal)
    for codec in (Fft(), Fft(keep=1, then="int8"), Fft(keep=0.7, then="raw")):
        for x in (np.full(1000, top), np.where(np.arange(1001) % 2, -top, top), top * np.sign(normal(1000, np.float64)), np.full(1000, least), np.zeros(1000)):
            y = round_trip(codec, x.astype(dtype)).astype(np.float64)
            assert np.isfinite(y).all() and np.abs(y).max() <= top
    x = normal(1000, np.float64)
    for k in (-900, -100, 100, 900) if dtype == np.float64 else (-90, 90) if dtype.itemsize == 4 or dtype != np.float16 else (-2, 4):
        for codec in (Fft(), Fft(keep=0.4, then="int4")):
            a, b = round_trip(codec, x.astype(dtype)), round_trip(codec, np.ldexp(x.astype(dtype).astype(np.float64), k).astype(dtype))
            assert (np.ldexp(a.astype(np.float64), k).astype(dtype) == b).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_poison_reaches_the_whole_array(bad):
    for then in ("range_float", "raw", "int4", "bf16"):
        x = normal(1000)
        x[123] = bad
        assert np.isnan(round_trip(Fft(then=then), x)).all()


def test_terms_of_a_sum(kit):
    """A sum of wires that native code cannot decode is the same sum."""
    from thinwire import _native

    code, n = dtype_code(np.dtype(np.float32)), 1000
    xs, codecs = [normal(n, seed=s) for s in range(3)], [Fft(), tw.codec("int8"), Fft(keep=0.5)]
    wires = [codec.encode(x) for codec, x in zip(codecs, xs)]
    terms = [(c.kernels, c.params, w, 0, w.size, code, 0.25) for c, w in zip(codecs, wires)]
    y = np.full(n + 2, 9, np.float32)
    assert _native.add_up(iter(terms), y, 1, n)
    expected = np.zeros(n, np.float32)
    for codec, wire, x in zip(codecs, wires, xs):
        expected += codec.decode(wire, np.empty_like(x)) * np.float32(0.25)
    assert y[1:-1].tobytes() == expected.tobytes() and y[0] == y[-1] == 9
    assert not _native.add_up([*terms[:2], (*terms[2][:4], 5, code, 1.0)], y, 1, n)


def test_specs():
    assert tw.codec("fft:0.3|int8") == Fft(keep=0.3, then="int8") and str(Fft()) == "fft|range_float" and Fft().kernels.number == 128
    assert tw.codec("fft:keep=0.15|range_float") == Fft()
    for wrong in ("fft:0", "fft:1.5", "fft:nan", "fft|fft", "hadamard|fft"):
        with pytest.raises(ValueError):
            tw.codec(wrong)
    for codec in (cls() for cls in tw.codecs().values()):
        if codec.selects:
            for wrong in (f"fft|{codec}", f"{codec.name}|fft"):
                with pytest.raises(ValueError):
                    tw.codec(wrong)
