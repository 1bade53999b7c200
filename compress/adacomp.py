from .codec import Codec, Int, Real, param
from .sparse import Sparse, stage


class AdaComp(Sparse, name="adacomp"):
    """What has grown large in its bin, sent as one magnitude (AdaComp, Chen et al., AAAI 2018): "adacomp:50" for convolutions, "adacomp:500" for others.

    With u = x + residual, a value is kept if |u + (factor - 1) * x|, what it would be about to become, reaches the largest |u| of its bin; how many that are
    follows from the data. A kept value is sent as sign(u) * s, where s is the mean over the bins of their largest |u|; the rest stays in the residual.
    Zeros are not kept, and a bin may keep none. A non-finite value is kept as it is and counts in no maximum.
    """

    bin: int = param(500, Int(8, 16384), "values that compete with each other")
    factor: float = param(2.0, Real(1.0, 1e6), "how strongly the newest gradient decides; 1.5 to 3 in the paper")
    then: Codec = stage()
