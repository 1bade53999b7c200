from .codec import Choice, Codec, Int, param


class Natural(Codec, name="natural"):
    """Every value rounded to a power of two, 8 bits a value (natural compression, Horvath et al., 2019).

    |x| between 2^e and 2^(e+1) becomes one of the two: the upper with probability (|x| - 2^e) / 2^e if stochastic, which is
    unbiased and adds at most 1/8 of x^2 to the variance; else the nearer, a tie (1.5 * 2^e) going up. So the error is relative to
    each value, not to its block: a third of it at most to nearest, all of it when stochastic. A block stores the power of two
    above its largest value and reaches down by 2^126 from there; smaller values become 0 or that least power, by the same rule.

    Rounding up doesn't overflow: values above the type's largest power of two (2^15 for float16, 2^127 for float32 and bfloat16,
    2^1023 for float64) round down to it, and in float16 to its largest value, which only a sum in float32 sees as 2^16. Subnormal
    values are rounded like others, zeros keep their sign. A block that holds a non-finite value decodes to NaN throughout.
    """

    block: int = param(256, Int(32, 4096, power_of_two=True), "values that share a largest power of two")
    rounding: str = param("stochastic", Choice("nearest", "stochastic"), "to the nearer power of two, or up and down at random without bias")

    @property
    def error(self):
        # 1/3 to nearest but for values above the type's largest power of two, which all round down
        return 0.5 if self.rounding == "nearest" else 1.0
