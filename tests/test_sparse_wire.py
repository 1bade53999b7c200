"""The wire that sparse codecs share: indices near their entropy whatever their pattern, decoders that trust nothing, entries that add up.

A decoder written from docs/wire.md alone, `read`, is held against the native one.
"""
import dataclasses

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import thinwire as tw
from thinwire import _native
from thinwire.compress.array import dtype_code

PIECE, HEAD = 4096, 16
RICE, WORDS, RUNS = range(3)
F32 = np.dtype(np.float32)
RAW = tw.codec("nonzero")
FUZZ = settings(derandomize=True, deadline=None, max_examples=150, suppress_health_check=list(HealthCheck), database=None)


def pack(index, n, codec=RAW, value=None, dtype=F32, base=0, **options):
    index = np.asarray(index)
    index = index.astype(np.uint64 if base + n > 1 << 32 else np.uint32) if index.dtype.kind != "u" else index
    accumulator = np.float64 if dtype == np.float64 else np.float32
    value = np.ones(index.size, accumulator) if value is None else value
    wire = np.full(codec.kernels.pack_bound(codec.params, index.size, n, dtype_code(dtype)) + 16, 0xA5, np.uint8)
    used = codec.kernels.pack(codec.params, index, value, base, n, dtype_code(dtype), wire[:-16], 0, **options)
    assert (wire[-16:] == 0xA5).all()
    return wire[:used].copy()


def unpack(wire, n, codec=RAW, dtype=F32, **options):
    return codec.kernels.unpack(codec.params, np.frombuffer(wire, np.uint8), 0, len(wire), n, dtype_code(dtype), **options)


def integer(data):
    return int.from_bytes(bytes(data), "little")


# --- a stranger's decoder ---


def pieces(wire):
    """(mode, bits, count, payload) of each piece of a wire of entries."""
    assert wire[0] == 0
    count, size = integer(wire[1:8]), integer(wire[8:16])
    section = wire[HEAD : HEAD + size]
    while count:
        some, length = min(count, PIECE), integer(section[2:4])
        yield int(section[0]), int(section[1]), some, section[4 : 4 + length]
        section, count = section[4 + length :], count - some
    assert not section.size


def fields(data, bits, count):
    stream = integer(data)
    return [stream >> bits * i & (1 << bits) - 1 for i in range(count)]


def rice(data, bits, count):
    size = (bits * count + 7) // 8
    ones = np.flatnonzero(np.unpackbits(data[size:], bitorder="little")).tolist()
    assert len(ones) == count
    quotients = [one - before - 1 for before, one in zip([-1, *ones], ones)]
    return [q << bits | r for q, r in zip(quotients, fields(data[:size], bits, count))]


def read(wire):
    indices, place = [], 0
    for mode, bits, count, data in pieces(wire):
        if mode == RICE:
            for gap in rice(data, bits, count):
                indices.append(place + gap)
                place = indices[-1] + 1
        elif mode == WORDS:
            origin, slope = np.frombuffer(data[:8].tobytes(), "<i8")[0], integer(data[8:16])
            indices += [place + int(origin) + i * slope + word for i, word in enumerate(fields(data[16:], bits, count))]
        else:
            runs, size = integer(data[:2]), integer(data[2:4])
            for gap, more in zip(rice(data[6 : 6 + size], int(data[4]), runs), rice(data[6 + size :], int(data[5]), runs)):
                indices += range(place + gap, place + gap + more + 1)
                place = indices[-1] + 1
        place = indices[-1] + 1
    return indices


# --- sets of indices ---


def bernoulli(p, count, seed=0):
    """Indices of an array of which a part p is kept, and its size."""
    gaps = np.random.default_rng([seed, count]).geometric(p, count)
    index = np.cumsum(gaps) - 1
    return index, int(index[-1]) + 1


def entropy(p):
    return -(p * np.log2(p) + (1 - p) * np.log2(1 - p)) / p


def section_bits(wire):
    return 8 * integer(wire[8:16]) / integer(wire[1:8])


