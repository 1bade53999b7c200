from .codec import Codec
from .sparse import Sparse, stage
from .topk import count, ratio


class RandomK(Sparse, name="randomk", algebra="sum", blind=True):
    """k values at random places that follow from the seed, so that no indices are sent: "randomk:0.01" (Stich et al., NeurIPS 2018).

    Every set of k places is equally likely. Ranks that use one seed keep the same places. The values are sent as they are, not scaled by n / k, so the mean
    over seeds is k / n times the array: use it with error feedback. What lies at other places is ignored, even if it is not finite.
    """

    ratio: float = ratio(0.01)
    k: int = count()
    then: Codec = stage()
