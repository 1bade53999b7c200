"""Codecs: arrays to bytes and back. Importing a module declares its codec."""
import os

from .. import _native
from .codec import Codec, WireError, aliases, codec, codecs
from .feedback import ErrorFeedback
from .frame import decode, encode
from . import block_int, cast, hadamard, mx, natural, raw, sign, ternary

threads, set_threads = _native.threads, _native.set_threads
# One rank a core is how MPI programs run, so one thread unless the user says otherwise in OpenMP's own variable.
_native.set_threads(int(os.environ.get("OMP_NUM_THREADS", "").partition(",")[0] or 1))

globals().update({cls.__name__: cls for cls in codecs().values()})
__all__ = [
    "Codec", "ErrorFeedback", "WireError", "aliases", "codec", "codecs", "decode", "encode", "set_threads", "threads",
    *(cls.__name__ for cls in codecs().values()),
]  # fmt: skip
