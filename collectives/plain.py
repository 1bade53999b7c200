from __future__ import annotations

import numpy as np

from .call import Call, shard
from .schedule import Schedule


class Plain(Schedule):
    """MPI's own collective, for the codec that changes nothing. Sums run in MPI's order."""

    name = "plain"
    ordered = True

    def can(self, plan):
        # max and min of floats go by another schedule: MPI's may lose a NaN
        adds = plan.adds and (plan.op in ("sum", "mean") or plan.dtype.kind in "iu")
        return plan.codec.identity and hasattr(self, plan.collective) and (plan.op is None or adds)

    def cost(self, plan, size):
        return 0.0

    def allreduce(self, call: Call):
        x, out = call.x, call.out
        if call.op == "mean":
            x = np.multiply(x, x.dtype.type(call.plan.scale), out=out)
        yield from call.transport.allreduce(call, x, out, "sum" if call.op == "mean" else call.op)
        if call.op == "mean":
            np.divide(out, out.dtype.type(call.plan.divisor), out=out)
        self._count(call, 2 * out.nbytes * (call.size - 1) // call.size)

    def reduce_scatter(self, call: Call):
        x, out = call.x, call.out
        if call.op == "mean":
            x = np.multiply(x, x.dtype.type(call.plan.scale), out=call.array(call.n, call.dtype))
        counts = [stop - start for start, stop in (shard(call.n, call.size, r) for r in range(call.size))]
        yield from call.transport.reduce_scatter(call, x, out, counts, "sum" if call.op == "mean" else call.op)
        if call.op == "mean":
            np.divide(out, out.dtype.type(call.plan.divisor), out=out)
        self._count(call, call.x.nbytes - call.x.nbytes // call.size)

    def allgather(self, call: Call):
        counts = [int(n) * call.dtype.itemsize for n in call.rows[:, 0]]
        yield from call.transport.allgather(call, call.x.view(np.uint8), call.out.view(np.uint8), counts)
        self._count(call, call.x.nbytes * (call.size - 1))

    def alltoall(self, call: Call):
        size = call.dtype.itemsize
        sent, received = ([int(n) * size for n in counts] for counts in (call.rows[call.rank, : call.size], call.rows[:, call.rank]))
        yield from call.transport.alltoall(call, call.x.view(np.uint8), sent, call.out.view(np.uint8), received)
        self._count(call, sum(sent) - sent[call.rank])

    def broadcast(self, call: Call):
        if call.rank == call.plan.root and not call.aliases:
            call.out[:] = call.x
        yield from call.transport.broadcast(call, call.out.view(np.uint8), call.plan.root)
        self._count(call, call.x.nbytes if call.rank == call.plan.root else 0)

    @staticmethod
    def _count(call, size):
        call.raw_bytes += size
        call.wire_bytes += size

