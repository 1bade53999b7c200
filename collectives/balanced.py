from __future__ import annotations

import math

import numpy as np

from .call import Call
from .entries import Entries, SparseSchedule, select, sums, to_all, to_owners, write

_DIGIT = 4  # bits of the threshold that are found in one round


class Balanced(SparseSchedule):
    """The top k of the sum: entries go to the owners of regions, which add them, agree on the k-th largest magnitude of all sums and send
    to all what reaches it. No rank moves more than a few k words, whatever the number of ranks.

    The split and reduce of Ok-Topk (Li, Hoefler 2022), its regions cut anew in each call so that they hold equal numbers of entries. The
    threshold is exact (ties go to the lower position). With feedback, what a rank sent and the sum does not keep returns to its
    residual. It computes something else than the other schedules, which keep every entry, so it is never chosen by itself.
    """

    takes_sparse = False
    name = "balanced"

    def can(self, plan):
        return super().can(plan) and plan.codec.count(plan.n) is not None

    def cost(self, plan, size):
        return math.inf

    def allreduce(self, call: Call):
        if call.n == 0:
            return
        entries = select(call, report=False)
        before = None if entries.residual is None else entries.residual[entries.index]
        edges = yield from self._regions(call, entries)
        owned = sums(call, (yield from to_owners(call, entries, edges)), edges)
        results = yield from to_all(call, (yield from self._largest(call, owned)), edges)
        write(call, results)
        if entries.residual is not None:
            kept = np.isin(entries.index, np.concatenate([r.index for r in results]), assume_unique=True)
            entries.residual[entries.index[~kept]] = before[~kept] + entries.value[~kept]
            call.selected(entries.index[kept])

    @staticmethod
    def _regions(call, entries):
        """Generator: edges of regions that hold equal numbers of entries, on the average over the ranks."""
        size, count = call.size, len(entries)
        quantiles = np.array([entries.index[count * r // size] if count else call.n * r // size for r in range(1, size)] + [0], np.int64)
        rows = yield from call.transport.exchange(call.sequence, quantiles, 2)
        inner = np.maximum.accumulate(rows.sum(axis=0)[:-1] // size)
        return [0, *map(int, inner), call.n]

    @staticmethod
    def _largest(call, owned: Entries):
        """Generator: those of this rank's sums that are among the k largest of all ranks' sums; k as the codec has it."""
        k = call.codec.count(call.n)
        with np.errstate(over="ignore"):
            owned = owned[owned.value.astype(call.dtype) != 0]  # what the array's dtype does not hold is nobody's
        unsigned = np.dtype(f"u{owned.value.itemsize}")
        magnitudes = owned.value.view(unsigned) & unsigned.type(np.iinfo(unsigned).max >> 1)
        ascending = np.sort(magnitudes)

        def counts(thresholds):
            """Generator: how many magnitudes reach each threshold, a row a rank."""
            reached = ascending.size - np.searchsorted(ascending, np.array(thresholds, unsigned))
            return (yield from call.transport.exchange(call.sequence, reached.astype(np.int64), 2))

        threshold, bits = 0, 8 * unsigned.itemsize - _DIGIT
        while bits >= 0:  # digit by digit, the largest threshold that k magnitudes reach
            tried = [threshold + (d << bits) for d in range(1 << _DIGIT) if (threshold + (d << bits)) >> (8 * unsigned.itemsize) == 0]
            totals = (yield from counts(tried)).sum(axis=0)
            reached = np.flatnonzero(totals >= k)
            threshold = tried[reached[-1]] if reached.size else 0
            bits -= _DIGIT
        at, above = (yield from counts([threshold, threshold + 1])).T
        spare = k - int(above.sum()) - int((at - above)[: call.rank].sum())  # entries at the threshold itself that this rank may keep
        keep = (magnitudes > threshold) | ~np.isfinite(owned.value)  # nothing non-finite is left out
        keep[np.flatnonzero(magnitudes == threshold)[: max(spare, 0)]] = True
        return owned[keep]
