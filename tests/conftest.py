"""What the law tests share: every codec of the registry in its interesting variants, inputs, and mpirun.

Nothing here names a codec: variants come from the kinds of a codec's parameters, what a codec is like from asking it.
"""
import dataclasses
import functools
import itertools
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import thinwire as tw
from thinwire import _native
from thinwire.compress.array import DTYPES, dtype_code
from thinwire.compress.codec import Choice, Flag, Int, Real, Stage

HERE = Path(__file__).parent
FLOATS = [np.dtype(t) for t in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)]
SIZES = [0, 1, 2, 3, 5, 7, 31, 32, 33, 127, 128, 129, 511, 513, 1009, 4095, 4096, 4097, 10007]


# --- the registry ---


def words_of(kind, default):
    """Interesting values of a parameter: every word of a choice, the ends of a range."""
    if isinstance(kind, Choice):
        return list(kind.words)
    if isinstance(kind, Flag):
        return [False, True]
    if isinstance(kind, Int):
        if kind.high - kind.low < 8:
            return list(range(kind.low, kind.high + 1))
        return [v for v in dict.fromkeys([kind.low, default, kind.high]) if not kind.power_of_two or v & (v - 1) == 0]
    if isinstance(kind, Real):
        return list(dict.fromkeys([default, kind.high if np.isfinite(kind.high) else default]))
    if isinstance(kind, Stage):
        return [default]
    raise TypeError(f"conftest knows no values of a parameter of kind {type(kind).__name__}")


def kinds(cls):
    return {f.name: f.metadata["kind"] for f in dataclasses.fields(cls)}


def has_stage(codec):
    return any(isinstance(kind, Stage) for kind in kinds(type(codec)).values())


def plain_codecs():
    """Every codec by default, but those that need another one behind them."""
    return [codec for codec in (cls() for cls in tw.codecs().values()) if not has_stage(codec)]


def variants(cls):
    """A codec by default, with each parameter changed alone, and all choices together at both ends of all ranges."""
    fields = {f.name: f for f in dataclasses.fields(cls)}
    values = {name: words_of(f.metadata["kind"], f.default) for name, f in fields.items()}
    turn = list(tw.codecs()).index(cls.name)  # each codec meets a few stages, all stages meet a few codecs
    for name in (n for n, f in fields.items() if isinstance(f.metadata["kind"], Stage)):
        values[name] = [fields[name].default, *(plain_codecs()[turn % 4 :: 4])]
    found = [cls()]
    for name in fields:
        found += [make(cls, {name: value}) for value in values[name]]
    closed = [name for name, f in fields.items() if isinstance(f.metadata["kind"], (Choice, Flag))]
    ends = [name for name, f in fields.items() if isinstance(f.metadata["kind"], (Int, Real))]
    for end in (0, -1):
        for words in itertools.product(*(values[name] for name in closed)):
            found.append(make(cls, dict(zip(closed, words)) | {name: values[name][end] for name in ends}))
    return [codec for codec in dict.fromkeys(found) if codec is not None]


def make(cls, params):
    try:
        return cls(**params)
    except ValueError:  # some combinations may be refused; a single default never is
        assert len(params) > 1 or isinstance(next(iter(params.values())), tw.Codec), (cls, params)
        return None


def everything():
    return list(dict.fromkeys(itertools.chain.from_iterable([*map(variants, tw.codecs().values()), tw.aliases().values()])))


def defaults():
    """One of each: the codecs without arguments and the aliases."""
    return list(dict.fromkeys([*(cls() for cls in tw.codecs().values()), *tw.aliases().values()]))


# --- what a codec is like, by asking it ---


def chain(codec):
    """A codec and the stages behind it."""
    return [codec, *itertools.chain.from_iterable(chain(v) for v in vars(codec).values() if isinstance(v, tw.Codec))]


FAR = 1 << 15  # longer than any block


@functools.cache
def reach(codec):
    """Values that one value matters to, from the start of an array on: its block, 1 in a cast, FAR if there are no blocks, as where it may be kept instead of
    any other."""
    if codec.selects:
        return FAR
    x = np.ones(FAR, np.float32)
    x[0] = np.nan
    bad = np.flatnonzero(~np.isfinite(decoded(codec, x)))
    assert bad.size and bad[0] == 0, "a NaN vanished"
    return int(bad[-1]) + 1


def block_of(codec, n):
    """Values in a block of an array of n: blocks start at multiples of it, and what one holds is nothing to another."""
    return max(min(reach(codec), n), 1)


@functools.cache
def memoryless(codec):
    """Whether what a finite value becomes does not depend on its neighbours, as in a cast."""
    beside = 1.1, 1.1 * 2.0**40
    equal, lost = (decoded(codec, np.float32([1.1, other]))[0] for other in beside)
    return equal == lost


