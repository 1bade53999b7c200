from .codec import Choice, Codec, param
from .sparse import Sparse, stage
from .topk import ratio


class RedSync(Sparse, name="redsync"):
    """Between k and 2k of the largest values, by a search for a threshold (RedSync, Fang et al., JPDC 2019): "redsync:0.001,sign=alternate|mean".

    Search: the threshold is mean + r * (maximum - mean) of the magnitudes, r bisected in [0, 1] until between k and 2k values are above it, k = ratio * n: at
    fewer than k the upper half of the range goes, at more than 2k the lower. After 20 steps, as for equal values or very long tails, it is the exact top k.
    Trimmed: exactly k, which the paper finds by lowering such a threshold until enough are left to rank; here it is what `topk` does.

    With one sign, the largest values of that sign are kept, which their mean stands for well; mean and maximum are then of max(x, 0) or max(-x, 0), and
    fewer than k are kept if there are no more. "alternate" takes positive values at even seeds and negative ones at odd seeds.
    """

    ratio: float = ratio(0.001)
    method: str = param("search", Choice("search", "trimmed"), "between k and 2k values, or exactly k")
    sign: str = param("both", Choice("both", "positive", "negative", "alternate"), "of the values that are kept")
    then: Codec = stage()
