"""Communicators: the collectives as a user calls them."""
from __future__ import annotations

import hashlib
from operator import index as index_of
from time import perf_counter

import numpy as np

from .. import _native
from ..compress import frame
from ..compress.array import target as to_target, view as to_view
from ..compress.codec import WireError, accumulator, auto_quality, codec as to_codec
from ..compress.feedback import ErrorFeedback
from ..compress.sparse_array import RowSparse, SparseArray, SparseView
from .auto import Tuning, candidates
from .call import Call, Cut, Record, mix, shard
from .errors import MismatchError, NonFiniteError
from .schedule import choose
from .transport import AGREEMENTS, DRIVER, Pending, Transport
from .workspace import Workspace

_PLANS = 512  # signatures remembered; a program that uses more of them at once re-plans, which costs some 50 us a call
_SPREAD = 0x9E3779B97F4A7C15  # odd: no two of a call's (seed, sequence) neighbours give one digest
_REDUCTIONS = ("sum", "mean", "max", "min")


class Plan:
    """Everything that a call can know before data: made once a signature."""

    def __init__(self, size, collective, n, view, codec, op, schedule, root, nonfinite, quality=None):
        self.collective, self.n, self.codec, self.op, self.root = collective, n, codec, op, root
        self.dtype, self.code = view.dtype, view.code
        count = "" if n is None else f"{n} "
        self.codec_name = str(codec)
        self.description = (
            f"{collective} of {count}{view.dtype} values, codec {self.codec_name}"
            + (f", op {op}" if op else "")
            + (f", root {root}" if root is not None else "")
            + (f", schedule {schedule}" if schedule != "auto" else "")
            + (f", nonfinite {nonfinite}" if nonfinite != "propagate" else "")
        )
        self._check(nonfinite)
        self.adds = Transport.adds(view.dtype)
        codec.check(view.dtype, view.code)
        self.nbytes = (n or 0) * view.dtype.itemsize
        self.wire_bytes = codec.kernels.bound(codec.params, n or 0, view.code)
        self.schedule = choose(self, size, schedule)
        self.carry_out = getattr(self.schedule, collective)
        self.at_once = self.schedule.ordered and collective == "allreduce" and op != "mean" and nonfinite == "propagate"
        self.digest = _native.crc32c(f"{codec.spec} {op} {collective}".encode())
        signature = f"{collective} {n} {view.code} {codec.spec} {op} {schedule} {root} {nonfinite} {quality}"
        self.signature = int.from_bytes(hashlib.blake2b(signature.encode(), digest_size=8).digest(), "little")
        # max and min need no wider type than the values'; a mean sums v * 2^-k, so that the sum of W values cannot overflow, and divides by
        # W * 2^-k: powers of two change no bit.
        self.accumulator = view.dtype if op in ("max", "min") else accumulator(view.code)
        self.scale = 2.0 ** -(size - 1).bit_length() if op == "mean" else 1.0
        self.divisor = size * self.scale if op == "mean" else 1.0
        self._cuts: dict = {}
        self._values: Plan | None = None

    def _check(self, nonfinite):
        if nonfinite not in ("propagate", "raise"):
            raise ValueError(f"nonfinite is 'propagate' or 'raise', not {nonfinite!r}")
        if self.op is None and self.collective not in ("allreduce", "reduce_scatter"):
            return
        if self.op not in _REDUCTIONS:
            raise ValueError(f"op is one of {', '.join(_REDUCTIONS)}, not {self.op!r}")
        if self.dtype == np.bool_:
            raise TypeError(f"{self.collective} does not add bool values; view them as uint8")
        if self.op == "mean" and self.dtype.kind in "iu":
            raise TypeError(f"the mean of {self.dtype} values is not of that dtype; sum them, or convert to a float")
        if self.op in ("max", "min"):
            if not self.codec.lossless:
                raise ValueError(f"op {self.op!r} needs a lossless codec, not {self.codec}: a rounded extreme belongs to no rank")
            if self.dtype.kind == "c":
                raise TypeError(f"{self.dtype} values have no {self.op}")

    def values(self, size, x) -> Plan:
        """The plan of a sum of values that stand at the same positions on all ranks: by `direct`, coded by this plan's stage."""
        if self._values is None or self._values.n != x.n:
            self._values = Plan(size, "allreduce", x.n, x, self.codec.then, self.op, "direct", None, "propagate")
        return self._values

    def cut(self, n, code, tail) -> Cut:
        cut = self._cuts.get((n, code))
        if cut is None:
            if len(self._cuts) >= _PLANS:
                self._cuts.clear()
            cut = self._cuts[n, code] = Cut(self.codec, n, code, tail)
        return cut


