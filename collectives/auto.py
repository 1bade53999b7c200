"""codec="auto": the codec that is fastest where it is used, among those that keep a promise.

For each signature (collective, count, dtype, op, ...) the first calls try every candidate in turn. Then the ranks tell each other how
long each took, and all settle on the one whose slowest rank was fastest: the same on every rank, and the uncompressed call unless
another one beats it by more than noise.
"""
from __future__ import annotations

import numpy as np

from ..compress.codec import aliases, codec as to_codec, codecs

TRIALS = 4  # timed calls of each candidate, after one that is not timed
CANDIDATES = 4  # beside the uncompressed call: those of the fewest bytes
MARGIN = 0.95  # of the uncompressed call's time, which a codec must stay under to be chosen


def candidates(quality, op, dtype, n):
    """The uncompressed codec, then those whose error is within `quality` and that save bytes, fewest bytes first."""
    raw = to_codec("raw")
    able = {c for c in [*(cls() for cls in codecs().values()), *aliases().values()] if c.takes(dtype) and not c.identity and c.error <= quality and (c.lossless or op not in ("max", "min"))}
    size = {c: c.bound(n, dtype) for c in able}
    shorter = [c for c in able if size[c] < raw.bound(n, dtype)]
    return [raw, *sorted(shorter, key=lambda c: (size[c], str(c)))[:CANDIDATES]]


class Tuning:
    """Of one signature: what has been tried and what came of it. Calls are counted when they start, which they do alike on all ranks."""

    def __init__(self, plans):
        self.plans = plans
        self.started = 0
        self.trials = (1 + TRIALS) * len(plans) if len(plans) > 1 else 0
        self.seconds = np.full(len(plans), np.inf)
        self.tasks: list = []  # the trials under way, then the call that settles
        self.chosen = None if self.trials else plans[0]

    def report(self, index, seconds):
        """A trial took this long here."""
        if index >= len(self.plans):  # the first of each is not timed: it makes buffers
            candidate = index % len(self.plans)
            self.seconds[candidate] = min(self.seconds[candidate], seconds)

    def settle(self, rows):
        """Choose, from every rank's seconds."""
        slowest = rows.max(axis=0)
        slowest[1:] /= MARGIN
        self.chosen = self.plans[int(slowest.argmin())]
        self.tasks = []
