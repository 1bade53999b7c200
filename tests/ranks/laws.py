"""The laws of collectives, on the ranks of one mpirun: `mpirun -n W python -m mpi4py tests/ranks/laws.py '["spec", ...]'`.

Run by test_collectives.py, which passes the registry's specs. No check raises: a rank that left the others alone would only make
them wait. Rank 0 prints, in a line, what failed in each section.

Expected values come from codec.encode and codec.decode of the same shards, in the order that the laws state: where a codec draws
no random bits, every schedule's result is predicted bit for bit.
"""
import hashlib
import json
import os
import pickle
import sys
import time
import traceback

import ml_dtypes
import numpy as np
from mpi4py import MPI

import thinwire as tw
from thinwire.compress.array import DTYPES, dtype_code

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
F32, F16, BF16, F64 = FLOATS = [np.dtype(t) for t in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)]
EPS = {dtype: float(ml_dtypes.finfo(dtype).eps) for dtype in FLOATS}
failures: dict = {}
section = ""
hashes: list = []


def expect(condition, *what):
    if not condition:
        failures.setdefault(section, []).append(f"rank {RANK} of {SIZE}: " + " ".join(str(w)[-3000:] for w in what))


def raises(error, call, *words):
    """Whether a call raises this error, with these words in its message."""
    names = error.__name__ if isinstance(error, type) else [e.__name__ for e in error]
    try:
        result = call()
    except Exception as e:  # noqa: BLE001
        expect(isinstance(e, error) and all(str(w) in str(e) for w in words), f"expected {names} with {words}, got {e!r}")
        return e
    expect(False, f"expected {names} with {words}, got a result {result!r}")


def same(got, expected, *what):
    """Equal to the bit, but that NaNs are alike and zeros are equal."""
    got, expected = np.asarray(got), np.asarray(expected)
    if got.dtype != expected.dtype or got.shape != expected.shape:
        expect(False, *what, f": {got.dtype}{got.shape}, expected {expected.dtype}{expected.shape}")
        return
    if got.tobytes() != expected.tobytes():
        a, b = (v if v.dtype.kind in "iubc" else v.astype(np.float64) for v in (got, expected))
        wrong = np.flatnonzero(~((a == b) | (a != a) & (b != b)))
        expect(wrong.size == 0, *what, f": {wrong.size} of {a.size} values differ, first at {wrong[:5]}: {a.ravel()[wrong[:3]]}, expected {b.ravel()[wrong[:3]]}")


def everywhere(y, *what):
    """Note a result that all ranks must hold alike; compared once a section."""
    hashes.append((hashlib.blake2b(np.ascontiguousarray(y).tobytes(), digest_size=8).digest(), " ".join(map(str, what))))


def compare_everywhere():
    rows = WORLD.allgather([h for h, _ in hashes])
    for row, (mine, what) in zip(zip(*rows), hashes):
        expect(len(set(row)) == 1, "law 1: ranks hold different values:", what)
    expect(len({len(row) for row in rows}) == 1, "ranks made different numbers of calls")
    hashes.clear()


# --- what is expected ---