def leaves_out(codec):
    """Whether a transform gives the codec behind it fewer values than there are: its wire is shorter than that codec's own."""
    return has_stage(codec) and codec.bound(20000) < 0.9 * chain(codec)[1].bound(20000)


@functools.cache
def draws(codec):
    """Whether the seed matters, if only to some arrays."""
    x = values(4096, FLOATS[0])
    return any(map(draws, chain(codec)[1:])) or codec.encode(x, seed=1).tobytes() != codec.encode(x, seed=2).tobytes()


def blind(codec):
    """Whether a selection doesn't look at what it does not keep, so that nothing tells of a non-finite value there."""
    return getattr(codec, "blind", False)


def rounding(codec):
    """ "nearest", "stochastic", or None where a codec does not say."""
    words = {value for c in chain(codec) for value in vars(c).values() if isinstance(value, str)}
    return next((word for word in ("stochastic", "nearest") if word in words), "nearest" if memoryless(codec) and not draws(codec) else None)


# --- inputs and what becomes of them ---


def values(n, dtype=FLOATS[0], seed=0, scale=1.0):
    """n normal values of a dtype; of an integer dtype its whole range, of a complex one both parts."""
    rng, dtype = np.random.default_rng([7, seed, n]), np.dtype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0, 256, n * dtype.itemsize, np.uint8).view(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, n).astype(np.bool_)
    if dtype.kind == "c":
        return (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(dtype)
    return (scale * rng.standard_normal(n)).astype(dtype)


def wide(x):
    """Values as float64, which holds all of them."""
    return np.asarray(x).astype(np.float64)


def epsilon(dtype):
    return float(ml_dtypes.finfo(dtype).eps)


def accumulator(dtype):
    dtype = np.dtype(dtype)
    return np.dtype(np.float32) if dtype in FLOATS[:3] or dtype.itemsize == 1 and dtype.kind not in "iub" else dtype


def decoded(codec, x, seed=0):
    """What a codec makes of an array, in its dtype."""
    return codec.decode(codec.encode(x, seed=seed), np.empty(x.size, x.dtype))


def unrounded(codec, x, seed=0):
    """What a codec makes of an array, in the accumulator, not rounded to the array's dtype: the first term of a sum."""
    acc, wire = np.full(x.size, 7, accumulator(x.dtype)), codec.encode(x, seed=seed)
    assert codec.kernels.decode(codec.params, wire, 0, wire.size, acc, 0, x.size, dtype_code(x.dtype), _native.ACCUMULATE)
    return acc


def selected(codec, x, seed=0, residual=None):
    """(indices, values, whether all is poisoned): what a sparse codec keeps of an array, and of a residual, which it updates."""
    index, value, poison = codec.kernels.select(codec.params, np.ascontiguousarray(x), 0, x.size, dtype_code(x.dtype), seed, residual)
    assert (np.diff(index.astype(np.int64)) > 0).all() and (not index.size or index[-1] < x.size)
    return index, value, poison


def bits(x):
    """For comparisons that no NaN and no sign of zero escapes."""
    return np.ascontiguousarray(x).view(np.uint8)


# --- mpirun ---


def mpirun(size, script, *args, seconds=120, abort=True, env=None):
    """A script of tests/ranks on `size` ranks: its CompletedProcess, stderr in stdout. A launch that hangs is ended and has returncode 124."""
    launcher = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]))
    if launcher is None:
        pytest.skip("no mpirun: pip install 'thinwire[mpich]'")
    command = ["timeout", "-k", "5", str(seconds), launcher, "-n", str(size), sys.executable, *(["-m", "mpi4py"] if abort else []),
               str(HERE / "ranks" / script), *map(str, args)]  # fmt: skip
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", **(env or {}),
    }  # fmt: skip
    # no PMI variables of an mpirun around pytest itself
    environment = {k: v for k, v in environment.items() if not k.startswith(("PMI", "PMIX", "OMPI_COMM_WORLD"))}
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def name_of(value):
    return str(value)


@pytest.fixture(params=everything(), ids=name_of)
def codec(request):
    """Every codec in every interesting variant."""
    return request.param


@pytest.fixture(params=defaults(), ids=name_of)
def default_codec(request):
    """Every codec once, and every alias."""
    return request.param


@pytest.fixture(params=FLOATS, ids=name_of)
def dtype(request):
    """The dtypes that every codec takes."""
    return request.param


@pytest.fixture(scope="session")
def kit():
    """The functions of this file. Tests are no package, so they cannot import them."""
    return types.SimpleNamespace(**{name: value for name, value in globals().items() if not name.startswith("_")})