class Task:
    """A generator that is being run, and its outcome."""

    finished, result, error = False, None, None
    call, waiting = None, ()
    stage = 0  # 1 once the ranks have agreed
    mark, waited, noted = 0, 0.0, False  # progress seen, seconds without any, whether the others were told of them
    polled = None  # when it was last polled, if it is polled

    def __init__(self, communicator, description, sequence, generator):
        self.communicator, self.description, self.sequence = communicator, description, sequence
        self.generator = generator

    @property
    def progress(self):
        return self.stage + (self.call.progress if self.call is not None else 0)

    def step(self) -> bool:
        """Go on as far as possible. True when finished."""
        try:
            self.waiting = self.generator.send(None)
            return False
        except StopIteration as stop:
            self.result = stop.value
        except _Agreed as agreed:  # every rank raises it: the communicator is as good as before
            self.error = agreed.args[0]
        except BaseException as error:
            self.error = error
            self.communicator._fail(error)
        self.finished = True
        self.generator = self.call = None  # they hold the arrays
        return True

    def fail(self, error):
        self.finished, self.error = True, error
        self.generator.close()
        self.communicator._fail(error)

    def missing(self):
        if self.stage == 0:  # not yet agreed
            return self.communicator.transport.missing(self.sequence)
        return sorted({rank for waiting in self.waiting for rank in waiting.missing()})

    def outcome(self):
        if self.error is not None:
            raise self.error
        return self.result


class _Done:
    """A task that never was one: its result."""

    __slots__ = ("result",)
    finished, error = True, None

    def __init__(self, result):
        self.result = result


class _Agreed(Exception):
    """Carries an error that all ranks raise alike."""


class Request:
    """A collective under way. The arrays it uses must be left alone until `wait` has returned."""

    def __init__(self, task):
        self._task = task

    def __repr__(self):
        return f"<Request: {self._task.description}, {'finished' if self._task.finished else 'under way'}>"

    def test(self) -> bool:
        """Advance; True when the collective is finished, successfully or not (`wait` tells)."""
        task = self._task
        if not task.finished:
            DRIVER.poll()
            if not task.finished:
                DRIVER.check(task)
        return task.finished

    def wait(self):
        """The result, as the blocking call would give it; may be called again. Raises what the blocking call would raise."""
        if not self._task.finished:
            DRIVER.wait(self._task)
        return self._task.outcome()


