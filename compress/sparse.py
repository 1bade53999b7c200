"""What the sparse codecs share: a selection, a wire of indices chosen by density, and a stage, any dense codec, for the kept values."""
import dataclasses
import functools
import math
from typing import ClassVar

from .codec import Codec, Stage, param
from .raw import Raw


def stage():
    """The last parameter of every sparse codec."""
    return param(Raw(), Stage(), "codes the kept values: any codec but a sparse one")


class Sparse(Codec):
    """Base of the codecs that keep some entries of an array, pairs of an index and a value, and send no others.

    The kept values are coded by the stage `then` as one array, so its blocks hold kept values only; their indices take what their entropy is, within a few
    percent. If the wire would not be shorter than the array, it holds the array, values that were not kept as 0. A non-finite value counts as the
    largest; where one is left out all the same, every decoded value is NaN.

    With feedback, what is left out stays in the residual, and what the stage loses of a kept value. If an input holds a non-finite value anywhere, its
    residual stays as it was.

    Class attribute `blind`: what is not kept is not looked at, so a non-finite value there is ignored.
    """

    selects = True
    blind: ClassVar[bool] = False

    def __init_subclass__(cls, name, algebra="union", **attributes):
        super().__init_subclass__(name, algebra=algebra, **attributes)

    def count(self, n: int) -> int | None:
        """How many of n values are to be kept; None if only the values decide."""
        ratio = getattr(self, "ratio", None)
        return None if ratio is None or n == 0 else min(getattr(self, "k", 0) or max(math.floor(ratio * n + 0.5), 1), n)

    def entries(self, n: int) -> int:
        """How many of n values are kept, about."""
        return self.count(n) or min(max(n // 64, 1), n)

    def value_bytes(self, dtype) -> float:
        """Bytes that the stage takes for a kept value, about."""
        return self.then.bound(1 << 16, dtype) / (1 << 16)

    @functools.cached_property
    def exact(self):
        """This codec with a stage that loses nothing: what codes sums of entries."""
        return dataclasses.replace(self, then=Raw())

    def __post_init__(self):
        super().__post_init__()
        if self.then.selects:
            raise ValueError(f"{self.name}: then must be a codec of dense values, not {self.then.name}, which is sparse itself")
        if len(self.then.params) > Stage.room:
            raise ValueError(f"{self.name}: then has room for {Stage.room} bytes of parameters, {self.then.name} has {len(self.then.params)}")
