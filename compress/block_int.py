from .codec import Choice, Codec, Int, alias, param


class BlockInt(Codec, name="block_int"):
    """Integers of 2 to 8 bits on a scale per block.

    A block's largest magnitude (or its range, `mode="minmax"`) sets the step; the largest error is half a step with nearest
    rounding, a step with stochastic rounding, which is unbiased (QSGD, Alistarh et al., NeurIPS 2017). A block that holds a
    non-finite value decodes to NaN throughout. Scales are float32, or float64 for float64 arrays.
    """

    bits: int = param(8, Int(2, 8), "bits a value")
    block: int = param(256, Int(32, 4096, power_of_two=True), "values that share a scale")
    rounding: str = param("nearest", Choice("nearest", "stochastic"), "to nearest even, or up and down at random without bias")
    mode: str = param("symmetric", Choice("symmetric", "minmax"), "levels around zero, or between the block's least and largest value")

    @property
    def error(self):
        # half a step, or a step, of the block; the block's range is at most twice the array's largest magnitude
        levels = 2 ** (self.bits - 1) - 1 if self.mode == "symmetric" else (2**self.bits - 1) / 2
        return (0.5 if self.rounding == "nearest" else 1.0) / levels * (1 + 2**-20)


for bits in (8, 6, 4, 3, 2):
    alias(f"int{bits}", "block_int", bits=bits)
