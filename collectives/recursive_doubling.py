from __future__ import annotations

import math

from .call import Call
from .entries import Entries, SparseSchedule, arrived, finished, merged, pack, scaled, select, unpack, write


class RecursiveDoubling(SparseSchedule):
    """Ranks exchange sums with partners at distance 1, 2, 4, ...: log2 W steps, in which equal positions merge.

    SparCML (Renggli et al. 2019). A rank's own entries are coded once; sums of several ranks travel unrounded, and as a dense array once that
    is shorter than entries. Sums run along the tree ((0 + 1) + (2 + 3)), the same on every rank but not in rank order, so it is never
    chosen by itself. Of a number of ranks that is no power of two, the first few go in pairs that act as one.
    """

    name = "recursive-doubling"

    def cost(self, plan, size):
        return math.inf

    def allreduce(self, call: Call):
        if call.n == 0:
            return
        rank, power = call.rank, 1 << call.size.bit_length() - 1
        pairs = call.size - power  # ranks (0, 1), (2, 3), ... below 2 * pairs
        mine = pack(call, call.cut(call.n), select(call), 0, 0)
        entries = scaled(call, unpack(call, mine, 0))  # as the others see them
        if rank < 2 * pairs and rank % 2:
            call.send(mine, 0, rank - 1)
            entries = yield from _sum(call, rank - 1, 2)
        else:
            if rank < 2 * pairs:
                entries = merged(call, entries, (yield from _own(call, rank + 1, 0)))
            me = rank // 2 if rank < 2 * pairs else rank - pairs
            for step in range(power.bit_length() - 1):
                other = me ^ 1 << step
                partner = 2 * other if other < pairs else other + pairs
                frame = mine
                if step or rank < 2 * pairs:
                    frame = _packed(call, entries)
                    entries = unpack(call, frame, 0, call.codec.exact)  # as its partner sees them
                call.send(frame, 0, partner, 1)
                theirs = yield from (_own if step == 0 and partner >= 2 * pairs else _sum)(call, partner, 1)
                entries = merged(call, *((entries, theirs) if me < other else (theirs, entries)))  # alike on both
            if pairs:  # those of odd ranks get the sum by a wire, so all see it through one
                frame = _packed(call, entries)
                entries = unpack(call, frame, 0, call.codec.exact)
                if rank < 2 * pairs:
                    call.send(frame, 0, rank + 1, 2)
        write(call, [finished(call, entries)])
        yield from call.sent()


def _packed(call: Call, entries: Entries):
    return pack(call, call.cut(call.n, call.plan.accumulator), entries, 0, codec=call.codec.exact)


def _own(call: Call, peer: int, phase: int):
    """Generator: the entries that a rank selected."""
    frame = call.receive(call.cut(call.n), peer, phase)
    yield from arrived(frame)
    return scaled(call, unpack(call, frame, 0))


def _sum(call: Call, peer: int, phase: int):
    """Generator: a rank's sum of several ranks' entries."""
    frame = call.receive(call.cut(call.n, call.plan.accumulator), peer, phase)
    yield from arrived(frame)
    return unpack(call, frame, 0, call.codec.exact)
