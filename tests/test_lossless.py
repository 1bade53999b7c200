"""lossless: every bit of every dtype, wires that never exceed the array, a decoder by docs/wire.md alone."""
import ml_dtypes
import numpy as np
import pytest

import thinwire as tw
from thinwire import Lossless, WireError
from thinwire.compress.array import DTYPES

CODEC = Lossless()
BLOCK = CODEC.cut_at
SIZES = [*range(1, 70), 127, 128, 129, 1000, 1023, 1024, 1025, 4095, 4096, 4097, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17]
PATTERN = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.uint64}
FLOATS = {np.dtype(t): layout for t, layout in {  # dtype: exponent bits, mantissa bits
    np.float32: (8, 23), np.float16: (5, 10), ml_dtypes.bfloat16: (8, 7), np.float64: (11, 52)}.items()}  # fmt: skip
EVERY = [np.dtype(d) for d in DTYPES.values()]


def check(x):
    wire = CODEC.encode(x)
    assert wire.size <= CODEC.bound(x.size, x.dtype) == x.nbytes
    assert CODEC.decode(wire, np.empty_like(x)).tobytes() == x.tobytes()
    return wire


# --- a decoder written from the specification ---


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        assert self.at + n <= len(self.data)
        self.at += n
        return self.data[self.at - n : self.at]

    def u8(self):
        return self.take(1)[0]

    def u16(self):
        return int.from_bytes(self.take(2), "little")

    def array(self, n, dtype):
        return np.frombuffer(self.take(n * np.dtype(dtype).itemsize), dtype).astype(np.uint64)

    def planes(self, count, m):
        """Numbers of `count` bits, the lowest plane first."""
        size, v = -(-m // 8), np.zeros(m, np.uint64)
        for p in range(count):
            bits = np.unpackbits(np.frombuffer(self.take(size), np.uint8), bitorder="little")
            assert not bits[m:].any()
            v |= bits[:m].astype(np.uint64) << np.uint64(p)
        return v


def stream(r, m):
    head = r.u8()
    if head == 0:
        return r.array(m, np.uint8)
    if head == 255:
        return np.full(m, r.u8(), np.uint64)
    assert head <= 10
    packed = r.take(-(-head // 4))
    widths = [(packed[i // 4] >> 2 * (i % 4) & 3) + 1 for i in range(head)]
    counts = [r.u16() for _ in range(head)]
    named = [r.array(2**w - 1, np.uint8) for w in widths]
    codes = [r.planes(w, size) for w, size in zip(widths, [m, *counts])]
    symbols = r.array(counts[-1], np.uint8)
    for w, names, code in reversed(list(zip(widths, named, codes))):
        escaped = code == 2**w - 1
        assert escaped.sum() == symbols.size
        full = np.append(names, np.uint64(0))[code.astype(int)]
        full[escaped] = symbols
        symbols = full
    return symbols


def block(r, n, dtype, size):
    head = r.u8()
    where = np.ones(n, bool)
    if head & 0x80:
        count = r.u16()
        groups = r.planes(1, -(-n // 64)).astype(bool)
        maps = [r.planes(1, 64).astype(bool) if g else np.zeros(64, bool) for g in groups]
        where = np.concatenate(maps)
        assert not where[n:].any() and where.sum() == count > 0
        where = where[:n]
    m, u = int(where.sum()), np.uint64
    if dtype == ml_dtypes.bfloat16:
        low, s = r.array(m, np.uint8), stream(r, m)
        t = low | s << u(8)
        v = t >> u(1) | (t & u(1)) << u(15)
    elif dtype == np.float32:
        low, middle, s = r.array(m, np.uint16), r.array(m, np.uint8), stream(r, m)
        t = low | middle << u(16) | s << u(24)
        v = t >> u(1) | (t & u(1)) << u(31)
    elif dtype == np.float16:
        low, aside, e = r.array(m, np.uint8), r.planes(3, m), stream(r, m)
        v = low | (aside & u(3)) << u(8) | e << u(10) | aside >> u(2) << u(15)
    elif dtype == np.float64:
        low, middle = r.array(m, np.uint32), r.array(m, np.uint16)
        aside, f = r.planes(8 if head & 1 else 5, m), stream(r, m)
        e = ((f | aside >> u(5) << u(8)) + u(896)) & u(2047)
        v = low | middle << u(32) | (aside & u(15)) << u(48) | e << u(52) | (aside >> u(4) & u(1)) << u(63)
    else:
        v = np.zeros(m, np.uint64)
        for b in range(size):
            v |= stream(r, m) << u(8 * b)
    y = np.zeros(n, np.uint64)
    y[where] = v
    return y


def reference(wire, n, dtype):
    """The bits of n values, as uint64 words."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        n, dtype = 2 * n, np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
    if len(wire) == n * dtype.itemsize:
        return np.frombuffer(wire, PATTERN[dtype.itemsize]).astype(np.uint64)
    r = Reader(wire)
    sizes = [min(BLOCK, n - at) for at in range(0, n, BLOCK)]
    entries = [r.u16() for _ in sizes]
    found = []
    for size, entry in zip(sizes, entries):
        if entry == 0:
            found.append(np.zeros(size, np.uint64))
        elif entry == 65535:
            found.append(r.array(size, PATTERN[dtype.itemsize]))
        else:
            inner = Reader(r.take(entry))
            found.append(block(inner, size, dtype, dtype.itemsize))
            assert inner.at == entry
    assert r.at == len(wire)
    return np.concatenate(found)


def kinds(n, dtype):
    """Arrays of a dtype, by name."""
    rng, words = np.random.default_rng(n), np.dtype(PATTERN[dtype.itemsize])
    per = dtype.itemsize // words.itemsize
    noise = rng.integers(0, 256, n * dtype.itemsize, np.uint8)
    whole = noise.view(dtype) if dtype != np.bool_ else (noise & 1).view(dtype)
    none = np.zeros(n, dtype)
    yield "noise", whole
    yield "zeros", none
    yield "one", np.ones(n, dtype)
    yield "sparse", np.where(rng.random(n) < 0.1, whole, none)
    yield "rows", np.where(np.arange(n) // 64 % 3 == 0, whole, none)
    yield "last", np.where(np.arange(n) == n - 1, np.ones(1, dtype), none)
    yield "half noise", np.where(np.arange(n) < n // 2, whole, none)
    yield "alternating", np.where(np.arange(n) % 2 == 0, np.ones(1, dtype), whole[:1])
    if dtype.kind in "iub":
        yield "small", rng.integers(0, 2, n).astype(dtype)
        yield "geometric", (rng.geometric(0.4, n) % 100).astype(dtype)
        return
    real = np.float64 if dtype in (np.float64, np.complex128) else np.float32
    with np.errstate(all="ignore"):
        normal = rng.standard_normal(n)
        yield "normal", normal.astype(real).astype(dtype)
        yield "wide", np.exp(10 * rng.standard_normal(n)).astype(real).astype(dtype)
        yield "far", np.exp(300 * rng.standard_normal(n)).astype(real).astype(dtype)
        yield "few zeros", np.where(rng.random(n) < 0.001, 0, normal).astype(real).astype(dtype)
        yield "some zeros", np.where(rng.random(n) < 0.15, 0, normal).astype(real).astype(dtype)
        yield "negative zeros", (-np.zeros(n)).astype(real).astype(dtype)
        yield "degenerate", np.where(rng.random(n) < 0.0005, 3.0, 1.25).astype(real).astype(dtype)
    if dtype in FLOATS:
        exponent, mantissa = FLOATS[dtype]
        bits = np.resize(np.arange(2**exponent, dtype=np.uint64), n) << np.uint64(mantissa)
        yield "every exponent", (bits | rng.integers(0, 2**mantissa, n, np.uint64)).astype(words).view(dtype)
        payload = rng.integers(1, 2**mantissa, n, np.uint64) | np.uint64((2**exponent - 1) << mantissa)
        yield "payloads of NaN", payload.astype(words).view(dtype)
        yield "denormals", rng.integers(0, 2**mantissa, n, np.uint64).astype(words).view(dtype)
        yield "signs", (normal.astype(dtype).view(words) ^ words.type(1 << (8 * words.itemsize - 1))).view(dtype)
    assert per


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_every_bit_at_every_size(dtype):
    for n in SIZES:
        for _, x in kinds(n, dtype):
            check(x)


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_wires_are_what_the_specification_says(dtype):
    for n in (1, 65, 1000, 4097, BLOCK + 77):
        for name, x in kinds(n, dtype):
            words = x.view(PATTERN[min(dtype.itemsize, 4 if dtype == np.complex64 else 8)])
            assert (reference(check(x).tobytes(), n, dtype) == words.astype(np.uint64)).all(), name


def test_what_does_not_shrink_goes_raw():
    for dtype in EVERY:
        x = np.random.default_rng(1).integers(0, 256, 3 * BLOCK * dtype.itemsize, np.uint8)
        x = (x & 1 if dtype == np.bool_ else x).view(dtype)
        if dtype != np.bool_:
            assert CODEC.encode(x).tobytes() == x.tobytes()
    # a block of noise among others is raw alone
    x = np.random.default_rng(2).standard_normal(4 * BLOCK).astype(np.float32)
    x[BLOCK : 2 * BLOCK] = np.random.default_rng(3).integers(0, 2**32, BLOCK, np.uint32).view(np.float32)
    wire = check(x)
    entries = wire[:8].view("<u2")
    assert entries[1] == 65535 and (entries[[0, 2, 3]] < 0.9 * 4 * BLOCK).all()


def test_zeros_cost_two_bytes_a_block():
    for dtype in EVERY:
        words = 2 if dtype.kind == "c" else 1
        assert check(np.zeros(10 * BLOCK, dtype)).size == 20 * words


def test_small_integers_and_few_of_them_shrink():
    rng = np.random.default_rng(4)
    assert check(rng.integers(0, 16, 50000).astype(np.int64)).size < 50000 * 8 / 10
    assert check(rng.integers(-3, 3, 50000).astype(np.int32)).size < 50000 * 4 / 3
    assert check(np.arange(50000, dtype=np.int64)).size < 50000 * 8 / 4
    assert check((rng.random(50000) < 0.05)).size < 50000 / 4


@pytest.mark.parametrize("dtype, least", [("float32", 1.18), (ml_dtypes.bfloat16, 1.45), ("float16", 1.12), ("float64", 1.12)], ids=str)
def test_ratio_on_normal_values(dtype, least):
    x = (np.random.default_rng(5).standard_normal(100_000) * 1e-2).astype(dtype)
    assert x.nbytes / check(x).size > least


def test_ratio_on_rows_of_a_gradient():
    """1 % of an embedding's rows are not zero."""
    rng = np.random.default_rng(6)
    x = np.zeros((16384, 64), np.float32)
    x[rng.choice(16384, 160, replace=False)] = rng.standard_normal((160, 64)) * 1e-3
    assert x.nbytes / CODEC.encode(x).size > 75
    half = x.astype(ml_dtypes.bfloat16)
    assert half.nbytes / CODEC.encode(half).size > 75


def test_sums_are_those_of_the_values(kit):
    """Blocks decoded one by one, then added: what raw adds, bit for bit, of every dtype."""
    raw = tw.Raw()
    for dtype in EVERY:
        for n in (5, BLOCK - 1, 2 * BLOCK + 333):
            x = kit.values(n, dtype)
            if dtype.kind not in "iub":
                x[n // 3 : n // 2] = 0
            acc = kit.values(n, kit.accumulator(dtype), seed=1)
            ours, theirs = (c.decode(c.encode(x), acc.copy(), add=True, dtype=dtype) for c in (CODEC, raw))
            assert ours.tobytes() == theirs.tobytes()


def test_parts_decode_to_the_same_values(kit):
    x = kit.values(5 * BLOCK + 100)
    cuts = [0, BLOCK, 4 * BLOCK, x.size]
    parts = [CODEC.decode(CODEC.encode(x[a:b]), np.empty(b - a, x.dtype)) for a, b in zip(cuts, cuts[1:])]
    assert np.concatenate(parts).tobytes() == x.tobytes()


def test_damaged_wires(kit):
    rng = np.random.default_rng(8)
    refused = 0
    for dtype in EVERY:
        for n in (100, BLOCK + 100):
            x = kit.values(n, dtype)
            x[n // 4 : n // 3] = np.zeros(1, dtype)
            wire = CODEC.encode(x)
            for _ in range(60):
                bad = wire.copy()
                for _ in range(rng.integers(1, 5)):
                    bad[rng.integers(0, bad.size if rng.random() < 0.5 else min(bad.size, 60))] = rng.integers(0, 256)
                if rng.random() < 0.3:
                    bad = bad[: rng.integers(0, bad.size)]
                try:
                    CODEC.decode(bad, np.empty_like(x))
                except WireError:
                    refused += 1
    assert refused > 200


@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16], ids=str)
def test_large_arrays_wherever_they_start(dtype):
    """More than stays in cache: some bodies write those otherwise."""
    x = np.random.default_rng(9).standard_normal(9 << 20 >> 1).astype(dtype)
    x[BLOCK : BLOCK + 5000] = 0
    wire = CODEC.encode(x)
    for skip in (0, 1, 13, 31):
        memory = np.full(x.size + 64, 7, dtype)
        assert CODEC.decode(wire, memory[skip : skip + x.size]).tobytes() == x.tobytes()
        assert (memory[:skip] == 7).all() and (memory[skip + x.size :] == 7).all()


def test_it_is_what_encode_does_by_default(kit):
    x = kit.values(1000)
    assert tw.encode(x) == tw.encode(x, "lossless") and tw.decode(tw.encode(x)).tobytes() == x.tobytes()
