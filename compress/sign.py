from .codec import Codec, Int, param


class Sign(Codec, name="sign"):
    """One bit a value, its sign, and the mean magnitude of each block: 32 times smaller than float32, less the means.

    A value decodes to sign(x) * mean|x| over its block (signSGD with a scale, Bernstein et al., ICML 2018; the compressor of
    1-bit Adam, Tang et al., ICML 2021). With `means=2` the values with a clear and those with a set sign bit have a mean each
    (1-bit SGD, Seide et al., Interspeech 2014): better for blocks that lean to one side, and the sum over a block is kept. It is
    biased: use it with error feedback.

    Means are float32, or float64 for float64 arrays, and summed in float64 in a fixed order; a mean can't overflow, a block of
    one magnitude keeps it exactly, a zero block decodes to zeros. A block that holds a non-finite value decodes to NaN throughout.
    """

    block: int = param(256, Int(32, 4096, power_of_two=True), "values that share a mean")
    means: int = param(1, Int(1, 2), "means a block: of all magnitudes, or of the positive and of the negative values")

    @property
    def error(self):
        # a mean lies between zero and the block's largest magnitude
        return 1.0
