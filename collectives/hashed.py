from __future__ import annotations

import numpy as np

from .call import Call
from .entries import ENTRY, SparseSchedule, select, sums, to_all, to_owners, write
from .schedule import BYTE, CODED, MESSAGE

_FACTORS = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)))  # odd
_INVERSES = tuple(np.uint64(pow(int(f), -1, 1 << 64)) for f in _FACTORS)


class Shuffle:
    """A bijection on [0, 2^bits), the least such range that holds n positions, which scatters neighbours."""

    def __init__(self, n: int):
        bits = max((n - 1).bit_length(), 1)
        self.span = 1 << bits
        self._mask = np.uint64(self.span - 1)
        self._shift = np.uint64((bits + 1) // 2)  # of half the bits or more: a shifted xor is then its own inverse

    def keys(self, positions):
        """Shuffled positions, uint64."""
        keys = positions.astype(np.uint64)
        for factor in _FACTORS:
            keys = keys * factor & self._mask
            keys ^= keys >> self._shift
        return keys

    def positions(self, keys):
        """The positions that have these keys, uint64."""
        positions = keys.astype(np.uint64)
        for inverse in reversed(_INVERSES):
            positions ^= positions >> self._shift
            positions = positions * inverse & self._mask
        return positions


class Hashed(SparseSchedule):
    """Entries go to owners by a hash of their position, which add them in rank order and send the sums to all: loads are even whatever the
    data, and the bytes grow with the union of the ranks' entries only.

    Balanced parallelism of Zen (Wang et al. 2023), with an invertible shuffle in place of hash tables: what a rank owns is an interval of
    shuffled positions, so its sums travel with a bitmap or gaps of these, whichever is shorter.
    """

    name = "hashed"

    def cost(self, plan, size):
        count = plan.codec.entries(plan.n)
        union = min(count * size**0.8, plan.n)  # the entries of different ranks overlap, more or less
        pushed, pulled = self.wire(plan, count / size), self.wire(plan, union / size)
        return (size - 1) * (2 * MESSAGE + BYTE * (pushed + pulled)) + CODED * 3 * plan.nbytes + ENTRY * (10 * count + 5 * union)

    def allreduce(self, call: Call):
        if call.n == 0:
            return
        shuffle = Shuffle(call.n)
        edges = [shuffle.span * r // call.size for r in range(call.size + 1)]
        chosen = select(call)
        with call.encoding:
            keys = shuffle.keys(chosen.index).astype(chosen.index.dtype)
            order = np.argsort(keys)
            entries = chosen[order]  # at home where they were
            entries.index = keys[order]
        owned = sums(call, (yield from to_owners(call, entries, edges)), edges)
        owned.home = shuffle.positions(owned.index)
        if len(owned) and owned.home.max() >= call.n:  # of a poisoned sum, which is NaN at keys of no position, too
            owned = owned[owned.home < call.n]
        results = yield from to_all(call, owned, edges)
        for entries in results:
            entries.home = shuffle.positions(entries.index)
        write(call, results)
