from .array import dtype_code
from .codec import Codec
from .sparse import Sparse, stage


class Nonzero(Sparse, name="nonzero", keeps_all=True):
    """The values that are not zero, for arrays that are sparse as they come, such as the gradients of embeddings: "nonzero", "nonzero|fp16".

    Every value whose bits are not all zero is kept, so -0 is, too. With a lossless stage it is lossless. Without feedback, it leaves nothing out.
    """

    then: Codec = stage()

    @property
    def lossless(self):
        return self.then.lossless

    @property
    def error(self):
        return self.then.error


_NONZERO = Nonzero()


def nonzero_entries(values):
    """(index, value) of those of an accumulator's values that are not +0: uint32 or uint64, and the accumulator's type."""
    return _NONZERO.kernels.select(_NONZERO.params, values, 0, values.size, dtype_code(values.dtype))[:2]
