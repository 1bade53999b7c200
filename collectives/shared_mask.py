from __future__ import annotations

import math

import numpy as np

from .. import _native
from .call import Call
from .entries import Entries, SparseSchedule, add_values, select, write
from .gather_union import gather


class SharedMask(SparseSchedule):
    """Where the entries of all ranks stand at the same positions, their values add without any index on the wire.

    PacTrain (gradients of a pruned model). The ranks compare a hash of their positions in each call; if one differs, that call goes by gather-union,
    with an event in `Communicator.last`. Never chosen by itself: it pays where the user knows that masks agree.
    """

    name = "shared-mask"

    def cost(self, plan, size):
        return math.inf

    def allreduce(self, call: Call):
        if call.n == 0:
            return
        entries = select(call)
        mask = np.array([len(entries), _native.crc32c(entries.index.view(np.uint8)), entries.poisoned], np.int64)
        masks = yield from call.transport.exchange(call.sequence, mask, 2)
        if (masks != masks[0]).any() or masks[0][2]:
            differ = [r for r, row in enumerate(masks) if (row != masks[0]).any()]
            call.events.append(f"the positions of ranks {differ} differ from those of rank 0: by gather-union" if differ else "non-finite values: by gather-union")
            yield from gather(call, entries)
            return
        sums = yield from add_values(call, entries)
        write(call, [Entries(entries.index, sums.astype(call.plan.accumulator))])
        yield from call.sent()
