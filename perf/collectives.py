"""Collectives beside the uncompressed MPI calls that they replace, with nccl-tests' columns. A collective is one entry here."""
from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise

import ml_dtypes
import mpi4py
import numpy as np

import thinwire as tw

from ..compress.codec import auto_quality
from .measure import DTYPES, Spread, Usage, interleaved, largest, progress, sizes, values
from .table import Column, Table

COLUMNS = (
    Column("size", "B", "11d", "uncompressed bytes S of the whole array: a rank's input, for allgather what all bring together"),
    Column("count", "values", "10d", "nccl-tests' count: S in values, or a rank's share of it where the array is cut into shards"),
    Column("type", "", "<8", "of the values"),
    Column("redop", "", "<5", "what a reduction does"),
    Column("root", "", "4d", "of a broadcast, else -1"),
    Column("time", "us", "8.1f", "of a call on the slowest rank: median, and least and most, over the rounds", spread=True),
    Column("algbw", "GB/s", "7.3f", "S / time"),
    Column("busbw", "GB/s", "7.3f", "algbw x the part of S that each link must carry: effective, it may exceed the link's rate"),
    Column("codec", "", "<20", "as asked for"),
    Column("schedule", "", "<12", "which frames go where"),
    Column("ratio", "", "6.2f", "uncompressed bytes / bytes sent, headers included, over all ranks"),
    Column("wirebw", "GB/s", "7.3f", "busbw / ratio: what the link really carried"),
    Column("error", "", "8.1e", "max |y - exact| / max |exact|, exact being what MPI, not thinwire, makes of float64 copies"),
    Column("plain", "us", "8.1f", "time of the uncompressed MPI call through mpi4py, interleaved in the same rounds", spread=True),
    Column("speedup", "", "7.3f", "plain / time"),
)


MPI_ADDS = (np.float32, np.float64)  # of the benchmark's types; and what plain calls are made of


@dataclass(frozen=True)
class Collective:
    """What the driver must know of a collective of W ranks on an array of n values."""

    lengths: Callable  # (n, W): values that a rank gives, and gets
    bus: Callable  # (W): busbw / algbw, the part of the array that each link must carry
    call: Callable  # (comm, x, out, root, how): through thinwire; how: its keywords
    plain: Callable  # (mpi, x, out, root, op): the MPI call it replaces, on arrays of a type that MPI knows
    reduces: bool = False  # takes an op
    replicates: bool = False  # ends with the same on all ranks
    sharded: bool = False  # n is a multiple of W, and nccl-tests counts one share
    rooted: bool = False  # has a root, and fills its array in place
    messages: bool = False  # between pairs: without schedule and feedback


