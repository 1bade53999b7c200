from __future__ import annotations

from .call import Call
from .one_shot import relay
from .schedule import BYTE, CODED, MESSAGE, Schedule


class Ring(Schedule):
    """Only neighbours talk, in parts: for fabrics where all-to-all traffic is slow.

    allreduce: partial sums travel 0 -> 1 -> ... -> W-1, decoded, added to and encoded again at each hop, and the sum travels on around
    the ring to everybody. Starting at rank 0 rather than at each shard's owner costs W/(W-1) of the usual ring's bytes and keeps the
    sum in rank order. A value is encoded W times, so a lossy codec's error grows with the ranks (int4 at 32 ranks: 3 times direct's).
    broadcast: the frame travels around the ring from the root.
    """

    name = "ring"

    def cost(self, plan, size):
        if plan.collective == "broadcast":
            return MESSAGE * size + BYTE * plan.wire_bytes * 1.25 + CODED * plan.nbytes
        # the bytes of direct in twice the steps, and all values encoded at each rank
        return 2 * size * MESSAGE + 2 * BYTE * plan.wire_bytes + CODED * 4 * plan.nbytes

    def broadcast(self, call: Call):
        me = (call.rank - call.plan.root) % call.size
        before, after = (call.rank - 1) % call.size, (call.rank + 1) % call.size
        yield from relay(call, before if me else None, [after] if me + 1 < call.size else [])

    def allreduce(self, call: Call):
        rank, last = call.rank, call.size - 1
        before, after = (rank - 1) % call.size, (rank + 1) % call.size
        cut = call.cut(call.n)
        if cut.n == 0:
            return
        wide = call.cut(call.n, call.plan.accumulator)  # partial sums travel unrounded: only the whole sum has the array's dtype
        partial = call.receive(wide, before) if rank > 0 else None
        result = call.receive(cut, before, 1) if rank < last else None
        residual = call.residual("worker", call.n)
        frame = call.outgoing(wide if rank < last else cut, 0)
        acc = call.array(cut.widest, call.plan.accumulator)
        narrowed = acc if call.plan.accumulator == call.dtype else call.array(cut.widest, call.dtype)

        def add_up(part):
            at, m = cut.span(part)
            # values are scaled for a mean where they enter the sum, so a partial sum is taken as it is
            call.sum_part(acc, 0, m, ([] if partial is None else [call.theirs(partial, part, 1.0)]) + [call.own(at, m)])
            if rank < last:
                call.encode(frame, part, acc, 0, residual, at)
                call.send(frame, part, after)
                return
            call.finish_sum(acc, 0, narrowed, 0, m)
            call.encode(frame, part, narrowed, 0, residual, at)
            if last > 0:
                call.send(frame, part, after, 1)
            call.decode(frame, part, call.out, at)

        summed = 0
        while summed < cut.parts or (result is not None and result.decoded < cut.parts):
            if result is not None and result.decoded < cut.parts and result.ready(result.decoded):
                if after != last:
                    call.send(result, result.decoded, after, 1)
                call.decode(result, result.decoded, call.out, cut.values[result.decoded])
                result.decoded += 1
            elif summed < cut.parts and (partial is None or partial.ready(summed)):
                add_up(summed)
                summed += 1
                if summed % 4 == 0:
                    yield ()  # MPI moves messages only while it is called
            else:
                yield [f for f in (partial, result) if f is not None]
        yield from call.sent()
