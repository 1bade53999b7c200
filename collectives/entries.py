"""Entries: what a sparse codec keeps of an array. What the schedules of sparse reductions share.

A rank's entries are ascending indices and their values, unrounded, in the accumulator's type. They travel as the codec's wire of the range
of positions that they lie in.
"""
from __future__ import annotations

from itertools import pairwise

import ml_dtypes
import numpy as np

from .. import _native
from ..compress.array import View
from ..compress.nonzero import nonzero_entries
from .call import Call, Outgoing, shard
from .schedule import Schedule

ENTRY = 4e-9  # seconds to code or add one entry


class Entries:
    """Ascending positions and the values there.

    poisoned   a non-finite value was left out, so that all values of the array are NaN
    home       where the values belong in the array, if `index` says something else
    residual   what is lost of them on the way is kept there, times `weight`; or None
    """

    __slots__ = ("index", "value", "poisoned", "home", "residual", "weight")

    def __init__(self, index, value, poisoned=False, *, home=None, residual=None, weight=1):
        self.index, self.value, self.poisoned = index, value, poisoned
        self.home = index if home is None else home
        self.residual, self.weight = residual, weight

    def __len__(self):
        return self.index.size

    def __getitem__(self, part):
        return Entries(self.index[part], self.value[part], self.poisoned, home=self.home[part], residual=self.residual, weight=self.weight)

    def between(self, edges):
        """The entries of each of several ranges that follow one another."""
        at = np.searchsorted(self.index, np.array(edges, self.index.dtype)) if edges[-1] <= np.iinfo(self.index.dtype).max else self._beyond(edges)
        return [self[a:b] for a, b in pairwise(at)]

    def _beyond(self, edges):
        return np.append(np.searchsorted(self.index, np.array(edges[:-1], self.index.dtype)), len(self))


class SparseSchedule(Schedule):
    """Base of the schedules that reduce entries."""

    algebra = "union"
    takes_sparse = True

    @staticmethod
    def wire(plan, count) -> float:
        """Bytes of a frame with so many entries, about: a Golomb code of the gaps and the stage's bytes."""
        count = max(count, 1.0)
        return 64 + count * (plan.codec.value_bytes(plan.dtype) + (np.log2(max(plan.n / count, 1.0)) + 1.6) / 8)


def select(call: Call, report=True) -> Entries:
    """What this rank's codec keeps of its array; what it does not keep stays in the residual. report: tell the feedback that all of it is sent."""
    residual = call.residual("worker", call.n)
    if call.report_nonfinite(residual, call.x, 0, call.n, call.code):
        residual = None
    if call.sparse:
        return Entries(call.index, call.x.astype(call.plan.accumulator))
    with call.encoding:
        entries = Entries(*call.codec.kernels.select(call.codec.params, call.x, 0, call.n, call.code, call.seed, residual), residual=residual)
        if residual is not None and report:
            call.selected(entries.index)
    return entries


def pack(call: Call, cut, entries: Entries, base: int, *words: int, codec=None) -> Outgoing:
    """A frame of entries of the range of positions that starts at `base`; what its stage loses goes into their residual.

    `words` set the stage's random bits apart from those of the call's other frames.
    """
    codec = call.codec if codec is None else codec
    kernels, residual = codec.kernels, entries.residual
    with call.encoding:
        frame = call.outgoing(cut, *words, room=kernels.pack_bound(codec.params, len(entries), cut.n, cut.code))
        lost = None if residual is None else call.array(len(entries), residual.dtype)
        used = kernels.pack(
            codec.params, entries.index, entries.value, base, cut.n, cut.code, frame.buffer, frame.start, frame.seed, poison=entries.poisoned, lost=lost
        )
        call.close(frame, 0, frame.start + used)
        if lost is not None:
            residual[entries.home] += lost * entries.weight
    return frame


def unpack(call: Call, source, base: int, codec=None) -> Entries:
    """The entries of a frame, one that arrived or one of this rank's own."""
    codec = call.codec if codec is None else codec
    with call.decoding:
        buffer, begin, end = call.wire(source, 0)
        found = codec.kernels.unpack(codec.params, buffer, begin, end - begin, source.cut.n, source.cut.code, base, call.n > 1 << 32)
        if found is None:
            raise call.no_wire(source.cut.n)
    return Entries(*found)


def add(call: Call, entries: Entries, acc, base: int, first: bool):
    """Add a rank's entries to a sum over positions from `base` on; `first`: the sum, zeros so far, starts with them."""
    with call.decoding:
        if entries.poisoned:
            acc[:] = np.nan
        else:
            mode = _native.ACCUMULATE if first else _native.ADD
            _native.scatter(entries.index, entries.value, acc, 0, acc.size, call.code, base, mode, call.plan.scale)


def to_owners(call: Call, entries: Entries, edges, acc=None):
    """Generator: every rank's entries to the ranks that own their positions [edges[r], edges[r + 1]). Gives the entries of the sum over this rank's
    positions, added in rank order; or leaves the sum in `acc`, an accumulator for these positions."""
    cuts = [call.cut(b - a) for a, b in pairwise(edges)]
    mine, base = cuts[call.rank], edges[call.rank]
    incoming = {p: call.receive(mine, p) for p in call.peers} if mine.n else {}
    parts = entries.between(edges)
    for p in call.peers:
        if cuts[p].n:
            call.send(pack(call, cuts[p], parts[p], edges[p], p, 0), 0, p)
            yield ()
    given, dense, total = acc is not None, acc is not None or not call.sparse, None
    if dense and not given:
        acc = call.array(mine.n, call.plan.accumulator)
    if dense:
        with call.decoding:
            _native.clear(acc)
    for r in range(call.size) if mine.n else ():
        while r != call.rank and not incoming[r].ready(0):
            yield [incoming[r]]
        if not dense:
            total = merged(call, total, scaled(call, parts[r] if r == call.rank else unpack(call, incoming[r], base)))
        elif r == call.rank:
            add(call, parts[r], acc, base, r == 0)
        elif r == 0:
            add(call, unpack(call, incoming[r], base), acc, base, True)
        else:
            call.add_part(incoming[r], acc)
    if given:
        return None
    if mine.n == 0:
        return entries[:0]
    return finished(call, nonzero(call, acc, base, edges[-1]) if dense else total)


