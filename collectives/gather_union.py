from __future__ import annotations

import numpy as np

from .. import _native
from .call import Call
from .entries import ENTRY, Entries, SparseSchedule, add, finished, merged, pack, scaled, select, unpack, write
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
    if call.sparse:
        total = None
        for r in range(call.size):
            while r != call.rank and not incoming[r].ready(0):
                yield [incoming[r]]
            total = merged(call, total, scaled(call, unpack(call, frame if r == call.rank else incoming[r], 0)))
        write(call, [finished(call, total)])
        yield from call.sent()
        return
    inside = call.plan.accumulator == call.dtype  # then the output itself accumulates: the entries have been selected by now
    acc = call.out if inside else call.array(call.n, call.plan.accumulator)
    frames = [frame if r == call.rank else incoming[r] for r in range(call.size)]
    for p in call.peers:
        while not incoming[p].ready(0):
            yield [incoming[p]]
    if sum(end - begin for _, begin, end in (f.place(0) for f in frames)) > acc.nbytes // 2:  # hardly sparse any more: one array after another
        with call.decoding:
            _native.clear(acc)
        add(call, unpack(call, frames[0], 0), acc, 0, first=True)
        for source in frames[1:]:
            call.add_part(source, acc)
    else:
        entries = [unpack(call, source, 0) for source in frames]
        with call.decoding:
            if any(e.poisoned for e in entries):
                acc.fill(np.nan)
            else:
                _native.sum_entries([(e.index, e.value) for e in entries], acc, call.plan.scale)
    call.finish_sum(acc, 0, call.out, 0, call.n)
    yield from call.sent()
