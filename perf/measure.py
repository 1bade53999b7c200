"""Timing, statistics and arrays, the same for every benchmark."""
from __future__ import annotations

import mmap
import sys
from time import perf_counter
from typing import NamedTuple

import ml_dtypes
import numpy as np
from tqdm import tqdm

DTYPES = {
    "float": np.dtype(np.float32), "double": np.dtype(np.float64),
    "half": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip
"""nccl-tests' names for what codecs take."""

LAWS = {
    "normal": lambda rng, n: rng.standard_normal(n, np.float32),
    "laplace": lambda rng, n: rng.laplace(size=n),
    "student3": lambda rng, n: rng.standard_t(3, n),
}  # fmt: skip
"""Where values come from, if not from a file."""

tqdm.monitor_interval = 0  # no thread that wakes up while something is timed


class Usage(Exception):
    """Arguments that cannot be carried out, found on all ranks alike."""


class Spread(NamedTuple):
    """A quantity over several rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples):
        return cls(float(np.median(samples)), float(min(samples)), float(max(samples)))


def interleaved(actions, rounds, iterations=1, warmup=1, barrier=lambda: None, tick=lambda: None):
    """Seconds an iteration of each action, an array [action, round]: every round runs each action, so that drift meets all alike."""
    for action in actions:
        for _ in range(warmup):
            action()
    seconds = np.empty((len(actions), rounds))
    for r in range(rounds):
        for i, action in enumerate(actions):
            barrier()
            started = perf_counter()
            for _ in range(iterations):
                action()
            seconds[i, r] = (perf_counter() - started) / iterations
            tick()
    return seconds


def progress(total, shown=True):
    """A progress bar on stderr: at once on a terminal, elsewhere only for what takes more than two seconds."""
    terminal = sys.stderr.isatty()
    delay, pause = (0, 0.1) if terminal else (2, 5)
    return tqdm(total=total, disable=not shown, delay=delay, mininterval=pause, leave=False, file=sys.stderr)


def parse_size(text: str) -> int:
    """Bytes: 4096, 1K, 64M, 1G."""
    digits, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in tuple("KMG") else (text, "")
    if not digits.isdecimal() or not int(digits):
        raise ValueError(text)
    return int(digits) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def sizes(low, high, step, factor):
    """From low to high by a factor above 1, or by a step."""
    while low <= high:
        yield low
        low = low * factor if factor > 1 else low + step


def pages(n, dtype):
    """n values on pages of 4 KiB, all touched: huge pages, which numpy asks for, would lift every figure by chance."""
    memory = mmap.mmap(-1, max(n * dtype.itemsize, 1))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    array = np.frombuffer(memory, np.uint8, n * dtype.itemsize).view(dtype)
    array[...] = 0
    return array


def values(n, dtype, rank=0, path=None):
    """A rank's n input values: drawn from a law, or the rank's row of a .npy file, repeated as often as needed. On 4 KiB pages."""
    law = LAWS.get(path or "normal")
    if law:
        source = law(np.random.default_rng(rank), n)
    else:
        try:
            stored = np.load(path, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise Usage(f"--input {path}: {error}") from None
        if stored.ndim not in (1, 2) or not stored.size:
            raise Usage(f"--input {path}: an array of shape {stored.shape}; it must be flat, or have a row per rank")
        source = np.ascontiguousarray(stored[rank % len(stored)] if stored.ndim == 2 else stored)
        if source.dtype == np.uint16 or source.dtype.str == "|V2":  # how bfloat16 is kept in .npy files
            source = source.view(ml_dtypes.bfloat16)
        if not np.isfinite(source.astype(np.float64)).all():
            raise Usage(f"--input {path}: it holds values that are not finite")
    x = pages(n, dtype)
    for at in range(0, n, source.size):
        x[at : at + source.size] = source[: n - at]
    return x


def largest(x) -> float:
    """max |x|; NaN if there is one; 0 of nothing."""
    return float(np.abs(x).max()) if x.size else 0.0
