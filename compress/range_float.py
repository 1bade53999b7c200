from .codec import Codec, Int, param


class RangeFloat(Codec, name="range_float"):
    """Floats of 4 to 16 bits whose exponents end at the block's largest magnitude.

    Cut to `mantissa` bits, the patterns of the positive floats are consecutive whole numbers. The top code is that of the block's
    largest magnitude, the codes below are the 2^(bits-1) - 2 patterns below it, and one code is zero; a sign each. So the relative
    error stays within 2^-(mantissa+1) over the 2^(bits-1-mantissa) powers of two under the largest, and what is smaller becomes zero:

    bits=8, normal values    mantissa 1    2       3         4
    largest relative error   0.2           0.11    0.059     0.030
    relative L2 error        0.105         0.053   0.026     0.013
    flushed to zero          0             0       5e-5      1.6 %

    Rounding is to nearest even; the paper cuts and decodes to the middle, which has the largest errors 1/4, 1/8, 1/16, 1/32 and takes
    1.0 for 1.0625. Zeros keep their sign. Below the type's smallest normal number steps stop shrinking, as the type's own do. A block
    that holds a non-finite value decodes to NaN throughout. float64 has its own exponents, in headers of 8 bytes.

    Source: FFT-based Gradient Sparsification for the Distributed Training of Deep Neural Networks, Wang et al., HPDC 2020.
    """

    bits: int = param(8, Int(4, 16), "bits a value, sign included")
    mantissa: int = param(3, Int(1, 10), "mantissa bits: more for precision, fewer for range")
    block: int = param(256, Int(32, 4096, power_of_two=True), "values that share a range")

    @property
    def error(self):
        # Half a step at the largest magnitude, or all of the largest value that becomes zero: `patterns` below the largest.
        patterns, binade = 2 ** (self.bits - 1) - 2, 2**self.mantissa
        flushed = 2.0 ** -(patterns // binade) * (1 - patterns % binade / (2 * binade))
        return max(0.5 / binade, flushed)
