from .codec import Choice, Codec, Int, param


class Ternary(Codec, name="ternary"):
    """-1, 0 or 1 times the largest magnitude s of each block: 1.6 bits a value (TernGrad, Wen et al., NeurIPS 2017).

    Stochastic rounding keeps a value as sign(x) * s with probability |x| / s and makes it 0 otherwise, so the mean over seeds is
    x: unbiased, with a variance of |x| * (s - |x|), hence the small default block. To nearest, a value is kept if |x| >= s / 2.
    TernGrad clips gradients at 2.5 standard deviations beforehand; that is left to the caller.

    Scales are float32, or float64 for float64 arrays, so that nothing overflows or underflows; a zero block decodes to zeros. A
    block that holds a non-finite value decodes to NaN throughout.
    """

    block: int = param(256, Int(32, 4096, power_of_two=True), "values that share a scale")
    rounding: str = param("stochastic", Choice("nearest", "stochastic"), "to the nearer of 0 and s, or at random without bias")

    @property
    def error(self):
        # of the block's scale: half of it, or all
        return 0.5 if self.rounding == "nearest" else 1.0
