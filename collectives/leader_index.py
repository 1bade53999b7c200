from __future__ import annotations

import numpy as np

from .. import _native
from ..compress.feedback import ErrorFeedback
from .call import Call, shard
from .entries import ENTRY, Entries, SparseSchedule, add_values, arrived, select
from .schedule import BYTE, CODED, MESSAGE


class LeaderIndex(SparseSchedule):
    """All ranks send their values at one set of positions, which add without merging: bytes and work do not grow with the ranks.

    ScaleCom (Chen et al. 2020): the leader, rank seed mod W, sends the positions that its codec selects; where a codec draws its positions from
    the seed alone, nobody has to. The values then go by `direct`, coded by the codec's stage.
    """

    takes_sparse = False
    name = "leader-index"
    algebra = "sum"

    def can(self, plan):
        return super().can(plan) and plan.codec.selects

    def cost(self, plan, size):
        count = plan.codec.entries(plan.n)
        values = 2 * count * plan.codec.value_bytes(plan.dtype)
        return 4 * MESSAGE * size + BYTE * (self.wire(plan, count) + values) + CODED * 2 * plan.nbytes + 4 * ENTRY * count

    def allreduce(self, call: Call):
        yield from self._carry_out(call, 0, call.n)

    def reduce_scatter(self, call: Call):
        yield from self._carry_out(call, *shard(call.n, call.size, call.rank))

    def _carry_out(self, call, start, stop):
        """Generator: the sum's values [start, stop) into the output."""
        if call.n == 0:
            return
        leader = call.seed % call.size
        if call.codec.kernels.shares or call.rank == leader:
            entries = select(call)
            if not call.codec.kernels.shares:
                yield from _tell(call, entries.index)
        else:
            entries = _gather(call, (yield from _hear(call, leader)))
        poisoned = yield from call.transport.exchange(call.sequence, np.array([entries.poisoned], np.int64), 2)
        sums = yield from add_values(call, entries)
        yield from call.sent()
        with call.decoding:
            if poisoned.any():
                call.out.fill(np.nan)
                return
            _native.clear(call.out)
            a, b = np.searchsorted(entries.index, (start, stop))
            call.out[entries.index[a:b] - entries.index.dtype.type(start)] = sums[a:b]


def _tell(call: Call, index):
    """Generator: positions to all ranks."""
    cut = call.cut(call.n)
    with call.encoding:
        frame = call.outgoing(cut, room=_native.positions_bound(index.size, call.n))
        call.close(frame, 0, frame.start + _native.pack_positions(index, call.n, frame.buffer, frame.start))
    for peer in call.peers:
        call.send(frame, 0, peer, 2)
    yield ()


def _hear(call: Call, leader: int):
    """Generator: the leader's positions."""
    frame = call.receive(call.cut(call.n), leader, 2)
    yield from arrived(frame)
    with call.decoding:
        buffer, begin, end = call.wire(frame, 0)
        index = _native.unpack_positions(buffer, begin, end - begin, call.n)
    if index is None:
        raise call.no_wire(call.n)
    return index


def _gather(call: Call, index) -> Entries:
    """This rank's entries at given positions; what it does not send stays in the residual."""
    residual = call.residual("worker", call.n)
    x = call.x, 0, call.n, call.code
    nonfinite = _native.any_nonfinite(*x) if residual is None else call.report_nonfinite(residual, *x)
    with call.encoding:
        if residual is None or nonfinite:
            value = call.x[index].astype(call.plan.accumulator)
            kept, there = (np.count_nonzero(~np.isfinite(v)) for v in (value, call.x.astype(call.plan.accumulator))) if nonfinite else (0, 0)
            return Entries(index, value, kept < there)
        np.add(residual, call.x, out=residual)
        ErrorFeedback.limit(residual)
        value = residual[index]
        residual[index] = 0
        call.selected(index)
    return Entries(index, value, residual=residual)
