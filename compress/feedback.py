"""Error feedback: what a codec drops in one call is added to the input of the next (Seide et al. 2014; Karimireddy et al. 2019).

Around that stand what methods for sparse gradients do before and after it: momentum correction, clipping and local accumulation
before, a low-pass filter after. A collective asks an entry four things, in this order:

    x = entry.before(key, x, size, events)      what to encode in x's place
    r = entry.residual(key, role, n)            what the codec's kernels add to it, and leave what they lost in
    entry.sent(key, index)                      what a codec that selects has selected, once it has
    entry.after(key)                            the call is over
"""
from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from .. import _native
from .array import DTYPES, dtype_code, view
from .codec import Real, accumulator, codec as to_codec

_PIECE = 1 << 16  # values worked on at a time: several passes over them stay in a core's L2
_FLOATS = 4  # dtype codes up to this one are those that codecs compute with


class _Entry:
    """What is kept of one key.

    residuals   arrays of accumulators by role: a rank encodes its own values ("worker") and, as an owner, sums of all ranks ("owner");
                "local" is what has not been given to a codec yet
    velocity    the momentum of this rank's values, n accumulators; None without momentum
    """

    __slots__ = ("shape", "code", "how", "residuals", "velocity", "_same", "_old", "_narrow", "_open", "_clean", "_told")

    def __init__(self, shape, code, how):
        self.shape, self.code, self.how = shape, code, how
        self._same = accumulator(code) == DTYPES[code]
        self.residuals, self.velocity = {}, None
        self._old = self._narrow = None  # no state: the worker residual before a call, and the values that a call encodes in a 16-bit dtype
        self._open = self._clean = self._told = False

    def arrays(self):
        return [*self.residuals.values(), *([] if self.velocity is None else [self.velocity])]

    def residual(self, key, role, n):
        """The residual of a role, n accumulators, zeros at first. ValueError if it has another size."""
        residual = self.residuals.get(role)
        if residual is None:
            residual = self.residuals[role] = np.zeros(n, accumulator(self.code))
        elif residual.size != n:
            raise ValueError(
                f"feedback {key!r}: its {role} residual has {residual.size} values and this call needs {n} "
                "(another number of ranks, or another collective); reset(key) forgets it"
            )
        return residual

    def before(self, key, x, size=1, events=None):
        """What to encode in place of x in a call among `size` ranks: x itself, or an array of its dtype that is the call's until `after`.

        x: flat array of the entry's dtype, left as it is. If it holds a non-finite value, it is itself what is to be encoded, all that is kept here
        stays as it was, and a line is added to the list `events`. ValueError if a call with this key is still under way.
        """
        how = self.how
        if not how.transforms and "local" not in self.residuals:
            return x
        if self._open:
            raise ValueError(f"feedback {key!r}: a call with this key has not ended; wait for it, or, if it failed, reset({key!r})")
        self._open, self._told = True, False
        self._clean = not _native.any_nonfinite(x, 0, x.size, self.code)
        if not self._clean:
            if events is not None:
                events.append(f"feedback {key!r}: non-finite values among {x.size}; momentum and what was held back stay as they were")
            return x
        if how.beta < 1:
            residual = self.residual(key, "worker", x.size)
            if self._old is None:
                self._old = np.empty_like(residual)
            self._old[:] = residual
        return self._take(key, x, size)

    def sent(self, key, index):
        """What a codec has selected, as an index of the whole array (of any of numpy's kinds): the momentum of those values starts anew.

        May be called in parts. From now on what `before` gave may differ from what it was in these places.
        """
        self._told = True
        if self._open and self._clean and self.how.masks:
            self.velocity[index] = 0

    def after(self, key):
        """The call's residuals are what its codec left; what `before` gave out is no longer needed."""
        if not self._open:
            return
        self._open = False
        if not self._clean:
            return
        if self.how.masks and self.velocity.size and not self._told:
            raise RuntimeError(f"feedback {key!r}: momentum is to be masked, and the schedule did not say what was sent")
        local = self.residuals.get("local")
        if local is not None:
            local.fill(0)
        if self.how.beta < 1:
            residual, old = self.residuals["worker"], self._old
            beta = residual.dtype.type(self.how.beta)
            for at in range(0, residual.size, _PIECE):
                new, kept = residual[at : at + _PIECE], old[at : at + _PIECE]
                kept *= 1 - beta
                new *= beta
                new += kept

    def accumulate(self, key, x, size=1) -> bool:
        """Keep x for the next call. False, and nothing done, if it holds a non-finite value."""
        if self._open:
            raise ValueError(f"feedback {key!r}: a call with this key has not ended")
        if _native.any_nonfinite(x, 0, x.size, self.code):
            return False
        self.residual(key, "local", x.size)
        self._update(x, self.how.scale(x, size))
        return True

    # --- before a call: clip, momentum, what was accumulated ---

    def _take(self, key, x, size):
        """The values of a call: x after what comes before the codec."""
        how = self.how
        scale = how.scale(x, size)
        if "local" not in self.residuals:
            if how.nesterov if how.momentum else scale < 1:
                self.residual(key, "local", x.size)
            elif not how.momentum:
                return x
        self._update(x, scale)
        step = self.residuals.get("local", self.velocity)
        if self._same:
            return step
        # What a 16-bit dtype does not hold of them waits in the residual, to which a codec adds them.
        if self._narrow is None:
            self._narrow = np.empty_like(x)
        largest, wide, rest = step.dtype.type(how.largest(x.dtype)), how.scratch(step.dtype), self.residual(key, "worker", x.size)
        for at in range(0, x.size, _PIECE):
            piece, narrow = step[at : at + _PIECE], self._narrow[at : at + _PIECE]
            values = wide[: piece.size]
            np.clip(piece, -largest, largest, out=values)
            _native.finish_sum(values, 0, narrow, 0, piece.size, self.code)
            values[...] = narrow
            np.subtract(piece, values, out=values)
            residual = rest[at : at + _PIECE]
            residual += values
            how.limit(residual)
        return self._narrow

    def _update(self, x, scale):
        """One step: scale * x enters the velocity, and that, or itself, what is local if there is such. All of them stay finite."""
        how, kind, local = self.how, accumulator(self.code), self.residuals.get("local")
        scale, momentum = kind.type(scale), kind.type(how.momentum)
        if momentum and self.velocity is None:
            self.velocity = np.zeros(x.size, kind)
        with np.errstate(over="ignore"):
            for at in range(0, x.size, _PIECE):
                g = x[at : at + _PIECE]
                if g.dtype != kind or scale < 1:
                    wide = how.scratch(kind)[: g.size]
                    wide[...] = g
                    wide *= scale
                    g = wide
                step = g
                if momentum:
                    step = self.velocity[at : at + _PIECE]
                    if how.nesterov:
                        step += g
                        step *= momentum
                    else:
                        step *= momentum
                        step += g
                    how.limit(step)
                if local is not None:
                    piece = local[at : at + _PIECE]
                    piece += step
                    if momentum and how.nesterov:
                        piece += g
                    how.limit(piece)