def sets():
    """(name, indices, n)"""
    rng = np.random.default_rng(3)
    yield "none", [], 1000
    yield "none of none", [], 0
    for n in (1, 2, 63, 64, 65, 4095, 4096, 4097, 8193, 20000):
        yield f"all of {n}", np.arange(n), n
        yield f"last of {n}", [n - 1], n
        yield f"first of {n}", [0], n
    yield "two ends", [0, 99999], 100000
    for p in (1e-4, 1e-2, 0.1, 0.3, 0.5, 0.9, 0.999):
        yield f"bernoulli {p}", *bernoulli(p, 9000)
    rows = np.sort(rng.choice(5000, 300, replace=False))
    for width in (32, 50, 64):
        yield f"rows of {width}", (rows[:, None] * width + np.arange(width)).ravel(), 5000 * width
    yield "stride", np.arange(5000) * 97 + 13, 500000
    yield "one in a bin", np.arange(9000) * 128 + rng.integers(0, 128, 9000), 9000 * 128
    yield "all but a few", np.delete(np.arange(30000), [0, 17, 4095, 4096, 29999]), 30000
    yield "a run over two pieces", np.r_[5:4000, 5000:5100, 6000:12000], 20000
    yield "clusters", np.unique(np.concatenate([c + rng.integers(0, 40, 30) for c in range(0, 1 << 20, 9973)])), 1 << 20
    yield "doubling gaps", np.cumsum(1 << np.arange(31)), 1 << 32
    yield "halving gaps", np.cumsum(1 << np.arange(31)[::-1]), 1 << 32


SETS = [pytest.param(np.asarray(index, np.int64), n, id=name) for name, index, n in sets()]


@pytest.mark.parametrize("index, n", SETS)
def test_any_set_comes_back(index, n):
    for base in (0, 1, 12345, (1 << 40) + 7):
        wire = pack(index + base, n, base=base)
        got, value, poison = unpack(wire, n)
        assert got.tolist() == index.tolist() and (value == 1).all() and not poison
        assert got.dtype == (np.uint64 if n > 1 << 32 else np.uint32)
        if wire[0] == 0:
            assert read(wire) == index.tolist()
        moved = unpack(wire, n, base=base)[0]
        assert moved.tolist() == (index + base).tolist()
        # bytes depend on the set alone, not on the integers that held it
        assert pack((index + base).astype(np.uint64), n, base=base).tobytes() == wire.tobytes() == pack(index, n).tobytes()
        assert unpack(wire, n, wide=True)[0].dtype == np.uint64


