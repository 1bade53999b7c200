from .codec import Codec


class Mean(Codec, name="mean"):
    """One magnitude, the mean, for all values of an array, and their signs: how RedSync and Sparse Binary Compression send what they select.

    Behind a selection it makes the values nearly free: "topk:0.001|mean" sends indices, a float and a bit a value (the ternary compression of Sattler et al.,
    2019), and where all signs are the same, as in a selection of one sign, no bits either. A value decodes to sign(x) * mean|x| over the whole array.
    Alone, `sign` with its blocks is nearly always the better choice. It is biased: use it with error feedback.

    The mean is summed in float64 in a fixed order and lies between the least and the largest magnitude, so equal magnitudes are kept exactly. A zero counts
    as a value: it lowers the mean and decodes to the mean with its sign, unless all values are zero. A non-finite value makes all of them NaN.
    """

    @property
    def error(self):
        # the mean lies between zero and the largest magnitude
        return 1.0
