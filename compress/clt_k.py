from .codec import Choice, Codec, param
from .sparse import Sparse, stage
from .topk import count, ratio


class CltK(Sparse, name="clt_k", algebra="sum"):
    """The selection of ScaleCom's leader (cyclic local top-k, Chen et al., NeurIPS 2020): "clt_k:0.01", "clt_k:k=1000,method=exact".

    Chunked: the array of n values is cut into k chunks, [n*i//k, n*(i+1)//k) for i < k, and each gives its value of largest magnitude (the first of equals);
    so the kept values are spread over the array, and choosing them is one simple pass. Exact: the k values of largest magnitude, as `topk`. Which rank's
    values decide is no matter of the codec: alone, it selects from its own.
    """

    ratio: float = ratio(0.01)
    k: int = count()
    method: str = param("chunked", Choice("chunked", "exact"), "the largest of each of k chunks, or the k largest of all")
    then: Codec = stage()
