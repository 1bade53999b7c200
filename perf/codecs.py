"""Codecs alone, without MPI, beside a read pass and a memcpy over the same array, measured in the same rounds."""
from __future__ import annotations

import dataclasses
import sys

import ml_dtypes
import numpy as np

import thinwire as tw

from .. import _native
from ..compress.array import dtype_code
from ..compress.codec import accumulator
from .collectives import origin, processor, versions
from .measure import DTYPES, Spread, Usage, interleaved, largest, pages, progress, values
from .table import Column, Table

CACHED = 512 << 10  # bytes of --cache: with its wire and its results it fits a core's L2
TOUCHED = 16 << 20  # bytes that a measurement works through at least, so that the clock does not matter

COLUMNS = (
    Column("codec", "", "<28", "as asked for"),
    Column("size", "B", "10d", "uncompressed bytes of the array"),
    Column("type", "", "<8", "of the values"),
    Column("ratio", "", "5.2f", "uncompressed bytes / wire bytes"),
    Column("encode", "GB/s", "5.2f", "uncompressed bytes a second: median, and least and most, over the rounds", spread=True),
    Column("decode", "GB/s", "5.2f", "the same, into an array", spread=True),
    Column("add", "GB/s", "5.2f", "the same, added to an accumulator", spread=True),
    Column("read", "GB/s", "5.2f", "a pass over all magnitude bits: the library's vectorized search for non-finite values", spread=True),
    Column("memcpy", "GB/s", "5.2f", "bytes copied a second", spread=True),
    Column("passes", "", "5.2f", "time to encode / time of a read pass, in the same rounds"),
    Column("enc/read", "", "5.2f", "encode / read"),
    Column("dec/read", "", "5.2f", "decode / read"),
    Column("add/read", "", "5.2f", "add / read"),
    Column("stoch", "", "5.2f", "time to encode with stochastic rounding / with nearest, where a codec has both"),
    Column("kept", "", "8.6f", "part of the values that a selection keeps"),
    Column("error", "", "8.1e", "max |y - x| / max |x|"),
    Column("rms", "", "8.1e", "root of mean square of y - x, relative to x's"),
)


def read_pass(x):
    """Read every value once. Its answer is no for the finite values of a benchmark, so it never ends early."""
    if _native.any_nonfinite(x, 0, x.size, dtype_code(x.dtype)):
        raise AssertionError("a benchmark's values are finite")


def stochastic_twin(codec):
    """(codec with nearest, codec with stochastic rounding), or None if it has no such choice."""
    for field in dataclasses.fields(codec):
        if {"nearest", "stochastic"} <= set(getattr(field.metadata["kind"], "words", ())):
            return tuple(dataclasses.replace(codec, **{field.name: word}) for word in ("nearest", "stochastic"))
    return None


def check(codec, x, wire, y):
    """(what is wrong with a codec's results on x, or None; largest error; rms error), errors relative to x."""
    exact, got = x.astype(np.float64), y.astype(np.float64)
    error, rms = largest(got - exact) / (largest(exact) or 1.0), float(np.sqrt(np.mean((got - exact) ** 2) / (np.mean(exact**2) or 1.0)))
    kind = accumulator(dtype_code(x.dtype))
    before = x[::-1].astype(kind)
    after = codec.decode(wire, before.copy(), add=True, dtype=x.dtype)
    # What is added is not rounded to the type of x first.
    slack = 0.0 if kind == x.dtype else float(ml_dtypes.finfo(x.dtype).eps)
    wrong = None
    if not np.isfinite(error):
        wrong = "a finite value came back non-finite"
    elif codec.lossless and not np.array_equal(x.view(np.uint8), y.view(np.uint8)):
        wrong = "lossless, but bits differ"
    elif not (np.abs(after - (before + y.astype(kind))) <= slack * np.abs(y.astype(kind))).all():
        wrong = "decode-add is not decode, then add"
    return wrong, error, rms


def measure(codec, x, options):
    """A row of the table, and what is wrong or None."""
    wire = np.empty(codec.bound(x.size, x.dtype), np.uint8)
    y, acc = pages(x.size, x.dtype), pages(x.size, accumulator(dtype_code(x.dtype)))
    source, copied = x.view(np.uint8), pages(x.nbytes, np.dtype(np.uint8))
    used = codec.encode(x, wire)
    twins = stochastic_twin(codec)
    actions = {
        "read": lambda: read_pass(x),
        "memcpy": lambda: np.copyto(copied, source),
        "encode": lambda: codec.encode(x, wire, seed=1),
        "decode": lambda: codec.decode(used, y),
        "add": lambda: codec.decode(used, acc, add=True, dtype=x.dtype),
    }
    if twins:
        room = np.empty(max(t.bound(x.size, x.dtype) for t in twins), np.uint8)
        actions |= {t: lambda t=t: t.encode(x, room, seed=1) for t in twins}
    repeats = -(-TOUCHED // x.nbytes)
    times = dict(zip(actions, interleaved(list(actions.values()), options.rounds, repeats, options.warmup)))
    speed = {name: Spread.of(x.nbytes / 1e9 / times[name]) for name in ("read", "memcpy", "encode", "decode", "add")}
    wrong, error, rms = check(codec, x, used, y)
    stoch = float(np.median(times[twins[1]]) / np.median(times[twins[0]])) if twins else None
    relative = {f"{name[:3]}/read": speed[name].median / speed["read"].median for name in ("encode", "decode", "add")}
    passes = float(np.median(times["encode"] / times["read"]))
    kept = codec.kernels.select(codec.params, x, 0, x.size, dtype_code(x.dtype), 1)[0].size / x.size if codec.selects else None
    return dict(size=x.nbytes, ratio=x.nbytes / used.size, stoch=stoch, error=error, rms=rms, passes=passes, kept=kept, **speed, **relative), wrong


def run(options, parser) -> int:
    """The command: gives its exit status."""
    dtype = DTYPES[options.datatype]
    x = values(max((CACHED if options.cache else options.minbytes) // dtype.itemsize, 1), dtype, path=options.input)
    chosen = {spec: tw.codec(spec) for spec in options.codec}
    refusing = [spec for spec, codec in chosen.items() if not codec.takes(dtype)]
    if refusing and not options.all_codecs:
        raise Usage(f"{', '.join(refusing)}: does not take {options.datatype}")
    table = Table(COLUMNS, options.json)
    table.note(f"thinwire-perf codecs: {versions()}; {tw.threads()} threads (read and memcpy: one); {processor()}")
    table.note(f"{options.rounds} rounds; {origin(options)}" + ("; arrays in cache" if options.cache else ""))
    table.note()
    table.head()
    failures = []
    with progress(len(chosen)) as bar:
        for spec, codec in chosen.items():
            if spec not in refusing:
                row, wrong = measure(codec, x, options)
                table.row(codec=spec, type=options.datatype, **row)
                if wrong:
                    failures.append(f"{spec}: {wrong}")
            bar.update()
    for failure in failures:
        print(f"{parser.prog}: FAILED: {failure}", file=sys.stderr, flush=True)
    table.note(f"Failed checks   : {len(failures)} {'FAILED' if failures else 'OK'}")
    table.end()
    return 1 if failures else 0
