"""Entries: what a sparse codec keeps of an array. What the schedules of sparse reductions share.

A rank's entries are ascending indices and their values, unrounded, in the accumulator's type. They travel as the codec's wire of the range
of positions that they lie in.
"""
from __future__ import annotations

from itertools import pairwise

import numpy as np

from .. import _native
from ..compress.array import View
from ..compress.feedback import ErrorFeedback
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
        return [self[a:b] for a, b in pairwise(np.searchsorted(self.index, np.array(edges, np.uint64)))]


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


def arrived(frame):
    """Generator: until a frame of one part is here."""
    while not frame.ready(0):
        yield [frame]


def to_owners(call: Call, entries: Entries, edges):
    """Generator: every rank's entries to the ranks that own their positions [edges[r], edges[r + 1]). Gives what this rank owns: of each rank a frame,
    its own entries, or nothing where it owns no position."""
    cuts = [call.cut(b - a) for a, b in pairwise(edges)]
    mine = cuts[call.rank]
    incoming = {p: call.receive(mine, p) for p in call.peers} if mine.n else {}
    parts = entries.between(edges)
    for p in call.peers:
        if cuts[p].n:
            call.send(pack(call, cuts[p], parts[p], edges[p], p, 0), 0, p)
            yield ()
    for frame in incoming.values():
        yield from arrived(frame)
    return [parts[r] if r == call.rank else incoming[r] for r in range(call.size)] if mine.n else []


def add_up(call: Call, terms, acc, base: int):
    """acc, an accumulator for the positions from `base` on, = the sum of entries, of each rank a frame or this rank's own, in rank order."""

    def opened(term):
        return term if isinstance(term, Entries) else unpack(call, term, base)

    if sum(_bytes(term) for term in terms) > acc.nbytes // 2:  # hardly sparse any more: one rank after another
        with call.decoding:
            _native.clear(acc)
        for place, term in enumerate(terms):
            if place and not isinstance(term, Entries):
                call.add_part(term, acc)
                continue
            entries = opened(term)
            with call.decoding:
                mode = _native.ADD if place else _native.ACCUMULATE
                if entries.poisoned:
                    acc.fill(np.nan)
                else:
                    _native.scatter(entries.index, entries.value, acc, 0, acc.size, call.code, base, mode, call.plan.scale)
        return
    opened_all = [opened(term) for term in terms]
    with call.decoding:
        if any(entries.poisoned for entries in opened_all):
            acc.fill(np.nan)
        else:
            _native.sum_entries([(entries.index, entries.value) for entries in opened_all], acc, call.plan.scale, base)


def _bytes(term) -> int:
    if isinstance(term, Entries):
        return term.index.nbytes + term.value.nbytes
    _, begin, end = term.place(0)
    return end - begin


def union(call: Call, terms, base: int) -> Entries:
    """The same sum as entries, a mean divided; nothing of the size of the array is made."""
    total = None
    for term in terms:
        total = merged(call, total, scaled(call, term if isinstance(term, Entries) else unpack(call, term, base)))
    return finished(call, total)


def sums(call: Call, terms, edges) -> Entries:
    """The entries of the sum of what this rank owns, a mean divided."""
    base, end = edges[call.rank : call.rank + 2]
    if call.sparse and terms:
        return union(call, terms, base)
    acc = call.array(end - base, call.plan.accumulator)  # entries of dense arrays are as good as random: adding them up in place is fastest
    add_up(call, terms, acc, base)
    with call.decoding:
        index, value = nonzero_entries(acc)
        index = index.astype(np.uint64 if edges[-1] > 1 << 32 else np.uint32, copy=False)
        if base:
            index += index.dtype.type(base)
    return finished(call, Entries(index, value))


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
        yield from arrived(frame)
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


def add_values(call: Call, entries: Entries):
    """Generator: the sum over all ranks of values that stand at the same positions, by `direct`."""
    k, narrow = len(entries), call.plan.accumulator != call.dtype
    x, value = View(call.array(k, call.dtype), call.code, (k,)), entries.value
    if narrow and entries.residual is not None:  # finite in the accumulator's type, so finite here: the residual keeps the rest
        largest = ErrorFeedback.largest(call.dtype)
        value = np.clip(value, -largest, largest)
    x.flat[:] = value
    plan = call.plan.values(call.size, x)
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
