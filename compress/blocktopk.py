from .codec import Choice, Codec, Int, param
from .sparse import Sparse, stage
from .topk import ratio


class BlockTopK(Sparse, name="blocktopk"):
    """Whole blocks of consecutive values: those of the largest norms, or all that are not zero (OmniReduce, Fei et al., SIGCOMM 2021): "blocktopk:0.01".

    Largest: of the blocks of an array (the last one may be shorter), ratio * their number, at least one, with the largest Euclidean norms, the lower index
    first where they are equal. Nonzero: every block that holds any other value than 0, zeros included.
    """

    ratio: float = ratio(0.01, "part of the blocks that is kept, at least one")
    block: int = param(256, Int(2, 65536), "values of a block")
    choose: str = param("largest", Choice("largest", "nonzero"), "the blocks of largest norms, or all that are not zero")
    then: Codec = stage()
