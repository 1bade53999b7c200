from .codec import Choice, Codec, alias, param


class Mx(Codec, name="mx"):
    """OCP Microscaling (MX): blocks of 32 elements of 4, 6 or 8 bits, each on a power-of-two scale of its own.

    With e = floor(log2(max|x|)) of a block and E that of the largest element, the scale is 2^(e - E), at least 2^-127, and an
    element is x / scale, rounded to the format. That is the specification's own conversion (v1.0, 6.3): since the scale is not
    rounded up, a block's largest values may lie beyond the largest element, and saturate.

    format      E   largest   worst error, as a part of the block's maximum    bits a value
    fp8_e4m3    8   448       1/8                                              8.25
    fp8_e5m2   15   57344     1/8                                              8.25
    fp6_e3m2    4   28        1/8                                              6.25
    fp6_e2m3    2   7.5       1/16                                             6.25
    fp4_e2m1    2   6         1/4                                              4.25
    int8        0   127/64    1/128                                            8.25

    Aliases: mxfp8 is fp8_e4m3, mxfp6 is fp6_e2m3, mxfp4 is fp4_e2m1, mxint8 is int8. Of the two fp6 formats, which the
    specification and hardware treat alike, e2m3 is the one under the short name: as the scale follows every 32 values, a
    mantissa bit is worth more than exponents (normal values lose 2.8 % root mean square in e2m3, 5.4 % in e3m2, 2.9 % in fp8_e4m3).

    rounding    "nearest" is to nearest even, "stochastic" is without bias, but for values that saturate.
    float64     its exponents do not fit E8M0, so scales are two bytes there: an extension of ours, 8.5, 6.5 and 4.5 bits a value.
    Non-finite  a block that holds an infinity or a NaN has the scale NaN and decodes to NaN throughout, as in the specification.
    Underflow   elements below half the smallest one become zeros with their sign (int8 has one zero); so do float32 blocks whose
                maximum is a denormal too small for the scale 2^-127. A zero block has the smallest scale and decodes to zeros.

    Source: OCP Microscaling Formats (MX) Specification v1.0, 2023; Rouhani et al., Microscaling Data Formats for Deep Learning, 2023.
    """

    format: str = param(
        "fp8_e4m3", Choice("fp8_e4m3", "fp8_e5m2", "fp6_e3m2", "fp6_e2m3", "fp4_e2m1", "int8"), "what an element is"
    )  # fmt: skip
    rounding: str = param("nearest", Choice("nearest", "stochastic"), "to nearest even, or up and down at random without bias")

    @property
    def error(self):
        nearest = {"fp8_e4m3": 1 / 8, "fp8_e5m2": 1 / 8, "fp6_e3m2": 1 / 8, "fp6_e2m3": 1 / 16, "fp4_e2m1": 1 / 4, "int8": 1 / 128}[self.format]
        return nearest if self.rounding == "nearest" else 2 * nearest


for name, format in {"mxfp8": "fp8_e4m3", "mxfp6": "fp6_e2m3", "mxfp4": "fp4_e2m1", "mxint8": "int8"}.items():
    alias(name, "mx", format=format)
