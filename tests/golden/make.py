"""Writes the golden files: `python tests/golden/make.py [--force] [codec ...]`.

A file a codec, NAME.bin: frames as docs/wire.md specifies them, two for each case. The first holds fixed inputs in the codec by
default and in each of its aliases, float32, float16, bfloat16 and float64, and for a sparse codec sets of indices of every kind; the second, raw uint8, the BLAKE2b hash (16 bytes) of
what the first decodes to. tests/test_golden.py compares bytes and values.

A golden file is a promise: frames that are stored somewhere stay readable, and every build and device writes these bytes. So an
existing file is only written again with --force, and a change of one belongs in the release notes.
"""
import hashlib
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

HERE = Path(__file__).parent
# dtype: significand bits, least and greatest exponent of the values made here
DTYPES = {"float32": (24, -100, 100), "float16": (11, -9, 5), "bfloat16": (8, -100, 100), "float64": (53, -800, 800)}
SEED = 0x0123456789ABCDEF
MASK = (1 << 64) - 1


def word(i):
    """The i-th 64-bit word of a fixed sequence (splitmix64)."""
    z = (i + 1) * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def inputs(dtype):
    """The arrays of a dtype, made by integer arithmetic and powers of two, so that no library can change them."""
    significand, low, high = DTYPES[str(dtype)]

    def value(i, exponent):
        return float(np.ldexp(float((word(i) >> 11) % (2 << significand - 1) - (1 << significand - 1)), exponent - significand + 1))

    # 300 values about one magnitude, with a run of zeros: a whole block of 256 and the start of another
    common = [0.0 if 40 <= i < 75 else value(i, 1) for i in range(300)]
    # 37 of all magnitudes
    spread = [value(1000 + i, low + (high - low) * i // 36) for i in range(37)]
    # what is special: alone, so that it poisons nothing else
    info = ml_dtypes.finfo(dtype)
    special = [0.0, -0.0, float(info.max), -float(info.max), float(info.smallest_normal), float(info.smallest_subnormal)]
    arrays = [common, spread, special, [float("nan"), 1.0, -2.0], [1.0, float("inf")], [-1.5], []]
    return [np.array(values, np.float64).astype(dtype) for values in arrays]


def sparse_inputs(dtype):
    """Arrays whose values that are not zero make every mode of indices the shortest: scattered, dense, a stride, rows, and more than one piece of them."""
    places = {
        3000: [i for i in range(3000) if word(i) % 64 == 0],
        301: [i for i in range(301) if word(i) % 2 == 0],
        2400: [11 + 37 * i for i in range(64)],
        1920: [64 * row + i for row in (0, 3, 4, 17, 29) for i in range(40)],
        20000: [i for i in range(20000) if word(i) % 4 == 0] if dtype.itemsize == 2 and dtype.kind == "f" else [19999],
    }
    for n, chosen in places.items():
        x = np.zeros(n, np.float64)
        x[chosen] = [float(1 + word(i) % 127) * (-1) ** (i % 3) / 16 for i in chosen]
        yield x.astype(dtype)


def cases(cls):
    """(codec, array) of everything that a codec's file holds."""
    import thinwire as tw

    for codec in dict.fromkeys([cls(), *(codec for codec in tw.aliases().values() if type(codec) is cls)]):
        for name in DTYPES:
            dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
            for x in [*inputs(dtype), *(sparse_inputs(dtype) if codec.selects else ())]:
                yield codec, x


def fingerprint(y):
    return np.frombuffer(hashlib.blake2b(y.tobytes(), digest_size=16).digest(), np.uint8)


def contents(cls):
    """The bytes of a codec's golden file, as this build writes them."""
    import thinwire as tw

    parts = []
    for codec, x in cases(cls):
        frame = tw.encode(x, codec, seed=SEED)
        parts += [frame, tw.encode(fingerprint(tw.decode(frame)), "raw")]
    return b"".join(parts)


def main(arguments):
    import thinwire as tw

    force = "--force" in arguments
    names = [a for a in arguments if a != "--force"] or list(tw.codecs())
    for name in names:
        path, new = HERE / f"{name}.bin", contents(tw.codecs()[name])
        if path.exists() and path.read_bytes() == new:
            print(f"{path.name}: as it is")
        elif path.exists() and not force:
            print(f"{path.name}: this build writes other bytes; --force replaces the file")
            return 1
        else:
            path.write_bytes(new)
            print(f"{path.name}: {len(new)} bytes written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
