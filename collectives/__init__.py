"""Collectives whose messages are compressed."""
from .call import Record, shard
from .communicator import Communicator, Request
from .errors import MismatchError, NonFiniteError, PeerLostError
from .schedule import schedules
from . import plain, one_shot, direct, ring, gather_union, recursive_doubling, balanced, hashed, leader_index, shared_mask  # importing a module declares its schedule