class Communicator:
    """Compressed collectives over the ranks of an mpi4py communicator (COMM_WORLD by default), which is duplicated.

    timeout   seconds without any progress after which a call raises PeerLostError
    checksum  append the CRC-32C of its wire to every frame and check it on arrival

    All methods take arrays of any kind (numpy, torch, ... see thinwire.compress.array) and give back the same kind; `out=` receives
    the result and is returned. Keyword arguments that all share:

    codec      spec or codec (default "raw"); "auto" is the fastest that loses nothing, "auto:quality=1e-2" the fastest whose error stays
               within that part of the array's largest magnitude, both measured in the first calls of each kind
    seed       for codecs that draw random bits: one value on all ranks, another each step
    schedule   "auto", or one of thinwire.schedules()
    feedback, key   an ErrorFeedback and the name of this array in it
    nonfinite  "propagate": a non-finite input is non-finite in the result; "raise": NonFiniteError on every rank

    Every call first makes sure that all ranks call the same: MismatchError if they do not, PeerLostError if some do not come. After
    such an error, or one in the middle of a transfer, the communicator refuses further calls with the same message; a new one may be made.

    A process makes its calls from one thread at a time.
    """

    def __init__(self, comm=None, *, timeout: float = 60.0, checksum: bool = False):
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
        self.transport = Transport(comm, float(timeout))
        self.rank, self.size = self.transport.rank, self.transport.size
        self.checksum = bool(checksum)
        self.last = Record()
        self.workspace = Workspace()
        self.peers = [(self.rank + k) % self.size for k in range(1, self.size)]
        self._plans: dict = {}
        self._agreeing: list = [None] * AGREEMENTS  # the task in each of the transport's slots
        self._sequence = 0  # calls started
        self._agreed = 0  # of these, agreed
        self._turns = 0  # of these, to be carried out by MPI's own collectives
        self._failure: BaseException | None = None
        self._closed = False

    def __repr__(self):
        return f"Communicator(rank {self.rank} of {self.size}, timeout={self.transport.timeout}, checksum={self.checksum})"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Finish what is under way, then free the duplicated communicator. All ranks call it; calls after it raise RuntimeError."""
        if not self._closed:
            self._closed = True
            for task in [t for t in DRIVER.active if t.communicator is self]:
                DRIVER.wait(task)
            self.transport.close()

    # --- the collectives ---

    def allreduce(self, x, *, codec="raw", op="sum", out=None, seed=0, schedule="auto", feedback=None, key=None, nonfinite="propagate"):
        """The sum (mean, maximum, minimum) of x over all ranks, on every rank, bit for bit the same. x and result: same shape and dtype.

        x may be a SparseArray or a RowSparse with a codec that keeps all its entries ("nonzero"): the result is one, too, and nothing of
        the size of the whole array is made on the way. op: "sum", "mean" (never overflows before the division), "max" or "min" (lossless codecs only).
        """
        return self._finish(self._allreduce(True, x, codec, op, out, seed, schedule, feedback, key, nonfinite))

    def iallreduce(self, x, *, codec="raw", op="sum", out=None, seed=0, schedule="auto", feedback=None, key=None, nonfinite="propagate") -> Request:
        """allreduce, non-blocking."""
        return Request(self._allreduce(False, x, codec, op, out, seed, schedule, feedback, key, nonfinite))

    def reduce_scatter(self, x, *, codec="raw", op="sum", out=None, seed=0, schedule="auto", feedback=None, key=None, nonfinite="propagate"):
        """This rank's shard of the sum over all ranks: flat, the values [start, stop) = shard(n, size, rank) of x's n."""
        return self._finish(self._reduce_scatter(True, x, codec, op, out, seed, schedule, feedback, key, nonfinite))

    def ireduce_scatter(self, x, *, codec="raw", op="sum", out=None, seed=0, schedule="auto", feedback=None, key=None, nonfinite="propagate") -> Request:
        """reduce_scatter, non-blocking."""
        return Request(self._reduce_scatter(False, x, codec, op, out, seed, schedule, feedback, key, nonfinite))

    def allgather(self, x, *, codec="raw", out=None, seed=0, schedule="auto", feedback=None, key=None, nonfinite="propagate"):
        """The values of all ranks, flat, in rank order, the same on every rank. Ranks may bring different counts of one dtype."""
        return self._finish(self._allgather(True, x, codec, out, seed, schedule, feedback, key, nonfinite))

    def iallgather(self, x, *, codec="raw", out=None, seed=0, schedule="auto", feedback=None, key=None, nonfinite="propagate") -> Request:
        """allgather, non-blocking."""
        return Request(self._allgather(False, x, codec, out, seed, schedule, feedback, key, nonfinite))

    def alltoall(self, x, *, codec="raw", out=None, seed=0, schedule="auto", feedback=None, key=None, nonfinite="propagate"):
        """Peer j gets shard(n, size, j) of x; gives what all ranks sent here, flat, in rank order."""
        return self._finish(self._alltoall(True, x, codec, out, seed, schedule, feedback, key, nonfinite))

    def ialltoall(self, x, *, codec="raw", out=None, seed=0, schedule="auto", feedback=None, key=None, nonfinite="propagate") -> Request:
        """alltoall, non-blocking."""
        return Request(self._alltoall(False, x, codec, out, seed, schedule, feedback, key, nonfinite))

    def alltoallv(self, x, send_counts, recv_counts=None, *, codec="raw", out=None, seed=0, schedule="auto", feedback=None, key=None, nonfinite="propagate"):
        """Peer j gets the next send_counts[j] values of x; gives what all ranks sent here, flat, in rank order.

        send_counts: one count a rank, together x's size. recv_counts: what is expected of each rank; MismatchError on all ranks if
        another count comes. Counts of 0 are fine.
        """
        return self._finish(self._alltoallv(True, x, send_counts, recv_counts, codec, out, seed, schedule, feedback, key, nonfinite))

    def ialltoallv(self, x, send_counts, recv_counts=None, *, codec="raw", out=None, seed=0, schedule="auto", feedback=None, key=None, nonfinite="propagate") -> Request:
        """alltoallv, non-blocking."""
        return Request(self._alltoallv(False, x, send_counts, recv_counts, codec, out, seed, schedule, feedback, key, nonfinite))

    def broadcast(self, x, root=0, *, codec="raw", seed=0, schedule="auto", feedback=None, key=None, nonfinite="propagate"):
        """Fill x on every rank with the root's values, decoded from one wire (on the root too), and return it. x must be writable."""
        return self._finish(self._broadcast(True, x, root, codec, seed, schedule, feedback, key, nonfinite))

    def ibroadcast(self, x, root=0, *, codec="raw", seed=0, schedule="auto", feedback=None, key=None, nonfinite="propagate") -> Request:
        """broadcast, non-blocking."""
        return Request(self._broadcast(False, x, root, codec, seed, schedule, feedback, key, nonfinite))

    def send(self, x, dest, tag=0, *, codec="raw", seed=0, nonfinite="propagate"):
        """Send an array to a rank, which receives it with `recv`. The frame says what it is. Like MPI's, it may wait for the recv."""
        return self._finish(self._send(x, dest, tag, codec, seed, nonfinite))

    def isend(self, x, dest, tag=0, *, codec="raw", seed=0, nonfinite="propagate") -> Request:
        """send, non-blocking."""
        return Request(self._send(x, dest, tag, codec, seed, nonfinite))

    def recv(self, source, tag=0, out=None):
        """What a rank sent: a flat numpy array of its dtype, or `out`, filled. WireError if `out` does not fit."""
        return self._finish(self._recv(source, tag, out))

    def irecv(self, source, tag=0, out=None) -> Request:
        """recv, non-blocking."""
        return Request(self._recv(source, tag, out))

    # --- from arguments to tasks ---

    def _allreduce(self, blocking, x, codec, op, out, seed, schedule, feedback, key, nonfinite):
        v = x.view() if isinstance(x, (SparseArray, RowSparse)) else to_view(x)
        return self._start(blocking, "allreduce", v, v.n, codec, op, schedule, None, nonfinite, seed, feedback, key, target=v.target(out))

    def _reduce_scatter(self, blocking, x, codec, op, out, seed, schedule, feedback, key, nonfinite):
        v = to_view(x)
        start, stop = shard(v.n, self.size, self.rank)
        return self._start(blocking, "reduce_scatter", v, v.n, codec, op, schedule, None, nonfinite, seed, feedback, key, target=v.target(out, n=stop - start))

    def _allgather(self, blocking, x, codec, out, seed, schedule, feedback, key, nonfinite):
        v = to_view(x)
        t = None if out is None else to_target(out, _size(out), v.dtype)
        payload = np.array([v.n, -1 if out is None else t.flat.size], np.int64)

        def target(rows):
            total = int(rows[:, 0].sum())
            for rank, size in enumerate(rows[:, 1]):
                if size not in (-1, total):
                    raise _Agreed(ValueError(f"allgather: the ranks bring {total} values together; out on rank {rank} has {size}"))
            return v.target(None, n=total) if t is None else t

        return self._start(blocking, "allgather", v, None, codec, None, schedule, None, nonfinite, seed, feedback, key, payload=payload, target=target)

    def _alltoall(self, blocking, x, codec, out, seed, schedule, feedback, key, nonfinite):
        v = to_view(x)
        counts = [stop - start for start, stop in (shard(v.n, self.size, r) for r in range(self.size))]
        target = v.target(out, n=counts[self.rank] * self.size)
        rows = np.array([counts] * self.size, np.int64)
        return self._start(blocking, "alltoall", v, v.n, codec, None, schedule, None, nonfinite, seed, feedback, key, target=target, rows=rows)

    def _alltoallv(self, blocking, x, send_counts, recv_counts, codec, out, seed, schedule, feedback, key, nonfinite):
        v, size = to_view(x), self.size
        sent = _counts("send_counts", send_counts, size)
        if sum(sent) != v.n:
            raise ValueError(f"rank {self.rank}: send_counts add up to {sum(sent)} values; x has {v.n}")
        expected = [-1] * size if recv_counts is None else _counts("recv_counts", recv_counts, size)
        t = None if out is None else to_target(out, _size(out), v.dtype)
        payload = np.array([*sent, *expected, -1 if out is None else t.flat.size], np.int64)

        def target(rows):
            matrix, asked = rows[:, :size], rows[:, size : 2 * size].T  # [sender, receiver]
            wrong = np.argwhere((asked != -1) & (asked != matrix))
            if wrong.size:
                raise MismatchError(
                    "alltoallv: "
                    + "; ".join(f"rank {r} expects {asked[s, r]} values from rank {s}, which sends {matrix[s, r]}" for s, r in wrong[:8])
                )
            totals = matrix.sum(axis=0)
            outs = rows[:, 2 * size]
            for rank in np.flatnonzero((outs != -1) & (outs != totals)):
                raise _Agreed(ValueError(f"alltoallv: rank {rank} receives {totals[rank]} values; its out has {outs[rank]}"))
            return v.target(None, n=int(totals[self.rank])) if t is None else t

        return self._start(blocking, "alltoall", v, None, codec, None, schedule, None, nonfinite, seed, feedback, key, payload=payload, target=target)

    def _broadcast(self, blocking, x, root, codec, seed, schedule, feedback, key, nonfinite):
        v = to_view(x)
        root = self._rank("root", root)
        return self._start(blocking, "broadcast", v, v.n, codec, None, schedule, root, nonfinite, seed, feedback, key, target=v.target(x))

    def _start(self, blocking, collective, v, n, codec, op, schedule, root, nonfinite, seed, feedback, key, *, target, payload=None, rows=None):
        """Check everything that this rank can check by itself, then make the task. Nothing has been sent when this raises."""
        self._usable()
        entry = self._entry(collective, v, codec, feedback, key)
        try:
            seed = index_of(seed) & 0xFFFFFFFFFFFFFFFF
        except TypeError:
            raise TypeError(f"seed must be a whole number, not {seed!r}") from None
        plan, tuning, index = self._plan(collective, n, v, codec, op, schedule, root, nonfinite)
        if isinstance(v, SparseView) and not (plan.codec.keeps_all and plan.schedule.takes_sparse and feedback is None):
            raise ValueError(
                f"{plan.description}: a sparse array goes with a codec that keeps all of its entries, such as 'nonzero' or 'nonzero|fp16', "
                f"by a schedule that adds entries, without feedback; not by {plan.schedule.name}"
            )
        sequence, agreement = self._sequence, None
        while self.transport.busy(sequence):
            DRIVER.wait(self._agreeing[sequence % AGREEMENTS], stage=1)
        self._sequence += 1
        if blocking and plan.at_once and feedback is None and tuning is None and self._agreed == sequence and self.transport.turn == self._turns:
            started = perf_counter()
            agreement = self._agreement(plan, seed, sequence, self.size)
            if agreement is None or (agreement.soon() and agreement.least_objector() == self.size):
                return self._at_once(plan, v, target, started)
        call = Call(self, plan, sequence, v, seed, entry, blocking)
        call.rows = rows
        task = Task(self, plan.description, sequence, None)
        task.generator = self._run(task, call, v, target, payload, nonfinite, tuning, index, agreement)
        if tuning is not None:
            tuning.tasks.append(task)
        self._agreeing[sequence % AGREEMENTS] = task
        if not task.step():
            DRIVER.start(task)
        return task

    def _entry(self, collective, v, codec, feedback, key):
        """(entry, key) of the feedback for this array, its residuals of the sizes that this call needs; None without feedback."""
        if feedback is None:  # a key alone is fine: programs switch feedback off in one place
            return None
        if not isinstance(feedback, ErrorFeedback):
            raise TypeError(f"feedback must be an ErrorFeedback, not {type(feedback).__name__}")
        if key is None:
            raise ValueError("feedback needs key=, the name of this array: residuals are kept by name")
        feedback.check(codec)
        entry = feedback.entry(key, v.shape, v.code)
        if collective == "allreduce" and "owner" in entry.residuals:
            start, stop = shard(v.n, self.size, self.rank)
            entry.residual(key, "owner", stop - start)
        return entry, key

    def _plan(self, collective, n, v, codec, op, schedule, root, nonfinite):
        """(plan, tuning, place among the tuning's calls); the latter two only while "auto" has not settled."""
        signature = (collective, n, v.code, codec, op, schedule, root, nonfinite)
        try:
            plan = self._plans.get(signature)
        except TypeError:
            plan = None  # unhashable: the plan's checks say what is wrong
        if plan is None:
            quality = auto_quality(codec)
            if quality is None:
                plan = Plan(self.size, collective, n, v, to_codec(codec), op, schedule, root, nonfinite)
            else:  # counts that differ between ranks leave nothing that all of them could measure alike
                able = candidates(quality, op, v.dtype, n) if n is not None and self.size > 1 else candidates(quality, op, v.dtype, 0)
                plan = Tuning([Plan(self.size, collective, n, v, c, op, schedule, root, nonfinite, quality) for c in able])
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            self._plans[signature] = plan
        if isinstance(plan, Plan):
            return plan, None, 0
        tuning, index = plan, plan.started
        tuning.started += 1
        if tuning.chosen is None and index >= tuning.trials:
            for task in tuning.tasks:  # the trials at the settling call, the settling call at those after it
                DRIVER.wait(task)
                task.outcome()
        if tuning.chosen is not None:
            return tuning.chosen, None, 0
        return tuning.plans[index % len(tuning.plans) if index < tuning.trials else 0], tuning, index

    def _agreement(self, plan, seed, sequence, objector):
        """Start to agree on a call; None where there is nobody to agree with."""
        if self.size == 1:
            return None
        return self.transport.agree(sequence, plan.signature + (seed + sequence * _SPREAD) * _SPREAD, objector)

    def _at_once(self, plan, v, target, started):
        """A blocking call of MPI's own allreduce whose ranks have agreed at the first look: the task and the generator would cost a small
        message more than its transfer."""
        agreed = perf_counter()
        out = target.flat
        self._agreed += 1
        self._turns += 1
        self.transport.allreduce_now(v.flat, out, plan.op)
        moved = 2 * out.nbytes * (self.size - 1) // self.size
        self.last = Record(plan.collective, plan.schedule.name, plan.codec_name, moved, moved, (agreed - started, 0.0, 0.0, perf_counter() - started))
        return _Done(target.finish())

    def _run(self, task, call, v, target, payload, nonfinite, tuning, index, agreement):
        """Generator: agree, carry out, report."""
        started = perf_counter()
        plan, transport, objector = call.plan, self.transport, self.size
        if nonfinite == "raise" and _native.any_nonfinite(call.x, 0, call.x.size, call.code):
            objector = self.rank
        agreement = agreement or self._agreement(plan, call.seed, call.sequence, objector)
        if agreement is not None:
            if not agreement.soon():
                while not agreement.done():
                    yield ()
            objector = agreement.least_objector()
        while self._agreed != call.sequence:  # what follows an agreement starts in the order of the calls, on all ranks
            yield ()
        self._agreed += 1
        self._agreeing[call.sequence % AGREEMENTS] = None
        task.stage, task.call = 1, call
        if objector is None:
            descriptions = yield from transport.describe(call.sequence, f"{plan.description}, seed {call.seed}, call {call.sequence}")
            raise MismatchError(f"rank {self.rank}: ranks call different things: {_sides(descriptions)}")
        if objector < self.size:
            raise _Agreed(NonFiniteError(f"{plan.description}: the input of rank {objector} holds a non-finite value"))
        if plan.schedule.ordered:
            call.turn = self._turns
            self._turns += 1
        if tuning is not None and index == tuning.trials:
            tuning.settle((yield from transport.exchange(call.sequence, tuning.seconds, 2)))
        if payload is not None:
            call.rows = yield from transport.exchange(call.sequence, payload, 2)
            try:
                target = target(call.rows)
            except _Agreed:
                yield from self._skip(call)
                raise
        agreed = perf_counter()
        call.out = target.flat
        if target.aliases(v):
            call.aliases = plan.collective in ("allreduce", "broadcast") and _native.address(call.out) == _native.address(call.x)
            if not call.aliases:  # results would overwrite values that are still to be sent
                x = call.array(call.n, call.dtype)
                x[:] = call.x
                call.x = x
        feeds = call.entry is not None and plan.root in (None, self.rank)  # a broadcast encodes the root's values alone
        if feeds:
            x = call.entry[0].before(call.entry[1], call.x, self.size, call.events)
            if x is not call.x:
                call.x, call.aliases = x, False
        yield from plan.carry_out(call)
        if feeds:
            call.entry[0].after(call.entry[1])
        if call.taken:
            self.workspace.give_back(call.taken)
        seconds = agreed - started, call.encoding.seconds, call.decoding.seconds, perf_counter() - started
        if tuning is not None and index < tuning.trials:
            tuning.report(index, seconds[-1])
        self.last = Record(plan.collective, plan.schedule.name, plan.codec_name, call.raw_bytes, call.wire_bytes, seconds, call.events)
        return target.finish()

    def _skip(self, call):
        """Generator: let the turn of a call that will not be carried out go by."""
        if call.turn is not None:
            while self.transport.turn != call.turn:
                yield ()
            self.transport.turn += 1

    def _send(self, x, dest, tag, codec, seed, nonfinite):
        self._usable()
        v, codec, dest, tag = to_view(x), to_codec(codec), self._rank("dest", dest), self.transport.message_tag(tag)
        if nonfinite == "raise" and _native.any_nonfinite(v.flat, 0, v.n, v.code):
            raise NonFiniteError(f"send of {v.n} {v.dtype} values to rank {dest}: the input of rank {self.rank} holds a non-finite value")
        started = perf_counter()
        message = frame.encode_frame(v, codec, mix(index_of(seed), self.rank), self.checksum)
        encoded = perf_counter() - started
        pending = Pending()

        def run():
            self.transport.send(pending, message, 0, message.size, dest, tag)
            while not pending.done():
                yield (pending,)
            raw = v.n * v.dtype.itemsize
            self.last = Record("send", "direct", str(codec), raw, message.size, (0.0, encoded, 0.0, perf_counter() - started))

        return self._message(f"send of {v.n} {v.dtype} values to rank {dest}", run())

    def _recv(self, source, tag, out):
        self._usable()
        source, tag = self._rank("source", source), self.transport.message_tag(tag)
        if out is not None:
            to_target(out, _size(out), to_view(out).dtype)  # writable, before anything is taken

        def run():
            started = perf_counter()
            while (found := self.transport.probe(source, tag)) is None:
                yield (expected,)
            message, size = found
            incoming = self.transport.fetch(message, np.empty(size, np.uint8), source)
            while not incoming.done():
                yield (incoming,)
            arrived = perf_counter()
            try:
                result = frame.decode_frame(incoming.buffer, out)
            except (ValueError, TypeError) as error:  # the message is consumed and nobody else is concerned
                raise _Agreed(error if isinstance(error, WireError) else WireError(f"recv from rank {source}: {error}")) from None
            self.last = Record("recv", "direct", "", 0, 0, (0.0, 0.0, perf_counter() - arrived, perf_counter() - started))
            return result

        expected = _Expected(source)
        return self._message(f"recv from rank {source}", run())

    def _message(self, description, generator):
        task = Task(self, description, self._sequence, generator)
        task.stage = 1  # nothing to agree on
        if not task.step():
            DRIVER.start(task)
        return task

    # --- common ---

    def _finish(self, task):
        if not task.finished:
            DRIVER.wait(task)
        if task.error is not None:
            raise task.error
        return task.result

    def _rank(self, what, rank) -> int:
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or not 0 <= rank < self.size:
            raise ValueError(f"{what} is a rank from 0 to {self.size - 1}, not {rank!r}")
        return int(rank)

    def _usable(self):
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args) from self._failure
        if self._closed:
            raise RuntimeError("this communicator is closed")

    def _fail(self, error):
        self.transport.clean = False
        for task in [t for t in DRIVER.active if t.communicator is self]:  # they may wait for what will not come
            task.finished, task.error = True, error
            DRIVER.active.remove(task)
        if self._failure is None:
            kept = isinstance(error, (MismatchError, WireError, RuntimeError, ValueError)) and not isinstance(error, UnicodeError)
            self._failure = error if kept else RuntimeError(f"this communicator failed in an earlier call: {error!r}")


class _Expected:
    """Stands for a message that has not come."""

    def __init__(self, source):
        self.source = source

    def missing(self):
        return [self.source]


def _size(array) -> int:
    return array.size if isinstance(array, np.ndarray) else to_view(array).n


def _counts(what, counts, size) -> list[int]:
    values = np.asarray(counts)
    if values.shape != (size,) or values.dtype.kind not in "iu" or (values < 0).any():
        raise ValueError(f"{what} must be {size} counts, one a rank, none negative, not {counts!r}")
    return values.tolist()


def _sides(descriptions) -> str:
    sides: dict[str, list[int]] = {}
    for rank, description in enumerate(descriptions):
        sides.setdefault(description, []).append(rank)
    return "; ".join(f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}: {side}" for side, ranks in sides.items())
