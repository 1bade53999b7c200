"""Policies: state that chooses a codec's parameters from step to step.

Every rank must come to the same choice: give it what all ranks know, such as the step, or the entries that they kept together.
"""
from __future__ import annotations

import dataclasses
import math

from .codec import Codec, codec as to_codec
from .topk import TopK


class Warmup:
    """More values at first: from `start` of them to a codec's own `ratio`, in `stages` equal factors over `steps` steps.

    `comm.allreduce(g, codec=warmup(step), ...)`. Deep Gradient Compression (Lin et al., ICLR 2018) sends 25 %, 6.25 %, 1.56 %, 0.4 % in its first four
    epochs, 0.1 % from then on: `Warmup("topk:0.001", steps=4 * epoch)`. Few stages, since every codec is a plan of its own.

    codec    spec or codec that has a ratio
    steps    steps until the codec itself is used
    start    ratio of step 0; a codec whose own is larger is used from the start
    """

    def __init__(self, codec, steps, *, start=0.25, stages=4):
        codec = to_codec(codec)
        ratio = getattr(codec, "ratio", None)
        if ratio is None or getattr(codec, "k", 0):
            raise ValueError(f"Warmup: {codec} keeps no ratio of the values that could be warmed up")
        for name, value in (("steps", steps), ("stages", stages)):
            if isinstance(value, bool) or not isinstance(value, int) or value < (name == "stages"):
                raise ValueError(f"Warmup: {name} must be a whole number, at least {int(name == 'stages')}, not {value!r}")
        if not 0 < start <= 1:
            raise ValueError(f"Warmup: start must be a ratio above 0 to 1, not {start!r}")
        self.codec, self.steps, self.start, self.stages = codec, steps, start, stages
        factor = min(ratio / start, 1.0)
        self._codecs = [codec if factor == 1 else dataclasses.replace(codec, ratio=start * factor ** (stage / stages)) for stage in range(stages)]

    def __repr__(self):
        return f"Warmup({str(self.codec)!r}, {self.steps}, start={self.start!r}, stages={self.stages!r})"

    def __call__(self, step: int) -> Codec:
        """The codec of a step, counted from 0."""
        if step < 0:
            raise ValueError(f"steps count from 0, not {step}")
        return self._codecs[step * self.stages // self.steps] if step < self.steps else self.codec


class StageControl:
    """The number of SIDCo's stages that keeps about the ratio asked for (Abdelmoniem et al., MLSys 2021), whatever law the values follow::

        control = StageControl("sidco:0.001")
        wire = control.codec.encode(gradient)
        control.update(kept / (0.001 * gradient.size))

    Every `every` steps the mean of achieved / target is looked at. Within `tolerance` of 1 nothing changes. Else the stages go one up or down; in the
    direction of the step before as long as that brought the ratio nearer to 1, otherwise back: more stages keep fewer values of one law and more of another,
    so no fixed sign is right. The first step is down after too many values, up after too few. After `patience` changes that left the ratio outside [1/2, 2]
    the codec is the exact top k from then on.
    """

    def __init__(self, spec="sidco", *, every=5, tolerance=0.2, patience=4):
        sidco = to_codec(spec)
        if not hasattr(sidco, "stages"):
            raise ValueError(f"StageControl is for a codec with stages, such as sidco, not {sidco.name}")
        self.every, self.tolerance, self.patience = every, tolerance, patience
        self.most = max(1, math.ceil(math.log(sidco.ratio) / math.log(0.5)))
        # The control sees what the stages achieve by themselves; where they fail it falls back for good.
        self.codec = dataclasses.replace(sidco, stages=min(sidco.stages, self.most), fallback=False)
        self._ratios, self._before, self._direction, self._missed = [], None, 0, 0

    @property
    def exact(self) -> bool:
        """Whether the stages were given up for the exact top k."""
        return not hasattr(self.codec, "stages")

    def update(self, achieved: float):
        """Take note of a step: kept / wanted values."""
        self._ratios.append(float(achieved))
        if self.exact or len(self._ratios) < self.every:
            return
        ratio, self._ratios = sum(self._ratios) / len(self._ratios), []
        self._missed = 0 if 0.5 <= ratio <= 2 else self._missed + 1
        if self._missed > self.patience:
            self.codec = TopK(self.codec.ratio, then=self.codec.then)
            return
        if abs(ratio - 1) <= self.tolerance:
            self._direction, self._before = 0, None
            return
        if not self._direction:
            self._direction = -1 if ratio > 1 else 1
        elif abs(ratio - 1) > abs(self._before - 1):
            self._direction = -self._direction
        self._before = ratio
        stages = self.codec.stages + self._direction
        if not 1 <= stages <= self.most:  # no way on
            self._direction = -self._direction
            stages = self.codec.stages + self._direction
        self.codec = dataclasses.replace(self.codec, stages=min(max(stages, 1), self.most))