class ErrorFeedback:
    """Residuals of compressed collectives, one entry a key, owned by the caller.

    Pass it with a key to a collective: `comm.allreduce(g, codec="int4", feedback=fb, key="layer.3")`. Over the steps,
    the sum of the results plus what is left in the residuals of all ranks equals the sum of the inputs. A key belongs to one shape
    and dtype; with another it raises ValueError, and `reset(key)` frees it. Residuals are float32, float64 for float64 arrays.
    A block with a non-finite value leaves its residual as it was, and the call reports the event in `Communicator.last`.

    momentum   momentum correction (Deep Gradient Compression, Lin et al., ICLR 2018), 0 to below 1: with velocity u and residual v of this rank,
               u = momentum * u + g, v = v + u, and v is what is encoded. It replaces the optimizer's momentum, which would work on a
               sum that lacks most values.
    nesterov   u = momentum * (u + g), v = v + u + g
    masking    u = 0 where the codec has selected a value, so that old gradients do not push on after they were sent. For codecs that select
               values; with others, which send all values, momentum needs masking=False.
    clip       before anything else g is scaled down to a norm of at most clip / sqrt(ranks), each rank's own (DGC's local clipping)
    beta       ScaleCom's low-pass filter (Chen et al., NeurIPS 2020), above 0 to 1: of what a call leaves in this rank's residual m it keeps
               m = (1 - beta) * m_before + beta * m_after. Small values follow slowly where learning rates are large; the sum above
               holds for beta=1 only, which filters nothing.

    `accumulate` adds a gradient without sending anything: the next call sends all of it (Sparse Binary Compression's delay, Sattler et al. 2018).
    A gradient with a non-finite value leaves momentum and residuals as they were.
    """

    def __init__(self, *, momentum=0.0, nesterov=False, masking=True, clip=None, beta=1.0):
        self.momentum = _option("momentum", Real(0.0, 1.0), momentum)
        if self.momentum == 1:
            raise ValueError("ErrorFeedback: momentum must be below 1")
        self.nesterov, self.masking = bool(nesterov), bool(masking)
        self.clip = None if clip is None else _option("clip", Real(0.0, above=True), clip)
        self.beta = _option("beta", Real(0.0, 1.0, above=True), beta)
        self._entries: dict = {}
        self._scratch: dict = {}

    def __repr__(self):
        usual = {"momentum": 0.0, "nesterov": False, "masking": True, "clip": None, "beta": 1.0}
        options = [f"{name}={getattr(self, name)!r}, " for name, value in usual.items() if getattr(self, name) != value]
        return f"ErrorFeedback({''.join(options)}{len(self._entries)} keys, {self.nbytes} bytes)"

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for entry in self._entries.values() for array in entry.arrays())

    @property
    def transforms(self) -> bool:
        """Whether anything but residuals is asked for."""
        return bool(self.momentum) or self.clip is not None or self.beta < 1

    @property
    def masks(self) -> bool:
        """Whether momentum starts anew where values are sent."""
        return self.masking and self.momentum > 0

    def check(self, codec):
        """ValueError if momentum is to be masked and this codec (or spec) selects no values."""
        if self.masks and not to_codec(codec).selects:
            raise ValueError(f"{codec} sends all values: momentum correction with it needs ErrorFeedback(masking=False)")

    def entry(self, key, shape, code):
        """What is kept of a key; made at its first use."""
        entry = self._entries.get(key)
        if entry is None:
            if self.transforms and code > _FLOATS:
                raise TypeError(f"feedback {key!r}: momentum, clip and beta are for {', '.join(str(DTYPES[c]) for c in range(1, _FLOATS + 1))}, not {DTYPES[code]}")
            entry = self._entries[key] = _Entry(tuple(shape), code, self)
        elif entry.shape != tuple(shape) or entry.code != code:
            raise ValueError(
                f"feedback {key!r} belongs to a {DTYPES[entry.code]} array of shape {entry.shape}, not to "
                f"{DTYPES[code]} of shape {tuple(shape)}; reset({key!r}) frees the key"
            )
        return entry

    def accumulate(self, key, x, *, ranks=1) -> bool:
        """Add an array to what the next call with this key sends, momentum and clipping included; nothing is sent now.

        x: array of any kind, of the key's shape and a float dtype; ranks: of the calls, for `clip`. False if x holds a non-finite value: then nothing
        is added.
        """
        v = view(x)
        if v.code > _FLOATS:
            raise TypeError(f"feedback {key!r}: {v.dtype} values are not accumulated")
        return self.entry(key, v.shape, v.code).accumulate(key, v.flat, ranks)

    def reset(self, key=None):
        """Forget everything of a key, or all."""
        if key is None:
            self._entries.clear()
        else:
            self._entries.pop(key, None)

    def state_dict(self) -> dict:
        """A copy of everything, of plain types and numpy arrays: pickles, and restores bit for bit. Each rank saves its own."""
        state = {}
        for key, e in self._entries.items():
            state[key] = {"shape": e.shape, "dtype": str(DTYPES[e.code]), "residuals": {role: r.copy() for role, r in e.residuals.items()}}
            if e.velocity is not None:
                state[key]["velocity"] = e.velocity.copy()
        return state

    def load_state_dict(self, state: dict):
        """Replace everything by a copy of what state_dict() gave. The options are this object's own."""
        codes = {str(dtype): code for code, dtype in DTYPES.items()}
        entries = {}
        for key, saved in state.items():
            entry = entries[key] = _Entry(tuple(saved["shape"]), codes[saved["dtype"]], self)
            kind, n = accumulator(entry.code), math.prod(entry.shape)
            entry.residuals = {role: np.array(r, kind) for role, r in saved["residuals"].items()}
            for role in entry.residuals.keys() & {"worker", "local"}:
                entry.residual(key, role, n)
            if saved.get("velocity") is not None:
                entry.velocity = np.array(saved["velocity"], kind)
                if entry.velocity.shape != (n,):
                    raise ValueError(f"feedback {key!r}: a velocity of shape {entry.velocity.shape} for {n} values")
        self._entries = entries

    # --- what entries work with ---

    def scratch(self, kind):
        """An array of _PIECE accumulators."""
        scratch = self._scratch.get(kind)
        if scratch is None:
            scratch = self._scratch[kind] = np.empty(_PIECE, kind)
        return scratch

    def scale(self, x, size) -> float:
        """What x, finite, is multiplied by so that its norm is within `clip`: 1 if it is. The norm is a float64 sum in a fixed order."""
        if self.clip is None:
            return 1.0
        limit, wide = self.clip / math.sqrt(size), self.scratch(np.dtype(np.float64))

        def norm(unit):
            total = 0.0
            for at in range(0, x.size, _PIECE):
                values = wide[: min(_PIECE, x.size - at)]
                values[...] = x[at : at + _PIECE]
                if unit != 1:
                    values /= unit
                values *= values
                total += float(values.sum())
            return math.sqrt(total)

        with np.errstate(over="ignore"):
            found = norm(1.0)
            if not 1e-150 < found < math.inf:  # squares of float64 values overflow, or vanish
                unit = float(np.abs(x).max(initial=0.0)) or 1.0
                return min(limit / unit / (norm(unit) or 1.0), 1.0)
        return min(limit / found, 1.0)

    @staticmethod
    def largest(dtype) -> float:
        """The largest finite value of a float dtype."""
        return float(ml_dtypes.finfo(dtype).max)

    @staticmethod
    def limit(values):
        """Infinities, of sums that overflowed, become the largest values."""
        if _native.any_nonfinite(values, 0, values.size, dtype_code(values.dtype)):
            largest = np.finfo(values.dtype).max
            np.clip(values, -largest, largest, out=values)


def _option(name, kind, value):
    try:
        return kind.check(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"ErrorFeedback: {name} must be {kind}, not {value!r}") from None
