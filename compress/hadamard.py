import math

from .block_int import BlockInt
from .codec import Codec, Int, Stage, param

_MAX_PIECE = 65536  # kMaxPiece of hadamard.h


class Hadamard(Codec, name="hadamard"):
    """A randomized Hadamard rotation in front of another codec: "hadamard|int4", "hadamard:block=2048|mxfp4".

    Each run of `block` values x is coded as y = H D x / 2^ceil(k/2), where 2^k = block, D are random signs drawn from `key` and H
    is the Hadamard matrix of entries +-1; decoding takes x = D H y / 2^floor(k/2). That is a rotation (for odd k also a division
    by the square root of 2, undone on the way back): it spreads outliers over the run, so that y is nearly normal whatever x was,
    and a uniform quantizer of few bits loses less (Suresh et al., ICML 2017; DRIVE, Vargaftik et al., NeurIPS 2021). The mean
    squared error is the inner codec's on y. A last run that isn't full is cut into powers of two, each rotated by itself.

    All ranks must use one `key`. Rotated values are float32, or float64 for float64 arrays. A non-finite value makes its run NaN,
    and with it the runs that share an inner block; so do finite values so large (above the type's maximum / sqrt(block)) that
    their rotation overflows. Decoded values that the error takes past float16's or bfloat16's range become its largest.
    """

    block: int = param(4096, Int(1024, 8192, power_of_two=True), "values that are rotated together")
    key: int = param(0, Int(0, 2**31 - 1), "draws the signs")
    then: Codec = param(BlockInt(bits=4), Stage(), "codes the rotated values; it must code in pieces, as the block codecs do")

    def __post_init__(self):
        super().__post_init__()
        inner = self.then
        if isinstance(inner, Hadamard) or inner.identity:
            raise ValueError(f"hadamard: then must be a codec that rounds, not {inner.name}")
        if not inner.granule:
            raise ValueError(f"hadamard: then must be a codec that works in pieces, {inner.name} codes an array as a whole")
        assert len(inner.params) <= Stage.room, f"{inner.name} has {len(inner.params)} bytes of parameters, a stage has room for {Stage.room}"
        if math.lcm(self.block, inner.granule) > _MAX_PIECE:
            raise ValueError(f"hadamard: then must code pieces that fit {_MAX_PIECE} values of whole runs, {inner.name} codes {inner.granule} values at a time")

    @property
    def error(self):
        # the worst case, where all errors of a run meet in one value; and the rounding of the rotation itself
        return self.block * (self.then.error + 2**-20)