def values(n, dtype=F32, rank=0, seed=0, scale=1.0):
    dtype = np.dtype(dtype)
    rng = np.random.default_rng([11, n, rank, seed])
    if dtype.kind in "iu":
        return rng.integers(0, 256, n * dtype.itemsize, np.uint8).view(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, n).astype(np.bool_)
    if dtype.kind == "c":
        return (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(dtype)
    return (scale * rng.standard_normal(n)).astype(dtype)


def accumulator(dtype):
    return F32 if dtype.itemsize <= 2 and dtype.kind not in "iub" else dtype


def wide(x):
    return np.asarray(x).astype(np.float64)


def unrounded(codec, x, seed=0):
    acc = np.zeros(x.size, accumulator(x.dtype))
    return codec.decode(codec.encode(x, seed=seed), acc, add=True, dtype=x.dtype)


def rounded(codec, x, seed=0):
    return codec.decode(codec.encode(x, seed=seed), np.empty(x.size, x.dtype))


_draws: dict = {}


def draws(codec):
    if codec not in _draws:
        x = values(4096)
        _draws[codec] = len({codec.encode(x, seed=seed).tobytes() for seed in range(6)}) > 1  # of few values, some draws are alike
    return _draws[codec]


def add_up(terms, op, dtype):
    """A sum in rank order, in the accumulator, narrowed once."""
    terms = list(terms)
    acc = terms[0].astype(accumulator(dtype))
    for term in terms[1:]:
        acc = acc + term.astype(acc.dtype)
    return (acc / acc.dtype.type(len(terms)) if op == "mean" else acc).astype(dtype)


def by_direct(codec, xs, op):
    out = np.empty_like(xs[0])
    for owner in range(SIZE):
        a, b = tw.shard(xs[0].size, SIZE, owner)
        if b > a:
            out[a:b] = rounded(codec, add_up((x[a:b] if r == owner else unrounded(codec, x[a:b]) for r, x in enumerate(xs)), op, xs[0].dtype))
    return out


def by_one_shot(codec, xs, op):
    return add_up((unrounded(codec, x) for x in xs), op, xs[0].dtype)


def by_ring(codec, xs, op):
    dtype = xs[0].dtype
    acc = xs[0].astype(accumulator(dtype))
    for x in xs[1:]:
        acc = rounded(codec, acc) + x.astype(acc.dtype)
    return rounded(codec, (acc / acc.dtype.type(SIZE) if op == "mean" else acc).astype(dtype))


ALLREDUCE = {"direct": by_direct, "one-shot": by_one_shot, "ring": by_ring, "gather-union": by_one_shot}
IN_RANK_ORDER = ("direct", "one-shot", "ring", "gather-union", "hashed")  # schedules that add all that ranks send, in their order


def error_of(codec, x):
    """The largest error that a codec makes of an array, or of any that reaches as far, over a few seeds."""
    reach = np.abs(wide(x)).max(initial=0)
    if codec.selects and codec.algebra == "sum":  # what is sent may be chosen elsewhere: anything may be left out
        return reach
    ramp = reach * np.linspace(-1, 1, 640).reshape(20, 32).T  # from end to end in every block
    ramp[0], ramp[1] = reach, -reach
    ramp = ramp.ravel().astype(x.dtype)
    with np.errstate(over="ignore"):
        return max(1.3 * np.abs(wide(unrounded(codec, v, seed)) - wide(v)).max(initial=0) for seed in range(1 + 3 * draws(codec)) for v in (x, ramp))


def allreduce_bound(codec, xs, op):
    """Error that any schedule may have: each term's, and that of each partial sum on the way."""
    bound, total = 0.0, np.zeros(xs[0].size)
    for x in xs:
        total = total + wide(x)
        bound += error_of(codec, x) + 1.5 * error_of(codec, total.astype(accumulator(x.dtype)))
    largest = np.abs(total).max(initial=0) + sum(np.abs(wide(x)).max(initial=0) for x in xs)
    return (bound + 4 * EPS[xs[0].dtype] * largest) / (SIZE if op == "mean" else 1)


def sizes():
    return sorted({0, 1, max(SIZE - 1, 0), SIZE, SIZE + 1, 33, 1009})


def cases(count):
    """Codecs with `count` dtypes each, others in every world: all of them at every place is more than two cores do in minutes."""
    for index, codec in enumerate(CODECS):
        for k in range(count):
            yield codec, FLOATS[(index + SIZE + 3 * k) % len(FLOATS)]


DTYPES_EACH = {1: 4, 2: 4, 3: 2}.get(SIZE, 1)


def able(codec, call, schedule):
    """The call's result, or None where the schedule does not carry it out; which is then so on every rank."""
    try:
        return call()
    except ValueError as e:
        if "does not go by schedule" not in str(e):
            raise
        return None


# --- the sections ---


def allreduce(comm):
    """Laws 1, 5 and 9: every codec by every schedule in every dtype, at sizes around the number of ranks; mean and sum."""
    case = 0
    went: dict = {}
    for codec, dtype in cases(DTYPES_EACH):
        for n in sizes():
            xs = None
            for schedule in ("auto", *tw.schedules()) if n == 33 else tw.schedules():
                for op in ("sum", "mean")[: 1 if n != 33 else 2]:
                    what = codec, dtype, n, schedule, op
                    x = values(n, dtype, RANK)
                    before = x.tobytes()
                    y = able(codec, lambda: comm.allreduce(x, codec=codec, op=op, schedule=schedule, seed=5), schedule)
                    if y is None:
                        continue
                    went[codec, schedule] = True
                    expect(x.tobytes() == before, *what, "the input was changed")
                    expect(comm.last.schedule == schedule or schedule == "auto", *what, comm.last.schedule)
                    expect(comm.last.codec == str(codec) and comm.last.collective == "allreduce", *what, comm.last)
                    everywhere(y, *what)
                    case += 1
                    if case % SIZE != RANK:  # one rank checks the values, all check that they are the same
                        continue
                    xs = xs or [values(n, dtype, r) for r in range(SIZE)]
                    exact = sum(wide(v) for v in xs) / (SIZE if op == "mean" else 1)
                    expect(np.abs(wide(y) - exact).max(initial=0) <= allreduce_bound(codec, xs, op), *what, "error", np.abs(wide(y) - exact).max(initial=0))
                    predict = ALLREDUCE.get(comm.last.schedule)
                    if predict and not draws(codec):
                        same(y, predict(codec, xs, op), *what)
    for codec in CODECS:
        if codec.algebra == "decode":
            for schedule in ("direct", "one-shot", "ring", "auto"):
                expect((codec, schedule) in went, codec, "never went by", schedule)


def others(comm):
    """reduce_scatter, allgather, alltoall, alltoallv, broadcast, send and recv against codec.encode and codec.decode."""
    for codec, dtype in cases(DTYPES_EACH):
        random = draws(codec)
        for n in sizes():
            what = codec, dtype, n
            xs = [values(n, dtype, r) for r in range(SIZE)]
            x = xs[RANK].copy()
            for schedule in ("auto", *tw.schedules()) if n == 33 else ("auto",):
                # reduce_scatter
                a, b = tw.shard(n, SIZE, RANK)
                for op in ("sum", "mean"):
                    y = able(codec, lambda: comm.reduce_scatter(x, codec=codec, op=op, schedule=schedule, seed=2), schedule)
                    if y is not None:
                        parts = [v[a:b] for v in xs]
                        exact = sum(wide(v) for v in parts) / (SIZE if op == "mean" else 1)
                        expect(y.shape == (b - a,) and y.dtype == dtype, *what, "reduce_scatter", y.shape, y.dtype)
                        expect(np.abs(wide(y) - exact).max(initial=0) <= allreduce_bound(codec, parts, op), *what, schedule, op, "reduce_scatter: error")
                        if comm.last.schedule == "direct" and codec.algebra == "decode" and not random:
                            same(y, add_up((v if r == RANK else unrounded(codec, v) for r, v in enumerate(parts)), op, dtype), *what, op, "reduce_scatter")
                # allgather: ranks bring different counts, rank 0 nothing
                counts = [n * r // 2 for r in range(SIZE)]
                y = able(codec, lambda: comm.allgather(values(counts[RANK], dtype, RANK), codec=codec, schedule=schedule, seed=2), schedule)
                if y is not None:
                    everywhere(y, *what, "allgather", schedule)
                    coded(y, codec, [values(c, dtype, r) for r, c in enumerate(counts)], *what, schedule, "allgather")
                # alltoall
                y = able(codec, lambda: comm.alltoall(x, codec=codec, schedule=schedule, seed=2), schedule)
                if y is not None:
                    coded(y, codec, [v[slice(*tw.shard(n, SIZE, RANK))] for v in xs], *what, schedule, "alltoall")
                # alltoallv with nothing for some
                matrix = [[(n * (i + 2 * j)) % 7 * ((i + j) % 3 > 0) for j in range(SIZE)] for i in range(SIZE)]
                mine = values(sum(matrix[RANK]), dtype, RANK, 1)
                expected = []
                for r in range(SIZE):
                    start = sum(matrix[r][:RANK])
                    expected.append(values(sum(matrix[r]), dtype, r, 1)[start : start + matrix[r][RANK]])
                received = [row[RANK] for row in matrix]
                for given in (None, received):
                    y = able(codec, lambda: comm.alltoallv(mine, matrix[RANK], given, codec=codec, schedule=schedule, seed=2), schedule)
                    if y is not None:
                        coded(y, codec, expected, *what, schedule, "alltoallv")
                # broadcast
                for root in {0, SIZE - 1, n % SIZE}:
                    y = x.copy()
                    result = able(codec, lambda: comm.broadcast(y, root, codec=codec, schedule=schedule, seed=2), schedule)
                    if result is not None:
                        expect(result is y, *what, "broadcast returns another object")
                        everywhere(y, *what, "broadcast", root, schedule)
                        coded(y, codec, [xs[root]], *what, schedule, "broadcast", root)
        # messages, one in each direction around the ranks
        x = values(129, dtype, RANK)
        request = comm.isend(x, (RANK + 1) % SIZE, 3, codec=codec, seed=4)
        y = comm.recv((RANK - 1) % SIZE, 3)
        expect(request.wait() is None, "send has no result")
        coded(y, codec, [values(129, dtype, (RANK - 1) % SIZE)], codec, dtype, "recv")


def coded(y, codec, parts, *what):
    """y is the parts, one after another, each through the codec once."""
    if not parts:
        return
    dtype = parts[0].dtype
    if not draws(codec):
        same(y, np.concatenate([rounded(codec, p) for p in parts]), *what)
        return
    expect(y.size == sum(p.size for p in parts) and y.dtype == dtype, *what, y.size, y.dtype)
    at = 0
    for p in parts:
        got, at = wide(y[at : at + p.size]), at + p.size
        expect(np.abs(got - wide(p)).max(initial=0) <= error_of(codec, p) + EPS[dtype] * np.abs(wide(p)).max(initial=0), *what, "error")


def large(comm):
    """Frames of several parts, which overlap: the same bytes and sums as in one piece; with checksums too."""
    n = 700_001 if SIZE < 4 else 300_007
    for index, (codec, dtype) in enumerate(c for c in cases(1) if c[0].cut_at):  # others are of one part at any size
        for schedule in ("direct", "one-shot", "ring"):
            y = able(codec, lambda: comm.allreduce(values(n, dtype, RANK), codec=codec, schedule=schedule), schedule)
            if y is None:
                continue
            everywhere(y, codec, dtype, schedule)
            if index % SIZE == RANK and not draws(codec):
                same(y, ALLREDUCE[schedule](codec, [values(n, dtype, r) for r in range(SIZE)], "sum"), codec, dtype, schedule, n)
    checked = tw.Communicator(checksum=True)
    for codec, dtype in (c for c in cases(1) if c[0].cut_at):
        for n in (0, 5, 300_007):
            x = values(n, dtype, RANK)
            for schedule in ("direct", "one-shot", "ring"):
                y = able(codec, lambda: comm.allreduce(x, codec=codec, schedule=schedule, seed=3), schedule)
                if y is not None:
                    same(checked.allreduce(x, codec=codec, schedule=schedule, seed=3), y, codec, schedule, n, "with a checksum")
            same(checked.alltoall(x, codec=codec, seed=3), comm.alltoall(x, codec=codec, seed=3), codec, n, "alltoall with a checksum")
            same(checked.broadcast(x.copy(), codec=codec, seed=3), comm.broadcast(x.copy(), codec=codec, seed=3), codec, n, "broadcast with a checksum")
            request = checked.isend(x, RANK, codec=codec, seed=3)
            got = checked.recv(RANK)
            request.wait()
            coded(got, codec, [x], codec, n, "send to oneself with a checksum")
    checked.close()


def exact_sums(comm):
    """Law 1: what loses nothing gives the sum in rank order, in float32, to the bit, whatever the schedule but plain."""
    for codec in (c for c in CODECS if c.lossless):
        for dtype in FLOATS:
            for n in (1, 7, 1009, 70_001):
                xs = [values(n, dtype, r) for r in range(SIZE)]
                for r, v in enumerate(xs):  # cancelling: another order shows
                    v[::3] = v[::3] + np.asarray([30000, -30000, 1, 7, -2])[r % 5].astype(dtype)
                expected = add_up(xs, "sum", dtype)
                for schedule in IN_RANK_ORDER:
                    y = able(codec, lambda: comm.allreduce(xs[RANK], codec=codec, schedule=schedule), schedule)
                    if y is not None:
                        same(y, expected, codec, dtype, n, schedule)
                a, b = tw.shard(n, SIZE, RANK)
                same(comm.reduce_scatter(xs[RANK], codec=codec, schedule="direct"), expected[a:b], codec, dtype, n, "reduce_scatter")
                y = comm.allreduce(xs[RANK], codec=codec)
                everywhere(y, codec, dtype, n, "auto")
                bound = SIZE * EPS[accumulator(dtype)] * sum(np.abs(wide(v)) for v in xs) + EPS[dtype] * np.abs(wide(expected))
                expect((np.abs(wide(y) - sum(wide(v) for v in xs)) <= bound).all(), codec, dtype, n, "auto")


def operations(comm):
    """mean near overflow, extremes with NaN, and what is refused."""
    for dtype, big in ((F32, 3e38), (F16, 60000.0), (BF16, 3e38), (F64, 1.7e308)):
        x = np.full(37, big, np.float64).astype(dtype)
        for codec in CODECS:
            # not so where a codec was asked not to saturate, or where its own error passes the range
            with np.errstate(over="ignore"):
                fits = big * (1 - 2 * EPS[dtype]) + (SIZE + 1) * error_of(codec, x) < float(ml_dtypes.finfo(dtype).max)
            for schedule in ("auto", *tw.schedules()):
                y = able(codec, lambda: comm.allreduce(x, op="mean", codec=codec, schedule=schedule), schedule)
                if y is not None:
                    everywhere(y, dtype, schedule, codec)
                    expect(np.isfinite(wide(y)).all() or not fits, codec, dtype, schedule, "a mean overflowed:", y[:3])
                    if codec.lossless:
                        expect(np.abs(wide(y) - wide(x)).max() <= 3 * EPS[dtype] * big, codec, dtype, schedule, "mean", y[:3])
        y = comm.reduce_scatter(x, op="mean")
        expect((np.abs(wide(y) - big) <= 3 * EPS[dtype] * big).all(), dtype, "reduce_scatter mean", y[:3])
    for dtype in DTYPES.values():
        if dtype == np.bool_ or dtype.kind == "c":
            for op in ("max", "min"):
                raises(TypeError, lambda: comm.allreduce(values(5, dtype), op=op), dtype)
            continue
        floats = dtype.kind not in "iu"
        xs = [values(1009, dtype, r) for r in range(SIZE)]
        if floats:
            xs[SIZE - 1][7] = np.nan
        for codec in (c for c in CODECS if c.lossless and c.algebra == "decode" and c.takes(dtype)):
            for op, extreme in (("max", np.maximum), ("min", np.minimum)):
                expected = xs[0]
                with np.errstate(invalid="ignore"):
                    for v in xs[1:]:
                        expected = extreme(expected, v)
                for schedule in ("auto", *tw.schedules()):
                    y = able(codec, lambda: comm.allreduce(xs[RANK], op=op, codec=codec, schedule=schedule), schedule)
                    if y is not None:
                        same(y, expected, op, dtype, schedule, codec)
                        expect(not floats or np.isnan(wide(y)[7]), op, dtype, schedule, "lost a NaN")
                a, b = tw.shard(1009, SIZE, RANK)
                same(comm.reduce_scatter(xs[RANK], op=op, codec=codec), expected[a:b], op, dtype, "reduce_scatter")
    for codec in CODECS:
        for op in ("max", "min"):
            if not codec.lossless:
                raises(ValueError, lambda: comm.allreduce(values(5), op=op, codec=codec), "lossless")
            elif codec.algebra != "decode":
                raises(ValueError, lambda: comm.allreduce(values(5), op=op, codec=codec), "does not go by schedule")
    for op in ("prod", "", "SUM"):
        raises(ValueError, lambda: comm.allreduce(values(5), op=op), "mean")
    raises(TypeError, lambda: comm.allreduce(np.ones(3, np.int32), op="mean"), "int32")
    raises(TypeError, lambda: comm.allreduce(np.ones(3, np.bool_)), "bool")
    for op in (None, 3, []):
        raises((ValueError, TypeError), lambda: comm.allreduce(values(5), op=op))
        raises((ValueError, TypeError), lambda: comm.reduce_scatter(values(5), op=op))
    raises(ValueError, lambda: comm.allreduce(values(5), schedule=None))
    same(comm.allreduce(np.ones(3)), np.full(3, float(SIZE)), "not usable after a wrong op")


def dtypes(comm):
    """What loses nothing takes every dtype, but for selections: integers wrap around, complex numbers and fp8 add, bool moves."""
    for codec in (c for c in CODECS if c.lossless and c.algebra == "decode"):
        for dtype in (d for d in DTYPES.values() if codec.takes(d)):
            for n in (0, 1, SIZE + 1, 1009):
                xs = [values(n, dtype, r) for r in range(SIZE)]
                x = xs[RANK].copy()
                if dtype != np.bool_:
                    acc = accumulator(dtype)
                    total = xs[0].astype(acc)
                    with np.errstate(all="ignore"):
                        for v in xs[1:]:
                            total = (total + v.astype(acc)).astype(acc)
                    for schedule in ("direct", "one-shot", "ring"):
                        same(comm.allreduce(x, codec=codec, schedule=schedule), total.astype(dtype), codec, dtype, n, schedule)
                    y = comm.allreduce(x, codec=codec)
                    everywhere(y, codec, dtype, n)
                    if dtype.kind in "iu":
                        same(y, total, codec, dtype, n, "auto")
                same(comm.allgather(x, codec=codec), np.concatenate(xs), codec, dtype, n, "allgather")
                same(comm.alltoall(x, codec=codec), np.concatenate([v[slice(*tw.shard(n, SIZE, RANK))] for v in xs]), codec, dtype, n, "alltoall")
                same(comm.broadcast(x, SIZE - 1, codec=codec), xs[-1], codec, dtype, n, "broadcast")


def layouts(comm):
    """Law 5: shapes, strides, out=, in place; fault 16."""
    for codec, dtype in cases(1):
        base = values(120, dtype, RANK)
        expected = comm.allreduce(base, codec=codec, seed=1)
        strided = np.repeat(base, 2)[::2]
        unaligned = np.frombuffer(bytearray(b"\0" + base.tobytes()), np.uint8)[1:].view(dtype)
        frozen = base.copy()
        frozen.flags.writeable = False
        for x in (base.reshape(4, 30), strided, unaligned, frozen, np.asfortranarray(base.reshape(4, 30)), base[::-1].copy()[::-1], base.reshape(2, 3, 4, 5)):
            y = comm.allreduce(x, codec=codec, seed=1)
            expect(y.shape == x.shape and y.tobytes() == expected.tobytes(), codec, dtype, x.shape, x.strides, "another result")
        # out, of any layout and shape; in place; the very object comes back
        for out in (np.empty_like(base), np.empty((4, 30), dtype), np.empty(240, dtype)[::2], np.empty((4, 30), dtype, order="F")):
            for schedule in ("auto", *tw.schedules()):
                reference = able(codec, lambda: comm.allreduce(base, codec=codec, seed=1, schedule=schedule), schedule)
                if reference is not None:
                    out[...] = 77
                    y = comm.allreduce(base, codec=codec, seed=1, out=out, schedule=schedule)
                    expect(y is out and y.tobytes() == reference.tobytes(), codec, dtype, out.shape, out.strides, schedule, "out")
                    x = base.copy()
                    y = comm.allreduce(x, out=x, codec=codec, seed=1, schedule=schedule)
                    expect(y is x and x.tobytes() == reference.tobytes(), codec, dtype, schedule, "in place")
        # an output that overlaps the input without being it
        memory = np.concatenate([base, base[:60]])
        y = comm.allreduce(memory[:120], out=memory[60:], codec=codec, seed=1)
        expect(y.tobytes() == expected.tobytes(), codec, dtype, "overlapping out")
        for name in ("reduce_scatter", "alltoall", "allgather"):
            reference = getattr(comm, name)(base, codec=codec, seed=1)
            out = np.empty_like(reference)
            y = getattr(comm, name)(strided, codec=codec, seed=1, out=out)
            expect(y is out and out.tobytes() == reference.tobytes(), codec, dtype, name, "out")
            memory = np.concatenate([base, np.zeros(120 * SIZE, dtype)])  # x at the start of its own output
            y = getattr(comm, name)(memory[:120], codec=codec, seed=1, out=memory[: reference.size])
            expect(y.tobytes() == reference.tobytes(), codec, dtype, name, "in place")
        x = np.repeat(base, 2)[::2].reshape(4, 30)
        expect(comm.broadcast(x, codec=codec, seed=1) is x, codec, "broadcast into strides")
        same(x.ravel(), comm.broadcast(base.copy(), codec=codec, seed=1), codec, dtype, "broadcast into strides")
        zero = comm.allreduce(np.asarray(base[3]).reshape(()), codec=codec, seed=1)
        expect(zero.shape == () and type(zero) is np.ndarray, codec, "0-d", zero)
        same(zero.reshape(1), comm.allreduce(base[3:4], codec=codec, seed=1), codec, dtype, "0-d")
    memory = np.concatenate([values(60), np.full(60, 5, np.float32)])
    comm.allreduce(memory[:60], out=memory[:60])
    expect((memory[60:] == 5).all(), "written behind out")


def torch_tensors(comm):
    try:
        import torch
    except ImportError:
        return
    for codec in CODECS:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.arange(-50, 50, dtype=torch.float32).reshape(10, 10).to(dtype)
            y = comm.allreduce(x, codec=codec)
            expect(type(y) is torch.Tensor and y.dtype == dtype and y.shape == x.shape, codec, dtype, type(y))
            reference = comm.allreduce(x.float().numpy().astype(BF16 if dtype == torch.bfloat16 else F32), codec=codec)
            same(y.float().numpy(), reference.astype(np.float32), codec, dtype)
            out = torch.empty(10, 10, dtype=dtype)
            expect(comm.allreduce(x.T, out=out, codec=codec) is out, codec, "out")
            expect(torch.equal(out, comm.allreduce(x.T.contiguous(), codec=codec)), codec, "transposed")


def groups(comm):
    """Law 12: a sub-communicator's collective involves its members only, in the order of its ranks."""
    color, key = RANK % 2, -RANK  # odd and even ranks, last first
    part = WORLD.Split(color, key)
    with tw.Communicator(part) as mine:
        expect((mine.rank, mine.size) == (part.rank, part.size), "another rank")
        members = sorted((r for r in range(SIZE) if r % 2 == color), reverse=True)
        # the groups make different numbers of calls, at their own times
        for step in range(3 + 4 * color):
            x = values(101 + color, F32, RANK, step)
            for schedule in ("direct", "one-shot", "ring"):
                y = mine.allreduce(x, schedule=schedule)
                same(y, add_up([values(101 + color, F32, r, step) for r in members], "sum", F32), "group", color, schedule)
            same(mine.allgather(x), np.concatenate([values(101 + color, F32, r, step) for r in members]), "group allgather")
    part.Free()
    if SIZE > 1:  # only rank 1 and the last call anything at all
        part = WORLD.Split(0 if RANK in (1, SIZE - 1) else MPI.UNDEFINED)
        if part != MPI.COMM_NULL:
            with tw.Communicator(part) as pair:
                for codec in CODECS:
                    pair.allreduce(values(33), codec=codec)
            part.Free()
    raises(TypeError, lambda: tw.Communicator(MPI.COMM_NULL))
    raises(TypeError, lambda: tw.Communicator("world"))


def two_communicators(comm):
    """Two communicators of the same ranks do not hear each other, and a wait for one does not hold up the other: ranks may wait in any order."""
    one, other = tw.Communicator(timeout=5), tw.Communicator(timeout=5)
    exact = [sum(wide(values(50, F32, r, s)) for r in range(SIZE)) for s in (0, 1)]
    for schedule in ("direct", "auto"):
        a, b = one.iallreduce(values(50, F32, RANK), schedule=schedule), other.iallreduce(values(50, F32, RANK, 1), schedule=schedule)
        first, second = (b, a) if RANK % 2 else (a, b)
        first.wait(), second.wait()
        expect(np.allclose(wide(a.wait()), exact[0], atol=1e-5) and np.allclose(wide(b.wait()), exact[1], atol=1e-5), "two communicators")
    one.close(), other.close()


def nonblocking(comm):
    """Many at once, waited for in another order on every rank; test() advances; wait() may be repeated."""
    rng = np.random.default_rng(RANK)
    for round_ in range(3):
        expected, requests = [], []
        for k in range(24 if round_ == 0 else 9):  # more than agree at once
            codec = CODECS[(k + round_ * 5) % len(CODECS)]
            n = (0, 5, 1009, 40_000)[k % 4]
            x = values(n, F32, RANK, k)
            for name in ("allreduce", "reduce_scatter", "allgather", "alltoall")[k % 3 : k % 3 + 2]:
                expected.append((name, codec, getattr(comm, name)(x, codec=codec, seed=k)))
                requests.append(getattr(comm, "i" + name)(x, codec=codec, seed=k))
            y = x.copy()
            expected.append(("broadcast", codec, comm.broadcast(x.copy(), k % SIZE, codec=codec, seed=k)))
            requests.append(comm.ibroadcast(y, k % SIZE, codec=codec, seed=k))
            counts = [3 * ((RANK + j + k) % 2) for j in range(SIZE)]
            mine = values(sum(counts), F32, RANK, k)
            expected.append(("alltoallv", codec, comm.alltoallv(mine, counts, codec=codec, seed=k)))
            requests.append(comm.ialltoallv(mine, counts, codec=codec, seed=k))
        order = rng.permutation(len(requests)) if round_ < 2 else range(len(requests))
        for place in order:
            if round_ == 1:
                deadline = time.monotonic() + 60
                while not requests[place].test() and time.monotonic() < deadline:
                    pass
                expect(requests[place].test() is True, "test() never came true")
            y = requests[place].wait()
            expect(requests[place].wait() is y and requests[place].test() is True, "wait is not repeatable")
            name, codec, reference = expected[place]
            same(y, reference, name, codec, "non-blocking")
    request = comm.iallreduce(values(70_000, F32, RANK), out=(out := np.empty(70_000, np.float32)))
    expect(request.wait() is out, "iallreduce out")
    # messages: received in another order than sent, by tag
    peer, source = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    sends = [comm.isend(values(20 + t, F32, RANK, t), peer, t) for t in range(5)]
    receives = {t: comm.irecv(source, t) for t in (3, 1, 4, 0, 2)}
    for t, request in receives.items():
        same(request.wait(), values(20 + t, F32, source, t), "recv by tag", t)
    for request in sends:
        request.wait()
    out = np.empty(20, np.float32)
    request = comm.isend(values(20, F32, RANK), peer)
    expect(comm.recv(source, out=out) is out, "recv out")
    same(out, values(20, F32, source), "recv out")
    request.wait()


def seeds(comm):
    """Law 8 over ranks: one seed gives one result; noise differs from rank to rank, and the owner's from its own."""
    for codec in CODECS:
        x = values(2000)
        for schedule in ("direct", "one-shot", "ring"):
            a = able(codec, lambda: comm.allreduce(x, codec=codec, schedule=schedule, seed=1), schedule)
            if a is None:
                continue
            b, c = (comm.allreduce(x, codec=codec, schedule=schedule, seed=seed) for seed in (1, 2))
            same(a, b, codec, schedule, "the same seed")
            expect((a.tobytes() != c.tobytes()) == draws(codec), codec, schedule, "the seed changes nothing, or too much")
        if SIZE > 1 and draws(codec) and codec.algebra == "decode":
            parts = comm.allgather(x, codec=codec, seed=1).reshape(SIZE, -1)
            expect(len({p.tobytes() for p in parts}) == SIZE, codec, "the same noise on several ranks (fault 23)")
            mean = np.mean([wide(codec.decode(codec.encode(x, seed=seed), np.empty_like(x))) for seed in range(100, 164)], axis=0)  # what is dropped is no noise
            e = wide(parts) - mean
            for p in e[1:]:
                expect(abs(np.corrcoef(e[0], p)[0, 1]) < 0.5, codec, "noise of ranks goes together")
            # equal inputs on all ranks: errors of independent noise add up to sqrt(W) of one, equal noise to W
            y = comm.allreduce(x, codec=codec, schedule="one-shot", seed=1)
            grown = np.std(wide(y) - SIZE * mean) / e.std()
            expect(grown < (SIZE**0.5 + SIZE) / 2, codec, "error", grown, "times one rank's: the same noise on all ranks (fault 23)")


def feedback(comm):
    """Law 7 for collectives: results so far + what all ranks hold back = inputs so far."""
    steps, n = 6, 1009
    for codec, dtype in cases(min(DTYPES_EACH, 2)):
        for schedule in tw.schedules():
            fb = tw.ErrorFeedback()
            total, sent = np.zeros(n), np.zeros(n)
            for step in range(steps):
                x = values(n, dtype, RANK, step)
                y = able(codec, lambda: comm.allreduce(x, codec=codec, schedule=schedule, feedback=fb, key="g", seed=step), schedule)
                if y is None:
                    break
                sent += wide(y)
                total += wide(x)
            if y is None:
                continue
            everywhere(y, codec, dtype, schedule, "feedback")
            balance(fb, total, sent, n, dtype, steps, codec, dtype, schedule)
        # reduce_scatter, alltoall, allgather: each value's residual stays where it was encoded
        fb = tw.ErrorFeedback()
        a, b = tw.shard(n, SIZE, RANK)
        total, sent, moved, gathered = np.zeros(n), np.zeros(b - a), 0.0, 0.0
        for step in range(steps):
            x = values(n, dtype, RANK, step)
            total += wide(x)
            sent = sent + wide(comm.reduce_scatter(x, codec=codec, feedback=fb, key="r", seed=step))
            moved = moved + wide(comm.alltoall(x, codec=codec, feedback=fb, key="a", seed=step))
            gathered = gathered + wide(comm.allgather(x, codec=codec, feedback=fb, key="g", seed=step))
        held = {key: sum(wide(r) for r in state["residuals"].values()) for key, state in fb.state_dict().items()}
        held = {key: held[key] if np.ndim(held[key]) else np.zeros(n) for key in "rag"}
        everything = WORLD.allgather((total, held))
        slack = tolerance(dtype, steps)
        expect(np.abs(sum(t[a:b] - h["r"][a:b] for t, h in everything) - sent).max() <= SIZE * slack, codec, dtype, "reduce_scatter does not balance")
        expected = np.concatenate([(t - h["a"])[a:b] for t, h in everything])
        expect(np.abs(expected - moved).max() <= slack, codec, dtype, "alltoall does not balance", np.abs(expected - moved).max())
        expected = np.concatenate([t - h["g"] for t, h in everything])
        expect(np.abs(expected - gathered).max() <= slack, codec, dtype, "allgather does not balance", np.abs(expected - gathered).max())
        if (wide(unrounded(codec, x)) != wide(x)).any() and SIZE > 1:  # a codec that is exact balances with residuals of zero
            expect(any(np.abs(h["g"]).max() > 0 for _, h in everything), codec, dtype, "nothing was held back")


def sparse(comm):
    """Sparse reductions: every schedule gives the sum of what the codec selects, for index sets that are alike, apart, clustered, empty or
    on one rank only."""
    for codec in (c for c in CODECS if c.selects):
        for place, (name, make) in enumerate(INDEX_SETS.items()):
            dtype = FLOATS[(place + SIZE) % 4]
            for n in (33, 5003):
                xs = [make(n, dtype, r) for r in range(SIZE)]
                seed = 3 + place
                for schedule in ("auto", *tw.schedules()):
                    for op in ("sum", "mean"):
                        y = able(codec, lambda: comm.allreduce(xs[RANK], codec=codec, schedule=schedule, op=op, seed=seed), schedule)
                        if y is None:
                            continue
                        what = codec, name, dtype, n, comm.last.schedule, op
                        everywhere(y, *what)
                        if schedule != "auto" and codec.then.identity:
                            SPARSE[schedule](y, codec, xs, op, seed, *what)
                y = comm.reduce_scatter(xs[RANK], codec=codec, seed=seed)
                a, b = tw.shard(n, SIZE, RANK)
                if codec.algebra == "union" and codec.then.identity:
                    whole = np.concatenate(WORLD.allgather(y))
                    sums_in_rank_order(whole, codec, xs, "sum", seed, codec, name, dtype, n, "reduce_scatter")


def sparse_edges(comm):
    """What a review found: +0 by cancelling before -0, one value at a common position, float16 beyond its range, momentum of nothing."""
    for codec in (c for c in CODECS if c.selects):
        for schedule in tw.schedules():
            x = np.array([(1.0, -1.0, -0.0, 0.0, -0.0)[RANK]], np.float32)
            y = able(codec, lambda: comm.allreduce(x, codec=codec, schedule=schedule, seed=1), schedule)
            if y is not None:
                everywhere(y, codec, schedule, "a sum of zero")
            fb = tw.ErrorFeedback()
            for step in range(4):
                y = able(codec, lambda: comm.allreduce(np.full(2, 40000, np.float16), codec=codec, schedule=schedule, op="mean", seed=step, feedback=fb, key="g"), schedule)
            expect(y is None or all(np.isfinite(r).all() for state in fb.state_dict().values() for r in state["residuals"].values()), codec, schedule, "float16")
            fb = tw.ErrorFeedback(momentum=0.9)
            y = able(codec, lambda: comm.allreduce(np.empty(0, np.float32), codec=codec, schedule=schedule, feedback=fb, key="g"), schedule)
            expect(y is None or y.size == 0, codec, schedule, "nothing")
    for spec in ("clt_k:k=1|mean", "randomk:k=1|mean"):
        y = comm.allreduce(np.array([0.5, 3.0], np.float32), codec=spec, schedule="leader-index")
        expect(np.count_nonzero(y) == 1 and y.max() in (0.5 * SIZE, 3.0 * SIZE), spec, y)


def _nothing_but(rank, where):
    return lambda n, dtype, r: values(n, dtype, r) * np.asarray(where(n, r) & (rank is None or r == rank)).astype(dtype)


INDEX_SETS = {
    "all": values,
    "alike": _nothing_but(None, lambda n, r: np.arange(n) % 7 == 3),
    "apart": _nothing_but(None, lambda n, r: np.arange(n) % SIZE == r),
    "clustered": _nothing_but(None, lambda n, r: np.arange(n) // 16 % 9 == r % 2),
    "one rank's": _nothing_but(SIZE - 1, lambda n, r: np.arange(n) % 5 == 0),
    "empty": _nothing_but(SIZE, lambda n, r: np.arange(n) >= 0),
}


def sums_in_rank_order(y, codec, xs, op, seed, *what):
    for x in xs:  # owners add their own entries unrounded
        value = codec.kernels.select(codec.params, x, 0, x.size, dtype_code(x.dtype), seed)[1]
        if (value.astype(x.dtype) != value).any():
            return sums_in_some_order(y, codec, xs, op, seed, *what)
    same(y, add_up((unrounded(codec, x, seed) for x in xs), op, xs[0].dtype), *what)


def sums_in_some_order(y, codec, xs, op, seed, *what):
    terms = [wide(unrounded(codec, x, seed)) for x in xs]
    exact, reach = (sum(t) / (SIZE if op == "mean" else 1) for t in (terms, map(np.abs, terms)))
    expect((np.abs(wide(y) - exact) <= SIZE * EPS[y.dtype] * reach).all(), *what, "wrong sum")


def largest_sums(y, codec, xs, op, seed, *what):
    total = add_up((unrounded(codec, x, seed) for x in xs), op, accumulator(xs[0].dtype))
    kept = np.argsort(-np.abs(total), kind="stable")[: codec.count(total.size)]
    expected = np.zeros_like(total)
    expected[kept] = total[kept]
    same(y, expected.astype(y.dtype), *what)


def leaders_positions(y, codec, xs, op, seed, *what):
    index = codec.kernels.select(codec.params, xs[seed % SIZE], 0, y.size, dtype_code(y.dtype), seed)[0]
    expected = np.zeros_like(y)
    expected[index] = add_up([x[index] for x in xs], op, y.dtype)
    same(y, expected, *what)


SPARSE = {
    "gather-union": sums_in_rank_order, "hashed": sums_in_rank_order, "shared-mask": sums_in_rank_order, "recursive-doubling": sums_in_some_order,
    "balanced": largest_sums, "leader-index": leaders_positions,
}  # fmt: skip


def sparse_arrays(comm):
    """SparseArray and RowSparse: the union of the ranks' entries, equal to the sum of the dense arrays; what does not go says so."""
    keeps_all = [c for c in CODECS if c.keeps_all and c.then.identity]
    rng = np.random.default_rng(RANK)
    for codec in keeps_all:
        for dtype in FLOATS:
            for count in (0, 1, 300):
                flat = tw.SparseArray(rng.integers(0, 5000, count), values(count, dtype, RANK), 5000)
                rows = tw.RowSparse(rng.integers(0, 70, count), values(8 * count, dtype, RANK).reshape(count, 2, 4), (70, 2, 4))
                for x in (flat, rows):
                    xs = WORLD.allgather(x.dense().ravel())
                    for schedule in ("auto", *tw.schedules()):
                        for op in ("sum", "mean"):
                            try:
                                y = comm.allreduce(x, codec=codec, schedule=schedule, op=op)
                            except ValueError as e:
                                expect("does not go by" in str(e) or "not by" in str(e), e)
                                continue
                            what = codec, dtype, count, comm.last.schedule, op, type(x).__name__
                            expect(type(y) is type(x) and y.dtype == dtype, *what, y)
                            everywhere(y.dense(), *what)
                            if comm.last.schedule in SPARSE:
                                SPARSE[comm.last.schedule](y.dense().ravel(), codec, xs, op, 0, *what)
        x = tw.SparseArray(np.array([3, 1, 3]), np.ones(3, np.float32), 6)
        same(comm.allreduce(x, codec=codec).dense(), np.array([0, 1, 0, 2, 0, 0], np.float32) * SIZE, "an index given twice")
        raises(ValueError, lambda: comm.allreduce(x, codec=codec, out=np.empty(6, np.float32)), "out")
        raises(ValueError, lambda: comm.allreduce(x, codec=codec, feedback=tw.ErrorFeedback(), key="g"), "feedback")
        for schedule in ("gather-union", "hashed", "recursive-doubling"):
            far = comm.allreduce(tw.SparseArray(np.array([5, 2**33 - 1 - RANK]), np.ones(2, np.float32), 2**33), codec=codec, schedule=schedule)
            expected = [5, *(2**33 - SIZE + r for r in range(SIZE))]
            expect(far.indices.tolist() == expected and far.values.tolist() == [SIZE] + [1] * SIZE, codec, schedule, "beyond 32 bits:", far.indices, far.values)
    x = tw.SparseArray(np.array([3]), np.ones(1, np.float32), 6)
    for codec in CODECS:
        if not codec.keeps_all:
            raises(ValueError, lambda: comm.allreduce(x, codec=codec), "keeps all")
    raises(TypeError, lambda: comm.allgather(x))
    for wrong in (([6], [1.0], 6), ([-1], [1.0], 6), ([1, 2], [1.0], 6), ([0.5], [1.0], 6)):
        raises(ValueError, lambda: tw.SparseArray(np.array(wrong[0]), np.array(wrong[1]), wrong[2]))
    raises(ValueError, lambda: tw.RowSparse(np.array([2]), np.ones((1, 3)), (2, 3)), "rows")
    raises(ValueError, lambda: tw.RowSparse(np.array([1]), np.ones((1, 2)), (2, 3)), "shape")


def sparse_bytes(comm):
    """What a rank sends: a few k words by `balanced`, whatever the number of ranks; k for each other rank by `gather-union`; in `hashed` no rank much
    more than another, however the entries cluster."""
    n = 1 << 18
    for codec in (c for c in CODECS if c.selects and c.algebra == "union" and c.then.identity and 0 < (c.count(n) or 0) < n // 50):
        k = codec.count(n)
        x = values(n, F32, RANK) * (1 + 50 * (np.arange(n) < n // 20)).astype(F32)  # nearly all entries in a twentieth of the array
        for schedule, words in {"balanced": 6 * k, "gather-union": 1.5 * k * (SIZE - 1)}.items():
            comm.allreduce(x, codec=codec, schedule=schedule)
            expect(comm.last.wire_bytes <= 4 * words + 600 * SIZE * SIZE, codec, schedule, comm.last.wire_bytes / 4 / k, "k words")
        comm.allreduce(x, codec=codec, schedule="hashed")
        sent = WORLD.allgather(comm.last.wire_bytes)
        expect(max(sent) <= 1.15 * np.mean(sent) + 600 * SIZE, codec, "hashed is not balanced:", sent)
        expect(SIZE == 1 or comm.last.ratio > 10, codec, comm.last)


def tolerance(dtype, steps):
    """Rounding of a result to its dtype and of a sum in the accumulator, each step; values stay below 16."""
    return steps * 16 * (EPS[dtype] + 2 * EPS[accumulator(dtype)])


def balance(fb, total, sent, n, dtype, steps, *what):
    held = np.zeros(n)
    for role, residual in fb.state_dict().get("g", {"residuals": {}})["residuals"].items():
        if residual.size == n:
            held += wide(residual)
        else:
            a, b = tw.shard(n, SIZE, RANK)
            held[a:b] += wide(residual)
    totals, helds = np.zeros(n), np.zeros(n)
    WORLD.Allreduce(total, totals)
    WORLD.Allreduce(held, helds)
    expect(np.abs(sent + helds - totals).max() <= SIZE * tolerance(dtype, steps), *what, "does not balance:", np.abs(sent + helds - totals).max())


def checkpoint(comm):
    """Fault 15: saved and restored, three more steps give the very bits of never having stopped. Faults 11 and 12."""
    for codec in CODECS:
        for schedule in ("direct", "ring"):
            def run(fb, first, last):
                return [comm.allreduce(values(501, BF16, RANK, s), codec=codec, schedule=schedule, feedback=fb, key=("layer", 3), seed=s).tobytes() for s in range(first, last)]

            a = tw.ErrorFeedback()
            if able(codec, lambda: comm.allreduce(values(501, BF16, RANK), codec=codec, schedule=schedule), schedule) is None:
                continue
            run(a, 0, 3)
            saved = pickle.dumps(a.state_dict())
            straight = run(a, 3, 6)
            b = tw.ErrorFeedback()
            b.load_state_dict(pickle.loads(saved))
            expect(run(b, 3, 6) == straight, codec, schedule, "resumed differently")
            expect(pickle.dumps(b.state_dict()) == pickle.dumps(a.state_dict()), codec, schedule, "another state")
            c = tw.ErrorFeedback()
            c.load_state_dict(pickle.loads(saved))
            state = c.state_dict()  # a copy: later steps leave it alone
            run(c, 3, 4)
            expect(pickle.dumps(state) == saved, codec, "state_dict is no copy")
    fb = tw.ErrorFeedback()
    lossy = next(c for c in CODECS if not c.lossless and not draws(c))
    comm.allreduce(values(100), codec=lossy, feedback=fb, key="k")
    size = fb.nbytes
    for x in (values(101), values(100, F64), values(100).reshape(10, 10)):
        raises(ValueError, lambda: comm.allreduce(x, codec=lossy, feedback=fb, key="k"), "'k'", "reset")
    raises(ValueError, lambda: comm.allreduce(values(100), codec=lossy, feedback=fb), "key")
    for step in range(100):
        comm.allreduce(values(100, F32, RANK, step), codec=lossy, feedback=fb, key="k")
    expect(fb.nbytes == size and len(fb.state_dict()) == 1, "feedback grows:", size, fb.nbytes)
    fb.reset("k")
    expect(fb.nbytes == 0, "reset(key) keeps something")
    comm.allreduce(values(101), codec=lossy, feedback=fb, key="k")
    fb.reset()
    expect(fb.state_dict() == {}, "reset() keeps something")


def nonfinite(comm):
    """Laws 6 and 7, fault 9: one Inf poisons its step and says so; the next step is clean; "raise" raises everywhere."""
    n, bad = 1009, SIZE - 1
    for codec in (c for c in CODECS if not c.kernels.shares):  # what follows from the seed alone cannot look at values
        for schedule in (s for s in tw.schedules() if s != "plain"):  # which sends everything, so feedback has nothing to do
            fb = tw.ErrorFeedback()
            for step, value in enumerate((1.0, np.inf, 1.0, np.nan, 1.0)):
                x = values(n, F32, RANK, step)
                if RANK == bad:
                    x[600] = value
                y = able(codec, lambda: comm.allreduce(x, codec=codec, schedule=schedule, feedback=fb, key="g"), schedule)
                if y is None:
                    break
                everywhere(y, codec, schedule, "non-finite", step)
                expect(np.isfinite(y[600]) == np.isfinite(value), codec, schedule, step, value, "became", y[600])
                if np.isfinite(value):
                    expect(np.isfinite(y).all() and not any("non-finite" in e for e in comm.last.events), codec, schedule, step, "a non-finite value stayed", comm.last.events)
                else:
                    events = WORLD.allgather(comm.last.events)
                    expect(any(events), codec, schedule, step, "no event was reported")
                for state in fb.state_dict().values():
                    expect(all(np.isfinite(r).all() for r in state["residuals"].values()), codec, schedule, step, "a residual is not finite")
    for codec, dtype in cases(min(DTYPES_EACH, 2)):
        for value in (np.nan, -np.inf) if not codec.kernels.shares else ():
            x = values(n, dtype, RANK)
            if RANK == bad:
                x[5] = value
            expect(not np.isfinite(wide(comm.allreduce(x, codec=codec))[5]), codec, dtype, value, "vanished in allreduce")
            everything = wide(comm.allgather(x, codec=codec)).reshape(SIZE, n)
            expect(not np.isfinite(everything[bad, 5]), codec, dtype, value, "vanished in allgather")
            expect(np.isfinite(everything[:bad]).all(), codec, dtype, value, "spread in allgather")
            y = comm.broadcast(x.copy(), bad, codec=codec)
            expect(not np.isfinite(wide(y)[5]), codec, dtype, value, "vanished in broadcast")
    x = values(n, F32, RANK)
    if RANK == bad:
        x[5] = np.nan
    before = comm.allreduce(values(n, F32, RANK)).tobytes()
    for name in ("allreduce", "reduce_scatter", "allgather", "alltoall", "broadcast"):
        for codec in CODECS:
            error = raises(ValueError, lambda: getattr(comm, name)(x.copy(), codec=codec, nonfinite="raise"), f"rank {bad}")
            expect(isinstance(error, tw.NonFiniteError), name, codec, error)
        raises(ValueError, lambda: getattr(comm, "i" + name)(x.copy(), nonfinite="raise").wait(), f"rank {bad}")
    expect(comm.allreduce(values(n, F32, RANK)).tobytes() == before, "not usable after nonfinite='raise'")
    y = comm.allreduce(values(n, F32, RANK), nonfinite="raise")
    expect(y.tobytes() == before, "nonfinite='raise' changes a good result")
    raises(ValueError, lambda: comm.allreduce(x, nonfinite="ignore"), "propagate")


def counters(comm):
    """Faults 13 and 14: comm.last counts the frames that this rank sent, 32 bytes of header and the wire each."""
    for codec, dtype in cases(min(DTYPES_EACH, 2)):
        for n in (0, 1, SIZE + 1, 1009, 100_003):
            x = values(n, dtype, RANK)
            shards = [b - a for a, b in (tw.shard(n, SIZE, r) for r in range(SIZE))]

            def frames(counts):
                return sum(32 + codec.bound(m, dtype) for m in counts if m), sum(counts) * dtype.itemsize

            def check(wire, raw, *what):
                last = comm.last
                fixed = bool(codec.granule)
                expect(last.wire_bytes == wire if fixed else last.wire_bytes <= wire, codec, dtype, n, *what, last.wire_bytes, "expected", wire)
                expect(last.raw_bytes == raw, codec, dtype, n, *what, "raw", last.raw_bytes, "expected", raw)
                expect(last.ratio == (raw / last.wire_bytes if last.wire_bytes else 1), codec, dtype, n, *what, last.ratio)

            peers = [shards[r] for r in range(SIZE) if r != RANK]
            y = able(codec, lambda: comm.allreduce(x, codec=codec, schedule="direct"), "direct")
            if y is not None:
                check(*frames(peers + [shards[RANK]] * (SIZE - 1)), "allreduce direct")
                if not codec.lossless:  # fault 14: what the codec promises is what was sent
                    expect(comm.last.wire_bytes <= comm.last.raw_bytes + 2 * SIZE * 96, codec, dtype, n, "more than raw")
            y = able(codec, lambda: comm.allreduce(x, codec=codec, schedule="one-shot"), "one-shot")
            if y is not None:
                check(*frames([n] * (SIZE - 1)), "allreduce one-shot")
            if codec.algebra == "decode" and able(codec, lambda: comm.reduce_scatter(x, codec=codec, schedule="direct"), "direct") is not None:
                check(*frames(peers), "reduce_scatter")
            comm.alltoall(x, codec=codec, schedule="direct")
            check(*frames(peers), "alltoall")
            comm.allgather(x, codec=codec, schedule="direct")
            check(*frames([n] * (SIZE - 1)), "allgather")
            comm.broadcast(x, codec=codec, schedule="one-shot")
            expect(WORLD.allreduce(comm.last.raw_bytes) == (SIZE - 1) * n * dtype.itemsize, codec, dtype, n, "broadcast raw")
            wire = WORLD.allreduce(comm.last.wire_bytes)
            expect(wire == (SIZE - 1) * frames([n])[0] or not codec.granule, codec, dtype, n, "broadcast wire", wire)
    comm.allreduce(values(1000), schedule="plain")
    expect(comm.last.schedule == "plain" and comm.last.wire_bytes == comm.last.raw_bytes == 2 * 4000 * (SIZE - 1) // SIZE, "plain", comm.last)
    seconds = comm.last.seconds
    expect(seconds["total"] > 0 and set(seconds) >= {"encode", "decode", "total"}, "seconds", seconds)
    expect(all(0 <= s <= seconds["total"] for s in seconds.values()), "seconds", seconds)
    expect("allreduce" in str(comm.last) and "plain" in str(comm.last), str(comm.last))


def arguments(comm):
    """Wrong arguments raise on the rank that passes them, before anything is sent; nothing else is the worse for it."""
    x = values(10, F32, RANK)
    n = 10
    before = comm.allreduce(x).tobytes()
    frozen = x.copy()
    frozen.flags.writeable = False
    wrong = [
        (TypeError, lambda: comm.allreduce([1.0, 2.0])),
        (TypeError, lambda: comm.allreduce(None)),
        (TypeError, lambda: comm.allreduce(np.array(["a"]))),
        (ValueError, lambda: comm.allreduce(x, codec="no such codec")),
        (TypeError, lambda: comm.allreduce(x, codec=8)),
        (TypeError, lambda: comm.allreduce(x, codec=[])),
        (ValueError, lambda: comm.allreduce(x, schedule="no such schedule")),
        (ValueError, lambda: comm.allreduce(x, out=np.empty(n + 1, np.float32))),
        (TypeError, lambda: comm.allreduce(x, out=np.empty(n))),
        (ValueError, lambda: comm.allreduce(x, out=frozen)),
        (ValueError, lambda: comm.broadcast(frozen)),
        (ValueError, lambda: comm.broadcast(x, SIZE)),
        (ValueError, lambda: comm.broadcast(x, -1)),
        (ValueError, lambda: comm.broadcast(x, 0.5)),
        (ValueError, lambda: comm.alltoallv(x, [n] * (SIZE + 1))),
        (ValueError, lambda: comm.alltoallv(x, [n + 1] + [0] * (SIZE - 1))),
        (ValueError, lambda: comm.alltoallv(x, [-1] + [n + 1] + [0] * (SIZE - 2) if SIZE > 1 else [-1])),
        (ValueError, lambda: comm.alltoallv(x, [float(n)] + [0.0] * (SIZE - 1))),
        (ValueError, lambda: comm.send(x, SIZE)),
        (ValueError, lambda: comm.send(x, 0, -1)),
        (ValueError, lambda: comm.recv(SIZE)),
        (ValueError, lambda: comm.recv(0, 1 << 40)),
        (TypeError, lambda: comm.allreduce(x, no_such=1)),
        ((TypeError, ValueError), lambda: comm.allreduce(x, seed="x")),
        (ValueError, lambda: tw.Communicator(timeout=0)),
        (ValueError, lambda: tw.Communicator(timeout=float("nan"))),
    ]
    for codec in CODECS:
        for dtype in DTYPES.values():
            if not codec.takes(dtype):
                wrong.append((TypeError, lambda codec=codec, dtype=dtype: comm.allgather(np.zeros(3, dtype), codec=codec)))
    for place, (error, call) in enumerate(wrong):
        if place % SIZE == RANK or place % 2:  # also where one rank alone is wrong: the others wait for nobody
            raises(error, call)
    if SIZE > 1:  # an output of the wrong size on one rank is everybody's error where only the ranks together know the size
        out = np.empty(SIZE * n + (RANK == 1), np.float32)
        raises(ValueError, lambda: comm.allgather(x, out=out), "rank 1")
        raises(ValueError, lambda: comm.alltoallv(x, [n] + [0] * (SIZE - 1), out=np.empty(n * SIZE * (RANK == 0) + (RANK == 1), np.float32)), "rank 1")
    expect(comm.allreduce(x).tobytes() == before, "not usable after wrong arguments")
    # a message that does not fit is consumed, and nobody else is concerned
    request = comm.isend(x, RANK)
    raises(tw.WireError, lambda: comm.recv(RANK, out=np.empty(3, np.float32)))
    request.wait()
    request = comm.isend(x, RANK)
    raises(tw.WireError, lambda: comm.recv(RANK, out=np.empty(n)))
    request.wait()
    expect(comm.allreduce(x).tobytes() == before, "not usable after a message that did not fit")
    closed = tw.Communicator()
    closed.close()
    closed.close()
    raises(RuntimeError, lambda: closed.allreduce(x), "closed")
    with tw.Communicator() as c:
        c.allreduce(x)
    raises(RuntimeError, lambda: c.allreduce(x), "closed")


def module(comm):
    """The functions at module level, on COMM_WORLD."""
    x = values(100, F32, RANK)
    same(tw.allreduce(x, codec=CODECS[1], seed=1), comm.allreduce(x, codec=CODECS[1], seed=1), "tw.allreduce")
    same(tw.reduce_scatter(x), comm.reduce_scatter(x), "tw.reduce_scatter")
    same(tw.allgather(x), comm.allgather(x), "tw.allgather")
    same(tw.iallreduce(x).wait(), comm.allreduce(x), "tw.iallreduce")
    y = x.copy()
    expect(tw.broadcast(y) is y, "tw.broadcast")
    expect(tw.world().size == SIZE and tw.world() is tw.world(), "tw.world")
    for n in (0, 1, 7, 1009, 2**31 + 5, 2**50):
        edges = [tw.shard(n, SIZE, r) for r in range(SIZE)]
        expect(edges[0][0] == 0 and edges[-1][1] == n and all(a[1] == b[0] for a, b in zip(edges, edges[1:])), "shard", n, edges)
        expect(all(n // SIZE <= b - a <= -(-n // SIZE) for a, b in edges), "shard", n, edges)


def huge(comm):
    """Fault 18: counts beyond 32 bits, mocked: how a frame of so many values would be cut."""
    from thinwire.collectives.call import Cut

    for codec in CODECS:
        for dtype in (F32, BF16):
            for n in (2**31 + 5, 3 * 2**31 + 1):
                cut = Cut(codec, n, dtype_code(dtype), 4)
                headers = (32 + 4) * (1 if cut.fixed else cut.parts)
                expect(cut.values[0] == 0 and cut.values[-1] == n, codec, dtype, n, cut.values[-1])
                expect(headers + codec.bound(n, dtype) <= cut.edges[-1] <= headers + codec.bound(n, dtype) + 64 * (cut.parts - 1), codec, dtype, n, cut.edges[-1])
                expect(sorted(set(cut.values)) == cut.values and sorted(cut.edges) == cut.edges, codec, dtype, n, "edges out of order")
                expect(sum(cut.span(p)[1] for p in range(cut.parts)) == n, codec, dtype, n, "parts do not add up")
                if codec.cut_at:
                    expect(all(v % codec.cut_at == 0 for v in cut.values[:-1]), codec, dtype, n, "cut inside a granule")
                else:
                    expect(cut.parts == 1, codec, dtype, n, "cut what is coded as a whole")


def memory(comm):
    """Law 11, fault 11: a thousand calls with fresh arrays leave memory flat."""
    fb = tw.ErrorFeedback()
    lossy = [c for c in CODECS if not c.lossless and c.algebra == "decode"][:4] + [c for c in CODECS if c.selects][:2]

    def some_calls(count):
        for k in range(count):
            codec = lossy[k % len(lossy)]
            x = values(5000, F32, RANK, k)
            comm.allreduce(x, codec=codec, feedback=fb, key="g", schedule=("direct", "one-shot", "ring")[k % 3] if k % len(lossy) == 0 else "auto")
            fb.reset() if k % 50 == 0 else None
            comm.allgather(x[: 10 + k % 7], codec=codec)
            comm.alltoall(x, codec=codec)
            comm.iallreduce(x, codec=codec).wait()

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    some_calls(120)
    kept, held, rss = comm.workspace.nbytes, fb.nbytes, resident()
    some_calls(1000 // 4)
    expect(comm.workspace.nbytes <= 2 * kept, "workspace grew from", kept, "to", comm.workspace.nbytes)
    expect(fb.nbytes <= held, "feedback grew from", held, "to", fb.nbytes)
    for k in range(1000):
        comm.allreduce(np.ones(3000, np.float32), codec=lossy[0])
        kept = comm.workspace.nbytes if k == 20 else kept
    expect(comm.workspace.nbytes == kept, "one call's workspace changed from", kept, "to", comm.workspace.nbytes)
    grown = resident() - rss
    expect(grown < 3 << 20, "resident memory grew by", grown, "bytes in 2000 calls")
    # every call's buffers are given back, also those of calls that failed
    expect(comm.workspace._used == 0, "buffers are still handed out:", comm.workspace._used)


SECTIONS = [
    allreduce, others, large, exact_sums, operations, dtypes, layouts, torch_tensors, groups, two_communicators, nonblocking, seeds, feedback, checkpoint, nonfinite, counters,
    arguments, module, huge, memory, sparse, sparse_arrays, sparse_bytes, sparse_edges,
]  # fmt: skip

if __name__ == "__main__":
    CODECS = [tw.codec(spec) for spec in json.loads(sys.argv[1])]
    chosen = sys.argv[2].split(",") if len(sys.argv) > 2 else [f.__name__ for f in SECTIONS]
    timing = {}
    for run in SECTIONS:
        section = run.__name__
        if section not in chosen:
            continue
        started = time.monotonic()
        world = tw.Communicator(timeout=20)
        try:
            run(world)
            world.close()
            finished = True
        except Exception:  # the others follow when they time out, and the next section has a communicator of its own
            expect(False, "raised\n" + traceback.format_exc()[-3000:])
            finished = False
        if WORLD.allreduce(finished, MPI.LAND):
            compare_everywhere()
        hashes.clear()
        timing[section] = round(time.monotonic() - started, 2)
    rows = WORLD.gather(failures)
    if RANK == 0:
        merged: dict = {name: [] for name in timing}
        for row in rows:
            for name, messages in row.items():
                merged[name] += messages
        print("LAWS " + json.dumps({"failures": {k: [len(v), v[:12]] for k, v in merged.items()}, "seconds": timing}), flush=True)
