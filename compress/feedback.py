"""Error feedback: what a codec drops in one call is added to the input of the next (Seide et al. 2014; Karimireddy et al. 2019)."""
from __future__ import annotations

import math

import numpy as np

from .codec import accumulator
from .array import DTYPES


class _Entry:
    """The residuals of one key: by role, since a rank encodes its own values (worker) and, as an owner, sums of all ranks."""

    __slots__ = ("shape", "code", "residuals")

    def __init__(self, shape, code):
        self.shape, self.code, self.residuals = shape, code, {}

    def residual(self, key, role, n):
        residual = self.residuals.get(role)
        if residual is None:
            residual = self.residuals[role] = np.zeros(n, accumulator(self.code))
        elif residual.size != n:
            raise ValueError(
                f"feedback {key!r}: its {role} residual has {residual.size} values and this call needs {n} "
                "(another number of ranks, or another collective); reset(key) forgets it"
            )
        return residual


class ErrorFeedback:
    """Residuals of compressed collectives, one entry a key, owned by the caller.

    Pass it with a key to a collective: `comm.allreduce(g, codec="int4", feedback=fb, key="layer.3")`. Over the steps,
    the sum of the results plus what is left in the residuals of all ranks equals the sum of the inputs. A key belongs to one shape
    and dtype; with another it raises ValueError, and `reset(key)` frees it. Residuals are float32, float64 for float64 arrays.
    A block with a non-finite value leaves its residual as it was, and the call reports the event in `Communicator.last`.
    """

    def __init__(self):
        self._entries: dict = {}

    def __repr__(self):
        return f"ErrorFeedback({len(self._entries)} keys, {self.nbytes} bytes)"

    @property
    def nbytes(self) -> int:
        return sum(r.nbytes for e in self._entries.values() for r in e.residuals.values())

    def entry(self, key, shape, code):
        """The residuals of a key; made at its first use."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(tuple(shape), code)
        elif entry.shape != tuple(shape) or entry.code != code:
            raise ValueError(
                f"feedback {key!r} belongs to a {DTYPES[entry.code]} array of shape {entry.shape}, not to "
                f"{DTYPES[code]} of shape {tuple(shape)}; reset({key!r}) frees the key"
            )
        return entry

    def reset(self, key=None):
        """Forget the residuals of a key, or all."""
        if key is None:
            self._entries.clear()
        else:
            self._entries.pop(key, None)

    def state_dict(self) -> dict:
        """A copy of everything, of plain types and numpy arrays: pickles, and restores bit for bit. Each rank saves its own."""
        return {
            key: {"shape": e.shape, "dtype": str(DTYPES[e.code]), "residuals": {role: r.copy() for role, r in e.residuals.items()}}
            for key, e in self._entries.items()
        }

    def load_state_dict(self, state: dict):
        """Replace everything by a copy of what state_dict() gave."""
        codes = {str(dtype): code for code, dtype in DTYPES.items()}
        entries = {}
        for key, saved in state.items():
            entry = entries[key] = _Entry(tuple(saved["shape"]), codes[saved["dtype"]])
            entry.residuals = {role: np.array(r, accumulator(entry.code)) for role, r in saved["residuals"].items()}
            if "worker" in entry.residuals:
                entry.residual(key, "worker", math.prod(entry.shape))
        self._entries = entries