def test_indices_beyond_32_bits():
    for n in (1 << 32, (1 << 32) + 1, (1 << 32) + 4097, 1 << 40, 1 << 48):
        rng = np.random.default_rng(1)
        for index in ([n - 1], [0, n - 1], range(n - 5000, n), [0, 1, 2, n // 2, n - 2, n - 1], np.unique(rng.integers(0, n, 5000)), np.arange(9000) * (n // 9000)):
            index = np.array(index, np.uint64)
            wire = pack(index.astype(np.uint32) if n == 1 << 32 else index, n)
            got, _, _ = unpack(wire, n)
            assert got.dtype == (np.uint32 if n == 1 << 32 else np.uint64) and got.tolist() == index.tolist() == read(wire)
            assert unpack(wire, int(index[-1])) is None, "an index out of range"
    with pytest.raises(ValueError):
        pack(np.array([0], np.uint64), (1 << 48) + 1)


@FUZZ
@given(data=st.data())
def test_any_gaps_come_back(data):
    blocks = data.draw(st.lists(st.tuples(st.integers(1, 6000), st.sampled_from([0, 0, 1, 3, 40, 1000, 10**6, 10**10]), st.integers(0, 2**32 - 1)), max_size=4))
    gaps = [np.random.default_rng(seed).integers(0, most + 1, count) for count, most, seed in blocks]
    index = np.cumsum(np.concatenate([*gaps, np.zeros(0, int)]).astype(np.int64) + 1) - 1
    n = (int(index[-1]) + 1 if index.size else 0) + data.draw(st.integers(0, 100))
    codec = tw.codec(data.draw(st.sampled_from(["nonzero", "nonzero|int8", "nonzero|mean"])))
    wire = pack(index, n, codec)
    assert wire.size <= codec.kernels.pack_bound(codec.params, index.size, n, 1)
    assert unpack(wire, n, codec)[0].tolist() == index.tolist()


@pytest.mark.parametrize("index, n, mode", [
    (bernoulli(0.01, PIECE)[0], 1 << 20, (RICE, 6)), (bernoulli(0.5, PIECE)[0], 1 << 20, (RICE, 0)), (np.arange(PIECE) * 100 + 5, 1 << 20, (WORDS, 0)),
    ((np.arange(64)[:, None] * np.arange(300, 364)[:, None] + np.arange(64)).ravel(), 1 << 20, (RUNS, 0)),
])  # fmt: skip
def test_every_mode_is_chosen_where_it_is_best(index, n, mode):
    assert [(mode, bits) for mode, bits, *_ in pieces(pack(index, n))] == [mode]


# --- law 3: size ---


@pytest.mark.parametrize("p, bits, golomb", [(0.1, 3, 4.76), (0.01, 6, 8.11), (0.001, 9, 11.50), (0.0001, 13, 14.79)])
def test_golomb_rice_bits(p, bits, golomb):
    """methods.md, A2: what Golomb coding costs at these densities; b* = 1 + floor(log2(ln(phi - 1) / ln(1 - p)))."""
    index, n = bernoulli(p, 50 * PIECE)
    found = [(m, b, count, data.size) for m, b, count, data in pieces(pack(index, n))]
    assert {m for m, *_ in found} == {RICE} and abs(np.mean([b for _, b, *_ in found]) - bits) < 0.6
    measured = 8 * sum(size for *_, size in found) / index.size
    assert measured == pytest.approx(golomb, rel=0.01)
    b = 1 + int(np.floor(np.log2(np.log((np.sqrt(5) + 1) / 2 - 1) / np.log1p(-p))))
    assert b == bits and b + 1 / (1 - (1 - p) ** (1 << b)) == pytest.approx(measured, rel=0.01)


def test_indices_are_within_5_percent_of_their_entropy():
    n = 4 << 20
    rng = np.random.default_rng(0)
    for p in np.geomspace(1e-4, 0.1, 13):
        index = np.flatnonzero(rng.random(n) < p)
        assert section_bits(pack(index, n)) <= 1.05 * entropy(index.size / n), p
    for p in (0.3, 0.5):
        index = np.flatnonzero(rng.random(n) < p)
        assert section_bits(pack(index, n)) <= 1.05 * entropy(index.size / n), p


def test_rows_cost_far_below_a_bit_an_entry():
    rng = np.random.default_rng(0)
    for width in (32, 48, 64):
        for share in (1e-3, 1e-2, 0.1):
            rows = np.flatnonzero(rng.random((4 << 20) // width) < share)
            index = (rows[:, None] * width + np.arange(width)).ravel()
            assert section_bits(pack(index, 4 << 20)) <= 33 / width, (width, share)
    # one entry in each bin costs its place in the bin, a stride nearly nothing
    assert section_bits(pack(np.arange(40000) * 128 + rng.integers(0, 128, 40000), 40000 * 128)) < 7.2
    assert section_bits(pack(np.arange(40000) * 77, 40000 * 77)) < 0.06


def test_what_does_not_shrink_goes_raw(kit):
    for dtype in kit.FLOATS:
        for n in (0, 1, 2, 100, 4097):
            x = kit.values(n, dtype)
            wire = RAW.encode(x)
            assert wire[0] == 2 and wire.size == 8 + x.nbytes and wire[8:].tobytes() == x.tobytes() and integer(wire[1:8]) == n
            index, value, poison = unpack(wire, n, dtype=dtype)
            assert index.tolist() == list(range(n)) and (kit.wide(value) == kit.wide(x)).all() and not poison
            if n > 2:
                x[n // 2] = 0
                assert unpack(RAW.encode(x), n, dtype=dtype)[0].tolist() == [i for i in range(n) if i != n // 2]
                lying = RAW.encode(x)
                lying[1:8] = np.frombuffer((n - 2).to_bytes(7, "little"), np.uint8)
                assert lying[0] != 2 or unpack(lying, n, dtype=dtype) is None


def test_a_stage_that_takes_less_than_it_may(kit):
    """Where a stage's size varies, the raw escape is chosen by what it took: equal signs cost nothing, mixed ones a bit."""
    codec, n = tw.codec("nonzero|mean"), 9
    for x in (np.ones(n, np.float16), np.float16([1, -1] * 4 + [1]), kit.values(n, np.float16)):
        wire = codec.encode(x)
        assert wire.size <= 8 + x.nbytes
        assert np.abs(kit.wide(kit.decoded(codec, x))).max() <= np.abs(kit.wide(x)).max()


# --- law 4: trusts nothing ---


@FUZZ
@given(data=st.data())
def test_bytes_that_nobody_packed(data):
    codec = tw.codec(data.draw(st.sampled_from(["nonzero", "nonzero|int8", "nonzero|mean"])))
    index, n, _ = data.draw(st.sampled_from(CHANGED))
    wire = bytearray(pack(index, n, codec).tobytes())
    for _ in range(data.draw(st.integers(1, 4))):
        if not wire:
            break
        at = data.draw(st.one_of(st.integers(0, min(len(wire), 40) - 1), st.integers(0, len(wire) - 1)))
        how = data.draw(st.sampled_from(["flip", "set", "cut", "insert", "drop"]))
        if how == "flip":
            wire[at] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "set":
            wire[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        elif how == "cut":
            del wire[at + 1 :]
        elif how == "insert":
            wire[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        else:
            del wire[at : at + data.draw(st.integers(1, 9))]
    claimed = data.draw(st.sampled_from([n, n, n - 1, n + 1, 2 * n, 0, 1 << 40]))
    entries = unpack(bytes(wire), claimed, codec)
    if entries is not None:
        index, value, poison = entries
        assert index.size == value.size <= claimed and (index[1:] > index[:-1]).all() and (index < claimed).all()
    if claimed < 1 << 20:
        y = np.full(claimed + 32, 7, np.float32)
        try:
            codec.decode(bytes(wire), y[16:-16])
        except tw.WireError:
            pass
        assert (y[:16] == 7).all() and (y[-16:] == 7).all()


CHANGED = [(np.asarray(index), n, name) for name, index, n in sets() if 0 < n < 1 << 18 and len(index) < 10000]


@FUZZ
@given(st.binary(max_size=100), st.sampled_from([0, 1, 7, 4096, 1 << 32, 1 << 48, 1 << 50, (1 << 63) + 5]))
def test_random_bytes(data, n):
    for head in (b"", b"\0", b"\x01", b"\x02", b"\x03", b"\0" + (3).to_bytes(7, "little") + (len(data) // 2).to_bytes(8, "little")):
        entries = unpack(head + data, n)
        assert entries is None or (entries[0][1:] > entries[0][:-1]).all() and (entries[0] < n).all()


def test_counts_that_the_bytes_cannot_hold():
    """No memory is asked for before the count has been held against n and the bytes."""
    wire = pack([3, 5], 1 << 40, tw.codec("nonzero|mean"))
    for count in (1 << 30, 1 << 39, (1 << 56) - 1):
        changed = wire.copy()
        changed[1:8] = np.frombuffer(count.to_bytes(7, "little"), np.uint8)
        assert unpack(changed, 1 << 40, tw.codec("nonzero|mean")) is None
    changed = wire.copy()
    changed[8:16] = 0xFF
    assert unpack(changed, 1 << 40, tw.codec("nonzero|mean")) is None


# --- values, what stages lose of them, poison ---


@pytest.mark.parametrize("then", [str(c) for c in (cls() for cls in tw.codecs().values()) if not c.selects and len(c.params) <= 64])
def test_lost_is_what_the_stage_lost(then, kit, dtype):
    """Law 7 for a selection: decoded + lost = value, exactly where the stage subtracts exactly, else to the accumulator's rounding."""
    codec, acc = tw.codec(f"nonzero|{then}"), kit.accumulator(dtype)
    index = bernoulli(0.02, 5000)[0]
    n = int(index[-1]) + 5
    value = kit.values(index.size, acc, seed=4)  # for 16-bit types: more digits than the wire's type has
    lost = np.full(index.size, 9, acc)
    wire = pack(index, n, codec, value, dtype, lost=lost)
    assert wire[0] == 0
    got, decoded, poison = unpack(wire, n, codec, dtype)
    assert got.tolist() == index.tolist() and decoded.dtype == acc and not poison
    assert np.isfinite(lost).all()
    slack = kit.epsilon(acc) * np.abs(kit.wide(value)).max() * (4 if codec.then.granule == 0 or codec.then.error else 0)
    assert np.abs(kit.wide(decoded) + kit.wide(lost) - kit.wide(value)).max() <= slack
    y = np.zeros(n, acc)
    assert codec.kernels.decode(codec.params, wire, 0, wire.size, y, 0, n, dtype_code(dtype), _native.ACCUMULATE)
    assert y[index].tobytes() == decoded.tobytes() and np.count_nonzero(y) <= index.size


def test_a_raw_escape_loses_what_the_type_cannot_hold(kit):
    for dtype in kit.FLOATS:
        acc, n = kit.accumulator(dtype), 50
        value, lost = kit.values(n, acc, seed=5), np.empty(n, acc)
        value[3] = 1e38 if dtype == np.float16 else value[3]  # more than float16 has
        wire = pack(np.arange(n), n, tw.codec("nonzero|raw"), value, dtype, lost=lost)
        assert wire[0] == 2
        decoded = unpack(wire, n, dtype=dtype)[1]
        assert (kit.wide(decoded) + kit.wide(lost) == kit.wide(value)).all() and np.isfinite(decoded).all()


def test_poison(kit, dtype):
    wire = pack([1, 2], 100, dtype=dtype, poison=True)
    assert wire.tobytes() == b"\x03" + bytes(7)
    index, value, poison = unpack(wire, 100, dtype=dtype)
    assert poison and index.size == value.size == 0
    assert np.isnan(kit.wide(RAW.decode(wire, np.zeros(100, dtype)))).all()
    assert np.isnan(RAW.decode(wire, np.zeros(100, kit.accumulator(dtype)), add=True, dtype=dtype)).all()
    assert unpack(bytes(wire) + b"\0", 100, dtype=dtype) is None and unpack(b"\x03\x01" + bytes(6), 100, dtype=dtype) is None


def test_bits_of_kept_values_are_kept(kit):
    """-0 and every NaN: a lossless stage behind a selection is lossless."""
    for dtype in kit.FLOATS:
        rng = np.random.default_rng(1)
        x = rng.integers(0, 256, 3000 * dtype.itemsize, np.uint8).view(dtype)
        x[rng.random(3000) < 0.8] = 0
        x[7] = -0.0
        wire = RAW.encode(x)
        assert wire[0] == 0 and RAW.decode(wire, np.empty_like(x)).tobytes() == x.tobytes()
    assert RAW.lossless and RAW.error == 0
    lossy = tw.codec("nonzero|int8")
    assert not lossy.lossless and lossy.error == lossy.then.error


def test_residual_of_a_selection(kit):
    x, acc = kit.values(1000), np.zeros(1000, np.float32)
    x[::3] = 0
    residual = acc.copy()
    residual[9] = 0.5
    index, value, poison = RAW.kernels.select(RAW.params, x, 0, 1000, 1, 0, residual)
    assert index.tolist() == np.flatnonzero(x + (np.arange(1000) == 9) * np.float32(0.5)).tolist() and not residual.any() and not poison
    assert value[index == 9] == np.float32(0.5)
    x[5], before = np.inf, np.linspace(0, 1, 1000, dtype=np.float32)
    residual = before.copy()
    index, value, poison = RAW.kernels.select(RAW.params, x, 0, 1000, 1, 0, residual)
    assert residual.tobytes() == before.tobytes() and index.tolist() == np.flatnonzero(x).tolist() and not poison
    x[5], residual = np.finfo(np.float32).max, np.full(1000, np.finfo(np.float32).max)
    index, value, poison = RAW.kernels.select(RAW.params, x, 0, 1000, 1, 0, residual)
    assert np.isfinite(value).all() and np.isfinite(residual).all()


# --- entries ---


def test_merge_is_a_sum():
    rng = np.random.default_rng(2)
    for kind in (np.uint32, np.uint64):
        for dtype in (np.float32, np.float64):
            for a, b in ((0, 0), (0, 5), (7, 0), (1000, 1000), (3000, 10), (50, 50)):
                lists = [np.sort(rng.choice(4000, k, replace=False)).astype(kind) for k in (a, b)]
                values = [rng.standard_normal(k).astype(dtype) for k in (a, b)]
                index, value = _native.merge(lists[0], values[0], lists[1], values[1])
                assert index.dtype == kind and value.dtype == dtype
                dense = np.zeros(4000, dtype)
                for i, v in zip(lists, values):
                    dense[i] += v
                assert index.tolist() == sorted({*lists[0].tolist(), *lists[1].tolist()}) and value.tobytes() == dense[index].tobytes()
    minus = np.array([-0.0], np.float32)
    assert np.signbit(_native.merge(np.uint32([4]), minus, np.uint32([5]), minus)[1]).all()
    room = np.empty(10, np.uint32), np.empty(10, np.float32)
    index, value = _native.merge(np.uint32([1, 3]), np.float32([1, 2]), np.uint32([3]), np.float32([5]), *room)
    assert index.base is room[0] and index.tolist() == [1, 3] and value.tolist() == [1, 7]
    with pytest.raises(TypeError):
        _native.merge(np.uint32([1]), minus, np.uint64([1]), minus)
    with pytest.raises(ValueError):
        _native.merge(np.uint32([1, 3]), np.float32([1, 2]), np.uint32([3]), np.float32([5]), np.empty(2, np.uint32), np.empty(3, np.float32))


def test_scatter(kit, dtype):
    n, acc = 5000, kit.accumulator(dtype)
    index = np.sort(np.random.default_rng(1).choice(n, 3000, replace=False))
    value, code = kit.values(3000, acc, seed=8), dtype_code(dtype)
    for base in (0, 100, 1 << 33):
        i = (index + base).astype(np.uint64 if base else np.uint32)
        y = kit.values(n, acc)
        want = y.copy()
        want[index] += value * acc.type(0.25)
        _native.scatter(i, value, y, 0, n, code, base, _native.ADD, 0.25)
        assert y.tobytes() == want.tobytes()
        want[index] = value * acc.type(0.5)
        _native.scatter(i, value, y, 0, n, code, base, _native.ACCUMULATE, 0.5)
        assert y.tobytes() == want.tobytes()
        narrow = np.zeros(n + 3, dtype)
        _native.scatter(i, value, narrow, 3, n, code, base)
        assert narrow[3:][index].tobytes() == value.astype(dtype).tobytes() and not narrow[:3].any()
        before = y.copy()
        with pytest.raises(ValueError, match="outside"):
            _native.scatter(i, value, y, 0, int(index[-1]), code, base, _native.ADD)
        assert y.tobytes() == before.tobytes()


def test_arguments_that_do_not_fit():
    one, index = np.float32([1]), np.uint32([5])
    K, p, wire = RAW.kernels, RAW.params, np.empty(1000, np.uint8)
    for wrong in (np.uint32([5, 5]), np.uint32([6, 5]), np.uint32([5, 10])):
        with pytest.raises(ValueError, match="ascend"):
            K.pack(p, wrong, np.float32([1, 2]), 0, 10, 1, wire, 0)
    with pytest.raises(ValueError, match="ascend"):
        K.pack(p, index, one, 6, 10, 1, wire, 0)
    with pytest.raises(ValueError, match="1 indices and 2 values"):
        K.pack(p, index, np.float32([1, 2]), 0, 10, 1, wire, 0)
    with pytest.raises(TypeError, match="int64"):
        K.pack(p, np.array([5]), one, 0, 10, 1, wire, 0)
    with pytest.raises(TypeError, match="float64"):
        K.pack(p, index, one, 0, 10, 2, wire, 0)
    with pytest.raises(ValueError, match="seed"):
        K.pack(p, index, one, 0, 10, 1, wire, 0, shared=True)
    with pytest.raises(ValueError, match="wire"):
        K.pack(p, index, one, 0, 10, 1, wire[:10], 0)
    with pytest.raises(ValueError, match="lost"):
        K.pack(p, index, one, 0, 10, 1, wire, 0, lost=np.empty(0, np.float32))
    used = K.pack(p, index, one, 0, 10, 1, wire, 0)
    with pytest.raises(ValueError, match="index"):
        K.unpack(p, wire, 0, used, 10, 1, index=np.empty(0, np.uint32))
    with pytest.raises(TypeError, match="uint64"):
        K.unpack(p, wire, 0, used, 10, 1, base=1 << 32, index=np.empty(9, np.uint32))
    room = np.empty(9, np.uint32), np.empty(9, np.float32)
    index, value, _ = K.unpack(p, wire, 0, used, 10, 1, index=room[0], value=room[1])
    assert index.base is room[0] and value.base is room[1] and index.tolist() == [5]
    plain = tw.codec("raw")
    for call in (lambda: plain.kernels.select(plain.params, one, 0, 1, 1), lambda: plain.kernels.unpack(plain.params, wire, 0, used, 10, 1)):
        with pytest.raises(TypeError, match="raw is no sparse codec"):
            call()


# --- stages ---


def test_stages_that_cannot_be(kit):
    sparse = [cls for cls in tw.codecs().values() if cls.selects]
    assert sparse
    for cls in sparse:
        for other in sparse:
            with pytest.raises(ValueError, match="sparse itself"):
                cls(then=other())
        for behind in (c for c in map(tw.codec, tw.codecs()) if len(c.params) > 64 and not c.selects and isinstance(c.kernels, _native.Kernels)):
            with pytest.raises(ValueError, match=f"room for 64 bytes of parameters, {behind.name} has"):
                cls(then=behind)
        with pytest.raises(ValueError, match="codes an array as a whole|as a whole"):
            tw.Hadamard(then=cls())
    with pytest.raises(ValueError):
        tw.codec("raw|nonzero")


@pytest.mark.parametrize("then", ["mean", "int8", "hadamard|int4"])
def test_specs(then):
    if "hadamard" in then:
        with pytest.raises(ValueError, match="hadamard"):
            tw.codec(f"nonzero|{then}")
    else:
        codec = tw.codec(f"nonzero|{then}")
        assert codec.then == tw.codec(then) and codec.selects and dataclasses.replace(codec) == codec and not codec.granule


# --- mean ---


def test_mean(kit, dtype):
    mean, header = tw.Mean(), 8 if dtype == np.float64 else 4
    for n in (1, 7, 4096, 4097, 100_003):
        x = np.full(n, 0.1, dtype)
        assert mean.encode(x).size == header and kit.decoded(mean, x).tobytes() == x.tobytes()  # equal magnitudes: exactly that one
        assert mean.encode(-x).size == header and kit.decoded(mean, -x).tobytes() == (-x).tobytes()
        x[::2] *= -1
        if n > 1:
            assert mean.encode(x).size == header + (n + 7) // 8 and kit.decoded(mean, x).tobytes() == x.tobytes()
        x = kit.values(n, dtype)
        y = kit.wide(kit.unrounded(mean, x))
        assert np.unique(np.abs(y)).size == 1 and (np.signbit(y) == np.signbit(kit.wide(x))).all()
        assert abs(y[0]) == pytest.approx(np.abs(kit.wide(x)).mean(), rel=2 * kit.epsilon(kit.accumulator(dtype)))
    assert mean.encode(np.empty(0, dtype)).size == 0
    # zeros count: they lower the mean and become it
    assert kit.decoded(mean, np.array([0.0, 2.0], dtype)).tolist() == [1, 1] and kit.decoded(mean, np.array([-0.0, 2.0], dtype)).tolist() == [-1, 1]
    for bad in (np.nan, np.inf, -np.inf):
        wire = mean.encode(np.array([1, bad, -1], dtype))
        assert wire.size == header and np.isnan(kit.wide(mean.decode(wire, np.empty(3, dtype)))).all()
    top = ml_dtypes.finfo(dtype).max
    assert kit.decoded(mean, np.full(5000, top, dtype)).tolist() == [top] * 5000
    mixed = kit.wide(kit.decoded(mean, np.array([top, -top * dtype.type(0.5)] * 3000, dtype)))
    assert np.isfinite(mixed).all() and abs(mixed[0]) == pytest.approx(0.75 * float(top), rel=0.01)


def test_mean_of_a_selection_of_one_sign_costs_no_bits(kit):
    index, n = bernoulli(0.01, 5000)
    value = np.abs(kit.values(index.size)) + np.float32(1)
    same, mixed = (pack(index, n, tw.codec("nonzero|mean"), v) for v in (value, np.where(index % 2, value, -value)))
    assert same.size == HEAD + integer(same[8:16]) + 4 and mixed.size == same.size + 625
    assert np.unique(unpack(same, n, tw.codec("nonzero|mean"))[1]).tolist() == [np.float32(value.astype(np.float64).mean())]
