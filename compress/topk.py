from .codec import Codec, Int, Real, param
from .sparse import Sparse, stage

MOST = 2**48  # entries that can be asked for


def ratio(default, doc="part of the values that is kept, at least one"):
    return param(default, Real(0.0, 1.0, above=True), doc)


def count():
    return param(0, Int(0, MOST), "values that are kept, all of a shorter array; 0: as many as ratio says")


class TopK(Sparse, name="topk"):
    """The k values of largest magnitude, exactly: "topk:0.01", "topk:k=1000", "topk:0.001|int8" (Aji and Heafield, EMNLP 2017).

    k is ratio * n to the nearest, at least 1. Of equal magnitudes those of lower index are kept first; a NaN is larger than everything else. It leaves the
    least error that a selection of k values can, and takes little more than one reading of the array: a sample gives a threshold that slightly more than k
    values reach, one scan collects those, and the k-th is found among them.
    """

    ratio: float = ratio(0.01)
    k: int = count()
    then: Codec = stage()
