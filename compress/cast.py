"""Casts: every value narrowed by itself, to nearest even. The wire is the narrow values in order, and nothing else.

What is common to all four:

Overflow: a finite value beyond the largest finite one becomes that one (`saturate=True`), or is rounded as IEEE 754 does, to
infinity or, in e4m3, to NaN (`saturate=False`). The largest value is one that the array's own type holds too, so that a
saturated value never comes back as an infinity: bf16 on float16 arrays ends at 65280.
Non-finite: an infinity stays one (NaN in e4m3, which has no infinity), NaN stays NaN, with its sign and without its payload,
whatever `saturate` says. The saturating conversions of the OCP specification and of CUDA turn infinities into the largest
value instead, which would hide them.
Underflow: gradual; what rounds to zero keeps its sign.
float64 is rounded once, not through float32.
Sums of decoded values are in float32, or float64 for float64 arrays, never in the narrow type.
A residual (error feedback) takes what rounding and saturation lost; where the value or its code is not finite it stays as it was.
"""
from .codec import Codec, Flag, param


class Bf16(Codec, name="bf16"):
    """bfloat16: the upper half of a float32, two bytes a value.

    Relative error at most 2^-8, over float32's whole range of exponents. Largest value 3.39e38, smallest normal 1.18e-38,
    smallest 9.2e-41. The wire of a bfloat16 array is the array itself.

    Finite values beyond the largest become it with `saturate`, infinities without; infinities and NaN are passed on.

    Source: Intel, BFLOAT16 Hardware Numerics Definition, 2018; rounding as IEEE 754, to nearest even.
    """

    saturate: bool = param(True, Flag(), "bring finite values down to the largest one, rather than to infinity")

    @property
    def error(self):
        return 2.0**-8


class Fp16(Codec, name="fp16"):
    """IEEE 754 binary16, two bytes a value.

    Relative error at most 2^-11 from 6.1e-5 (2^-14) to 65504; below, an absolute error of at most 2^-25, so that gradients
    under 3e-8 vanish: scale them first, or take bf16. The wire of a float16 array is the array itself.

    Finite values beyond 65504 become it with `saturate`, from 65520 on infinities without; infinities and NaN are passed on.

    Source: IEEE 754-2019, binary16.
    """

    saturate: bool = param(True, Flag(), "bring finite values down to 65504, rather than to infinity")


class Fp8E4M3(Codec, name="fp8_e4m3"):
    """OCP fp8 E4M3, one byte a value: 4 exponent and 3 mantissa bits, no infinity (float8_e4m3fn elsewhere).

    Relative error at most 2^-4 from 0.0156 (2^-6) to 448; below, an absolute error of at most 2^-10, so that values up to
    0.00098 vanish. The values have to lie in that range by themselves; `mx` and `block_int` bring a scale of their own.

    Finite values beyond 448 become it with `saturate`, beyond 464 NaN without; infinities and NaN become NaN.

    Source: OCP 8-bit Floating Point Specification (OFP8) 1.0, 2023; Micikevicius et al., FP8 Formats for Deep Learning, 2022.
    """

    saturate: bool = param(True, Flag(), "bring finite values down to 448, rather than to NaN")


class Fp8E5M2(Codec, name="fp8_e5m2"):
    """OCP fp8 E5M2, one byte a value: 5 exponent and 2 mantissa bits, float16's range of exponents.

    Relative error at most 2^-3 from 6.1e-5 (2^-14) to 57344; below, an absolute error of at most 2^-17, so that values up to
    7.6e-6 vanish.

    Finite values beyond 57344 become it with `saturate`, from 61440 on infinities without; infinities and NaN are passed on.

    Source: OCP 8-bit Floating Point Specification (OFP8) 1.0, 2023; Micikevicius et al., FP8 Formats for Deep Learning, 2022.
    """

    saturate: bool = param(True, Flag(), "bring finite values down to 57344, rather than to infinity")
