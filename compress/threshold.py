from .codec import Codec, Real, param
from .sparse import Sparse, stage


class Threshold(Sparse, name="threshold"):
    """The values of a magnitude from a threshold on: "threshold:0.001" (Strom, Interspeech 2015; Dutta et al., AAAI 2020).

    Kept are |x| >= threshold, compared exactly, and every non-finite value; 0 keeps all.
    """

    threshold: float = param(0.001, Real(0.0), "least magnitude that is kept")
    then: Codec = stage()
