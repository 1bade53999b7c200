from .codec import Codec, Stage, param
from .mean import Mean
from .sparse import Sparse
from .topk import ratio


class Sbc(Sparse, name="sbc"):
    """Sparse binary compression: the largest values of one sign, all sent as their mean (Sattler et al., IJCNN 2019): "sbc:0.01".

    Of the k = ratio * n largest positive values and the k largest negative ones, the set with the larger mean magnitude is kept (negative on a tie, fewer than
    k if there are no more), with all values that equal its least one. The stage `mean` sends one number for them, so a value costs its index alone.
    """

    ratio: float = ratio(0.001)
    then: Codec = param(Mean(), Stage(), "codes the kept values: any codec but a sparse one")
