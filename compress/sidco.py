from .codec import Choice, Codec, Flag, Int, param
from .sparse import Sparse, stage
from .topk import ratio


class Sidco(Sparse, name="sidco"):
    """About k = ratio * n of the largest values, above a threshold computed from a fitted distribution (SIDCo, Abdelmoniem et al., MLSys 2021).

    The magnitudes are taken for values of an exponential (e) or generalized Pareto distribution (p), or of a gamma distribution first (gp), fitted by mean,
    by mean and variance, by mean and mean logarithm. The first of several stages lets a quarter through; each later one fits what exceeds the threshold so
    far (gp: by a generalized Pareto distribution) and moves it up, all by the same factor, so that the last lets k through. With one stage, or for a ratio
    of a quarter or more, the first fit gives the threshold. `StageControl` adjusts the stages from step to step.

    No law fits everything. With fallback, if the count is below k / 2 or above 2k, the exact top k are kept instead.
    """

    ratio: float = ratio(0.001)
    variant: str = param("p", Choice("e", "p", "gp"), "the law: exponential, generalized Pareto, gamma and then generalized Pareto")
    stages: int = param(3, Int(1, 32), "fits, each to what the one before let through")
    fallback: bool = param(True, Flag(), "the exact top k where the count misses k by more than a factor of 2")
    then: Codec = stage()
