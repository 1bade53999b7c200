from __future__ import annotations

from .call import Call
from .entries import ENTRY, Entries, SparseSchedule, add_up, arrived, pack, select, union, write
from .schedule import BYTE, CODED, MESSAGE


class GatherUnion(SparseSchedule):
    """Every rank sends its entries to all, and all add them in rank order: fewest steps and one rounding, but bytes that grow with the ranks."""

    name = "gather-union"

    def cost(self, plan, size):
        count = plan.codec.entries(plan.n)
        return (MESSAGE + BYTE * self.wire(plan, count)) * (size - 1) + CODED * 2 * plan.nbytes + ENTRY * count * (size + 1)

    def allreduce(self, call: Call):
        if call.n:
            yield from gather(call, select(call))


def gather(call: Call, entries: Entries):
    """Generator: the sum of all ranks' entries into the output."""
    cut = call.cut(call.n)
    incoming = {p: call.receive(cut, p) for p in call.peers}
    frame = pack(call, cut, entries, 0)
    for p in call.peers:
        call.send(frame, 0, p)
    for p in call.peers:
        yield from arrived(incoming[p])
    frames = [frame if r == call.rank else incoming[r] for r in range(call.size)]
    if call.sparse:
        write(call, [union(call, frames, 0)])
    else:
        inside = call.plan.accumulator == call.dtype  # then the output itself accumulates: the entries have been selected by now
        acc = call.out if inside else call.array(call.n, call.plan.accumulator)
        add_up(call, frames, acc, 0)
        call.finish_sum(acc, 0, call.out, 0, call.n)
    yield from call.sent()
