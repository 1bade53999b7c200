"""Codecs: arrays to bytes and back. Importing a module declares its codec."""
import os

from .. import _native
from .codec import Codec, WireError, aliases, codec, codecs
from .feedback import ErrorFeedback
from .frame import decode, encode
from .policy import StageControl, Warmup
from .sparse_array import RowSparse, SparseArray
from . import (
    adacomp, block_int, blocktopk, cast, clt_k, fft, hadamard, lossless, mean, mx, natural, nonzero, randomk, range_float, raw, redsync, sbc, sidco, sign,
    ternary, threshold, topk,
)  # fmt: skip

threads, set_threads = _native.threads, _native.set_threads
# One rank a core is how MPI programs run, so one thread unless the user says otherwise in OpenMP's own variable.
_native.set_threads(int(os.environ.get("OMP_NUM_THREADS", "").partition(",")[0] or 1))

globals().update({cls.__name__: cls for cls in codecs().values()})
__all__ = [
    "Codec", "ErrorFeedback", "RowSparse", "SparseArray", "StageControl", "Warmup", "WireError", "aliases", "codec", "codecs", "decode", "encode",
    "set_threads", "threads",
    *(cls.__name__ for cls in codecs().values()),
]  # fmt: skip