def to_all(call: Call, entries: Entries, edges):
    """Generator: the entries of the sum that each rank owns, to every rank. Gives all ranks' entries, as every rank decodes them.

    What this rank's stage loses of a sum goes into its residual: the sum over all ranks is what has to balance.
    """
    if call.entry is not None:
        entries.residual, entries.weight = call.residual("worker", call.n), call.size if call.op == "mean" else 1
    cuts = [call.cut(b - a) for a, b in pairwise(edges)]
    incoming = {p: call.receive(cuts[p], p, 1) for p in call.peers if cuts[p].n}
    results = [None] * call.size
    if cuts[call.rank].n:
        frame = pack(call, cuts[call.rank], entries, edges[call.rank], call.size, 1)
        for p in call.peers:
            call.send(frame, 0, p, 1)
        results[call.rank] = unpack(call, frame, edges[call.rank])
    for p, frame in incoming.items():
        while not frame.ready(0):
            yield [frame]
        results[p] = unpack(call, frame, edges[p])
    yield from call.sent()
    return [r for r in results if r is not None]


def write(call: Call, results):
    """Entries, none of them at the place of another, into the output; zeros elsewhere."""
    poisoned = any(entries.poisoned for entries in results)
    with call.decoding:
        if call.sparse:
            index, value = np.concatenate([e.home for e in results]), np.concatenate([e.value for e in results])
            order = np.argsort(index) if (index[1:] < index[:-1]).any() else slice(None)
            call.out.put(index[order].astype(call.index.dtype), value[order])
            return
        call.out.fill(np.nan) if poisoned else _native.clear(call.out)
        for entries in results if not poisoned else ():
            _native.scatter(entries.home, entries.value, call.out, 0, call.out.size, call.code)


def scaled(call: Call, entries: Entries) -> Entries:
    """A rank's entries as terms of a sum."""
    if call.plan.scale != 1.0:
        entries.value = entries.value * entries.value.dtype.type(call.plan.scale)
    return entries


def merged(call: Call, a: Entries | None, b: Entries) -> Entries:
    """The sum of two ranks' entries, or of none and one."""
    if a is None:
        return b
    with call.decoding:
        return Entries(*_native.merge(a.index, a.value, b.index, b.value), a.poisoned or b.poisoned)


def finished(call: Call, entries: Entries) -> Entries:
    """Entries of a sum, a mean divided."""
    if call.plan.divisor != 1.0:
        entries.value = entries.value / entries.value.dtype.type(call.plan.divisor)
    return entries


def nonzero(call: Call, acc, base: int, end: int) -> Entries:
    """The entries of a sum over positions from `base` on, of `end` positions in all."""
    with call.decoding:
        index, value = nonzero_entries(acc)
        index = index.astype(np.uint64 if end > 1 << 32 else np.uint32, copy=False)
        if base:
            index += index.dtype.type(base)
    return Entries(index, value)


def add_values(call: Call, entries: Entries):
    """Generator: the sum over all ranks of values that stand at the same positions, by `direct`."""
    k, narrow = len(entries), call.plan.accumulator != call.dtype
    x, value = View(call.array(k, call.dtype), call.code, (k,)), entries.value
    if narrow and entries.residual is not None:  # finite in the accumulator's type, so finite here: the residual keeps the rest
        largest = float(ml_dtypes.finfo(call.dtype).max)
        value = np.clip(value, -largest, largest)
    x.flat[:] = value
    # Not among the communicator's plans: the number of values may be another in each call.
    plan = type(call.plan)(call.size, "allreduce", k, x, call.codec.then, call.op, "direct", None, "propagate")
    lost = _Lost(call)
    inner = Call(call.communicator, plan, call.sequence, x, call.seed, None if entries.residual is None else (lost, None), call.blocking)
    inner.encoding, inner.decoding, inner.taken, inner.events = call.encoding, call.decoding, call.taken, call.events
    inner.out = call.array(k, call.dtype)
    yield from plan.carry_out(inner)
    call.wire_bytes += inner.wire_bytes
    call.raw_bytes = 2 * call.n * call.dtype.itemsize * (call.size - 1) // call.size  # the array by `direct`
    if entries.residual is not None:
        if narrow:
            entries.residual[entries.home] += entries.value - x.flat.astype(entries.value.dtype)
        for role, weight, (a, b) in (("worker", 1, (0, k)), ("owner", call.size if call.op == "mean" else 1, shard(k, call.size, call.rank))):
            if role in lost.arrays:
                entries.residual[entries.home[a:b]] += lost.arrays[role] * weight
    return inner.out


class _Lost:
    """Stands for feedback where entries travel: collects what is lost on the way."""

    def __init__(self, call):
        self._call, self.arrays = call, {}

    def residual(self, _, role, n):
        if role not in self.arrays:
            self.arrays[role] = self._call.array(n, self._call.plan.accumulator)
            self.arrays[role][:] = 0
        return self.arrays[role]
