"""Buffers that are used again: a steady state allocates nothing, and a changing one keeps no more than its busiest moment needed."""
from __future__ import annotations

import numpy as np


class Workspace:
    """A pool of uint8 buffers in size classes an eighth of a power of two apart."""

    def __init__(self):
        self._free: dict[int, list[np.ndarray]] = {}
        self._kept = 0  # bytes in the pool
        self._used = 0  # bytes handed out
        self._peak = 0  # most bytes ever handed out at once

    @property
    def nbytes(self) -> int:
        """Bytes held, handed out or kept."""
        return self._kept + self._used

    def take(self, size: int) -> np.ndarray:
        """A buffer of at least `size` bytes; what is in it is arbitrary."""
        step = 1 << max(size.bit_length() - 4, 6)
        size = (size + step - 1) // step * step
        free = self._free.get(size)
        if free:
            buffer = free.pop()
            self._kept -= size
        else:
            buffer = np.empty(size, np.uint8)
        self._used += size
        self._peak = max(self._peak, self._used)
        return buffer

    def give_back(self, buffers):
        """Return buffers, all those of a call at once."""
        for buffer in buffers:
            self._free.setdefault(buffer.size, []).append(buffer)
            self._used -= buffer.size
            self._kept += buffer.size
        # What no longer fits under the peak is of sizes that are not asked for now: the classes unused for longest go first.
        while self._kept + self._used > self._peak:
            size = next(iter(self._free))
            if self._free[size]:
                self._free[size].pop()
                self._kept -= size
            if not self._free[size]:
                del self._free[size]
        for buffer in buffers:  # used now: to the end of the queue
            if buffer.size in self._free:
                self._free[buffer.size] = self._free.pop(buffer.size)
