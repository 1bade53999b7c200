from __future__ import annotations

from .call import Call
from .schedule import BYTE, CODED, MESSAGE, Schedule


class OneShot(Schedule):
    """Every rank sends its whole frame at once and all do the same work: fewest steps, so it serves small arrays.

    allreduce: every rank adds all frames, its own included, in rank order. broadcast: the root's frame goes down a binomial tree.
    """

    name = "one-shot"

    def cost(self, plan, size):
        if plan.collective == "broadcast":
            return size.bit_length() * (MESSAGE + BYTE * plan.wire_bytes) + CODED * plan.nbytes
        return MESSAGE * size + BYTE * plan.wire_bytes * (size - 1) + CODED * plan.nbytes * (size + 1)

    def allreduce(self, call: Call):
        cut = call.cut(call.n)
        incoming = {p: call.receive(cut, p) for p in call.peers} if cut.n else {}
        residual = call.residual("worker", call.n)
        frame = call.outgoing(cut, 0)
        for part in range(cut.parts):
            call.encode(frame, part, call.x, cut.values[part], residual, cut.values[part])
            for peer in call.peers:
                call.send(frame, part, peer)
        inside = call.plan.accumulator == call.dtype  # then the output itself accumulates: x has been encoded by now
        acc = call.out if inside else call.array(cut.widest, call.plan.accumulator)
        streamed = inside and cut.parts > 1 and call.op == "sum"  # then the output is not touched again
        for part in range(cut.parts):
            while not all(f.ready(part) for f in incoming.values()):
                yield list(incoming.values())
            at, m = cut.span(part)
            first = at if inside else 0
            call.sum_part(acc, first, m, (call.theirs(frame if r == call.rank else incoming[r], part) for r in range(call.size)), streamed)
            call.finish_sum(acc, first, call.out, at, m)
        yield from call.sent()

    def broadcast(self, call: Call):
        # Ranks counted from the root: rank r hears from r without its lowest set bit and tells r + 2^k for every 2^k below that bit.
        size, root = call.size, call.plan.root
        me = (call.rank - root) % size
        lowest = me & -me or 1 << (size - 1).bit_length()
        steps = [1 << k for k in reversed(range(lowest.bit_length() - 1))]
        yield from relay(call, (me - lowest + root) % size if me else None, [(me + s + root) % size for s in steps if me + s < size])


def relay(call: Call, source, targets):
    """A frame from `source` (None: encoded here) on to `targets`, part by part, and into the output."""
    cut = call.cut(call.n)
    if source is None:
        residual = call.residual("worker", call.n)
        frame = call.outgoing(cut, 0)
    elif cut.n:
        frame = call.receive(cut, source)
    for part in range(cut.parts):
        if source is None:
            call.encode(frame, part, call.x, cut.values[part], residual, cut.values[part])
            if part % 4 == 3:
                yield ()  # MPI moves messages only while it is called
        while source is not None and not frame.ready(part):
            yield [frame]
        for peer in targets:
            call.send(frame, part, peer)
        call.decode(frame, part, call.out, cut.values[part])
    yield from call.sent()