@cache
def uneven(n, W, rank):
    """(sent, received) counts by peer: rank r gives peer r + k a share of k + 1 parts, so that each gives and gets n values."""
    edges = [n * (k * (k + 1)) // (W * (W + 1)) for k in range(W + 1)]
    shares = [b - a for a, b in pairwise(edges)]
    return [shares[(peer - rank) % W] for peer in range(W)], [shares[(rank - peer) % W] for peer in range(W)]


def alltoallv(comm, x, out, root, how):
    sent, received = uneven(x.size, comm.size, comm.rank)
    comm.alltoallv(x, sent, received, out=out, **how)


def plain_alltoallv(mpi, x, out, root, op):
    sent, received = uneven(x.size, mpi.size, mpi.rank)
    mpi.Alltoallv([x, sent], [out, received])


def plain_alltoall(mpi, x, out, root, op):
    counts = [x.size // mpi.size] * mpi.size
    mpi.Alltoallv([x, counts], [out, counts])


def sendrecv(comm, x, out, root, how):
    """To the next rank, from the one before."""
    sending = comm.isend(x, (comm.rank + 1) % comm.size, **how)
    comm.recv((comm.rank - 1) % comm.size, out=out)
    sending.wait()


COLLECTIVES = {
    "allreduce": Collective(
        lengths=lambda n, W: (n, n),
        bus=lambda W: 2 * (W - 1) / W,
        call=lambda comm, x, out, root, how: comm.allreduce(x, out=out, **how),
        plain=lambda mpi, x, out, root, op: mpi.Allreduce(x, out, op),
        reduces=True, replicates=True,
    ),
    "reduce_scatter": Collective(
        lengths=lambda n, W: (n, n // W),
        bus=lambda W: (W - 1) / W,
        call=lambda comm, x, out, root, how: comm.reduce_scatter(x, out=out, **how),
        plain=lambda mpi, x, out, root, op: mpi.Reduce_scatter(x, out, [out.size] * mpi.size, op),
        reduces=True, sharded=True,
    ),
    "allgather": Collective(
        lengths=lambda n, W: (n // W, n),
        bus=lambda W: (W - 1) / W,
        call=lambda comm, x, out, root, how: comm.allgather(x, out=out, **how),
        plain=lambda mpi, x, out, root, op: mpi.Allgatherv(x, [out, [x.size] * mpi.size]),
        replicates=True, sharded=True,
    ),
    "alltoall": Collective(
        lengths=lambda n, W: (n, n),
        bus=lambda W: (W - 1) / W,
        call=lambda comm, x, out, root, how: comm.alltoall(x, out=out, **how),
        plain=plain_alltoall,
        sharded=True,
    ),
    "alltoallv": Collective(
        lengths=lambda n, W: (n, n),
        bus=lambda W: 1 - 2 / (W * (W + 1)),
        call=alltoallv,
        plain=plain_alltoallv,
        sharded=True,
    ),
    "broadcast": Collective(
        lengths=lambda n, W: (n, n),
        bus=lambda W: 1.0,
        call=lambda comm, x, out, root, how: comm.broadcast(out, root, **how),
        plain=lambda mpi, x, out, root, op: mpi.Bcast(out, root),
        replicates=True, rooted=True,
    ),
    "sendrecv": Collective(
        lengths=lambda n, W: (n, n),
        bus=lambda W: 1.0,
        call=sendrecv,
        plain=lambda mpi, x, out, root, op: mpi.Sendrecv(x, (mpi.rank + 1) % mpi.size, recvbuf=out, source=(mpi.rank - 1) % mpi.size),
        messages=True,
    ),
}  # fmt: skip


class Case:
    """One collective on n values: what is timed and what is checked. All ranks call its methods together."""

    def __init__(self, options, comm, mpi, op, x, n):
        self.options, self.comm, self.mpi, self.op = options, comm, mpi, op
        self.collective = COLLECTIVES[options.collective]
        given, self.got = self.collective.lengths(n, mpi.size)
        self.x = x[:given]
        self.out = self._output(self.x)
        self.feedback = tw.ErrorFeedback() if options.feedback else None

    def _output(self, x):
        return x.copy() if self.collective.rooted else np.zeros(self.got, x.dtype)

    def ours(self, spec, feedback=None):
        """The call through thinwire, ready to be timed."""
        how = {"codec": spec}
        if self.collective.reduces:
            how["op"] = self.options.op
        if not self.collective.messages:
            how |= {"schedule": self.options.schedule, "feedback": feedback, "key": spec}
        call, comm, x, out, root = self.collective.call, self.comm, self.x, self.out, self.options.root
        return lambda: call(comm, x, out, root, how)

    def plain(self, x, out):
        """The MPI call."""
        plain, mpi, root, op = self.collective.plain, self.mpi, self.options.root, self.op
        if self.collective.reduces and self.options.op == "mean":
            return lambda: (plain(mpi, x, out, root, op), np.divide(out, mpi.size, out=out))
        return lambda: plain(mpi, x, out, root, op)

    def measure(self, specs, tick):
        """Seconds a call on the slowest rank: [plain, then each spec; round]."""
        x, o = self.x, self.options
        if x.dtype not in MPI_ADDS:  # bits are bits where nothing is added
            x = x.astype(np.float32) if self.collective.reduces else x.view(np.uint16)
        actions = [self.plain(x, self._output(x)), *(self.ours(spec, self.feedback) for spec in specs)]
        return np.max(self.mpi.allgather(interleaved(actions, o.rounds, o.iters, o.warmup, self.mpi.Barrier, tick)), axis=0)

    def result(self, spec):
        """One more call, of which feedback from earlier ones is no part: (schedule, uncompressed bytes / bytes sent)."""
        if self.collective.rooted:
            self.out[:] = self.x
        self.ours(spec, tw.ErrorFeedback() if self.feedback else None)()
        last = self.comm.last
        raw, wire = last.raw_bytes, last.wire_bytes
        if self.collective.messages:  # the last record may be that of the receive; a message is one frame, as tw.encode makes it
            raw, wire = self.x.nbytes, len(tw.encode(self.x, spec))
        raw, wire = np.sum(self.mpi.allgather((raw, wire)), axis=0).tolist()
        return last.schedule, raw / wire if wire else 1.0

    def check(self, spec):
        """Of the result: (error, what is wrong or None), the same on all ranks."""
        exact_x = self.x.astype(np.float64)
        exact = self._output(exact_x)
        self.plain(exact_x, exact)()
        distance = largest(self.out.astype(np.float64) - exact)
        digest = hashlib.blake2b(self.out.view(np.uint8)).digest() if self.collective.replicates else None
        losses = self._loss(spec, self.x), self._loss(spec, exact.astype(self.x.dtype)) if self.collective.reduces else 0.0
        everyone = self.mpi.allgather((distance, largest(exact), digest, largest(exact_x), *losses))
        distances, scales, digests, inputs, terms, sums = zip(*everyone)
        error = float(np.max(distances))  # NaN if any is
        allowed = self._allowed(inputs, terms, max(sums))
        wrong = None
        if len(set(digests)) > 1:
            wrong = "ranks hold different results"
        elif not error <= allowed:
            wrong = f"an error of {error:.3e}, more than the {allowed:.3e} that the codec's own losses explain"
        return error / (max(scales) or 1.0), wrong

    def _loss(self, spec, x):
        """Largest error of encoding these values once, whole or cut into the shards that collectives make."""
        quality = auto_quality(spec)
        if quality is not None:
            return quality * largest(x.astype(np.float64))
        codec = tw.codec(spec)
        if codec.lossless:
            return 0.0
        W, n = self.mpi.size, x.size
        cuts = [[], [n * r // W for r in range(1, W)], [*accumulate(uneven(n, W, self.mpi.rank)[0])][:-1]]
        pieces = [piece for cut in cuts for piece in np.split(x, cut)]
        return max(largest(codec.decode(codec.encode(p), np.empty_like(p)).astype(np.float64) - p.astype(np.float64)) for p in pieces)

    def _allowed(self, inputs, terms, total):
        """The most that an error can honestly be: on the way to a sum a value is encoded W times at most, in a partial sum, and loses
        what the terms or the sum lose when encoded; random rounding may lose twice what it lost here; sums round once a term.
        """
        W, rounding = self.mpi.size, float(ml_dtypes.finfo(self.x.dtype).eps)
        if not self.collective.reduces:
            return 2 * max(terms)
        share = 1 / W if self.options.op == "mean" else 1.0
        return 2 * W * (share * sum(terms) + total) + (W + 1) * rounding * share * sum(inputs)


def run(options, parser) -> int:
    """The command: gives its exit status."""
    try:
        from ..collectives.transport import MPI  # with the settings that thinwire makes, for the plain calls too
    except RuntimeError as error:
        raise SystemExit(f"{parser.prog}: {error}") from None
    mpi, name = MPI.COMM_WORLD, options.collective
    collective, dtype = COLLECTIVES[name], DTYPES[options.datatype]
    op = {"sum": MPI.SUM, "mean": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}[options.op]
    if not options.root < mpi.size:
        raise Usage(f"--root {options.root}: there are ranks 0 to {mpi.size - 1}")
    if options.schedule not in ("auto", *tw.schedules()):
        raise Usage(f"--schedule {options.schedule}: there are auto, {', '.join(tw.schedules())}")
    if collective.messages and (options.feedback or options.schedule != "auto" or any(auto_quality(spec) is not None for spec in options.codec)):
        raise Usage(f"{name} is made of messages, which take a codec, but no feedback, no schedule and no codec auto")
    asked = sizes(options.minbytes, options.maxbytes, options.stepbytes, options.stepfactor)
    counts = [_count(size, collective, dtype, mpi.size) for size in asked]
    if not counts:
        raise Usage(f"no size between --minbytes {options.minbytes} and --maxbytes {options.maxbytes}")

    shown = mpi.rank == 0
    table = Table(COLUMNS, options.json, shown)
    with tw.Communicator(mpi, timeout=options.timeout) as comm:
        x = _inputs(mpi, options, max(counts), dtype)
        smallest = Case(options, comm, mpi, op, x, mpi.size)
        specs = _usable(options, table, lambda spec: smallest.ours(spec)())
        _head(table, options, mpi, MPI, collective)
        failures = []
        with progress(len(counts) * options.rounds * (1 + len(specs)), shown) as bar:
            for n in counts:
                case = Case(options, comm, mpi, op, x, n)
                plain, *ours = case.measure(specs, bar.update)
                for spec, seconds in zip(specs, ours):
                    schedule, ratio = case.result(spec)
                    error, wrong = case.check(spec) if options.check else (None, None)
                    time, size = float(np.median(seconds)), n * dtype.itemsize
                    algbw = size / time / 1e9
                    busbw = algbw * collective.bus(mpi.size)
                    table.row(
                        size=size, count=n // mpi.size if collective.sharded else n, type=options.datatype,
                        redop=options.op if collective.reduces else "none", root=options.root if collective.rooted else -1,
                        time=Spread.of(seconds * 1e6), algbw=algbw, busbw=busbw, codec=spec, schedule=schedule, ratio=ratio,
                        wirebw=busbw / ratio, error=error, plain=Spread.of(plain * 1e6), speedup=float(np.median(plain)) / time,
                    )  # fmt: skip
                    if wrong:
                        failures.append(f"{name} of {size} bytes, {spec}: {wrong}")
    for failure in failures if shown else ():
        print(f"{parser.prog}: FAILED: {failure}", file=sys.stderr, flush=True)
    table.note(f"Failed checks   : {len(failures)} {'FAILED' if failures else 'OK' if options.check else '(not checked)'}")
    table.note(f"Avg bus bandwidth    : {np.mean([row['busbw'] for row in table.rows]):.4g}")
    table.end()
    return 1 if failures else 0


def _count(size, collective, dtype, W):
    """Values of an array of about this size: whole shards, one value at least."""
    unit = W if collective.sharded else 1
    return max(size // (dtype.itemsize * unit), 1) * unit


def _inputs(mpi, options, n, dtype):
    """This rank's values; what is wrong on any rank is a usage error on all."""
    x = problem = None
    try:
        x = values(max(n, mpi.size), dtype, mpi.rank, options.input)
    except Usage as error:
        problem = str(error)
    problem = next(filter(None, mpi.allgather(problem)), None)
    if problem:
        raise Usage(problem)
    return x


def _usable(options, table, attempt):
    """The codecs that can do what is asked, found by doing it on an array of one value a rank. Unless named, others are left out."""
    usable = []
    for spec in options.codec:
        try:
            attempt(spec)
            usable.append(spec)
        except tw.WireError:
            raise
        except (ValueError, TypeError) as error:
            if not options.all_codecs:
                raise Usage(f"--codec {spec}: {error}") from None
            table.note(f"left out: {spec}: {error}")
    if not usable:
        raise Usage("no codec can do this")
    return usable


def _head(table, options, mpi, MPI, collective):
    hosts = Counter(mpi.allgather(platform.node()))
    table.note(f"thinwire-perf {options.collective}: {versions()}, mpi4py {mpi4py.__version__}")
    table.note(" ".join(MPI.Get_library_version().strip("\0\n ").splitlines()[0].split()))
    places = ", ".join(f"{host} ({k})" for host, k in hosts.items())
    table.note(f"{mpi.size} ranks on {places}; {tw.threads()} threads a rank; {processor()}")
    feedback = "; with feedback" if options.feedback else ""
    table.note(f"{options.rounds} rounds of {options.iters} calls after {options.warmup}; {origin(options)}{feedback}")
    if collective.reduces and DTYPES[options.datatype] not in MPI_ADDS:
        table.note(f"MPI cannot add {options.datatype}: plain is the call on as many float32 values, of twice the bytes")
    table.note()
    table.head()


def versions() -> str:
    return f"thinwire {tw.__version__}, Python {platform.python_version()}, numpy {np.__version__}"


def origin(options) -> str:
    return f"input {options.input or 'normal'}, on 4 KiB pages"


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            model = next(line.partition(":")[2].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{os.cpu_count()} x {model}"
