"""Compressed collectives: allreduce and its siblings in fewer bytes, on arrays of any framework.

    comm = thinwire.Communicator()
    y = comm.allreduce(grad, codec="int8")

Codecs work without MPI; a collective needs one (pip install 'thinwire[mpich]').
"""
from .compress import *  # noqa: F403
from .compress import __all__ as _codec_names

__version__ = "0.1.0"

_COLLECTIVES = (
    "allreduce", "reduce_scatter", "allgather", "alltoall", "alltoallv", "broadcast", "send", "recv",
    "iallreduce", "ireduce_scatter", "iallgather", "ialltoall", "ialltoallv", "ibroadcast", "isend", "irecv",
)  # fmt: skip
_FROM_COLLECTIVES = ("Communicator", "Request", "Record", "MismatchError", "PeerLostError", "NonFiniteError", "schedules", "shard")

__all__ = [*_codec_names, *_FROM_COLLECTIVES, *_COLLECTIVES, "world"]

_world = None


def world():
    """The communicator of the functions at module level, over COMM_WORLD; made at the first use, by all ranks."""
    global _world
    if _world is None or _world._closed:
        from .collectives import Communicator

        _world = Communicator()
    return _world


def __getattr__(name):
    # Collectives load MPI, so they are imported when first asked for: codecs alone need none.
    if name in _FROM_COLLECTIVES:
        from . import collectives

        value = getattr(collectives, name)
    elif name in _COLLECTIVES:
        value = _on_world(name)
    else:
        raise AttributeError(f"module 'thinwire' has no attribute {name!r}")
    globals()[name] = value
    return value


def _on_world(name):
    import functools

    from .collectives import Communicator

    method = getattr(Communicator, name)

    @functools.wraps(method)
    def collective(*args, **kwargs):
        return method(world(), *args, **kwargs)

    return collective


def __dir__():
    return sorted(__all__)
