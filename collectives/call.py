"""One call of a collective: what a schedule works with.

A schedule is a generator over a Call. It sends and receives frames of its values in parts, so that encoding, transfer and decoding
overlap, and yields what it waits for whenever it can do nothing. Frames are cut at granules of the codec: the parts of a frame are
slices of one wire, whose bytes do not depend on the cut.
"""
from __future__ import annotations

from time import perf_counter

import numpy as np

from .. import _native
from ..compress import frame
from ..compress.array import DTYPES, dtype_code
from ..compress.codec import Codec, WireError, accumulator
from .errors import MismatchError
from .transport import Incoming, Pending

PART = 1 << 20  # uncompressed bytes a part: about the L2 cache of a core, and wires small enough for MPI's eager protocol
_MASK = 0xFFFFFFFFFFFFFFFF
_OWNER = 0x5851F42D4C957F2D  # sets the noise of an owner's encoding apart from that of its own values


def shard(n: int, size: int, rank: int) -> tuple[int, int]:
    """The part [start, stop) of n values that belongs to a rank."""
    return n * rank // size, n * (rank + 1) // size


def mix(seed: int, *words: int) -> int:
    """Another 64-bit seed for each tuple of words (splitmix64 steps)."""
    for word in words:
        seed = ((seed ^ word) + 0x9E3779B97F4A7C15) & _MASK
        seed = ((seed ^ seed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        seed = ((seed ^ seed >> 27) * 0x94D049BB133111EB) & _MASK
        seed ^= seed >> 31
    return seed


class Cut:
    """How a frame of n values is cut into parts: edges in values, and in bytes of the frame (the header goes with part 0)."""

    __slots__ = ("n", "code", "values", "edges", "parts", "fixed")

    def __init__(self, codec: Codec, n: int, code: int, tail: int):
        self.n, self.code, self.fixed = n, code, bool(codec.granule)
        part = PART // accumulator(code).itemsize
        step = max(part // codec.granule, 1) * codec.granule if codec.granule else n
        self.values = [*range(0, n, step), n] if n else [0]
        self.edges = [0] + [frame.SIZE + codec.kernels.bound(codec.params, v, code) for v in self.values[1:]]
        self.edges[-1] += tail if n else 0
        self.parts = len(self.values) - 1

    def span(self, part: int) -> tuple[int, int]:
        """A part's first value and its number of values."""
        return self.values[part], self.values[part + 1] - self.values[part]

    @property
    def widest(self) -> int:
        """Most values in a part."""
        return self.values[1] if self.parts else 0


class Record:
    """What a call moved and how long it took.

    collective, schedule, codec   names
    raw_bytes    bytes this rank would have sent to others uncompressed, by the same schedule (plain: 2 (W-1)/W of the array)
    wire_bytes   bytes it sent, frame headers included
    seconds      by phase: agree, encode, decode, total; what total has beyond the others was spent waiting
    events       anything out of the ordinary, such as non-finite values met by feedback
    """

    __slots__ = ("collective", "schedule", "codec", "raw_bytes", "wire_bytes", "events", "_seconds")

    def __init__(self, collective="", schedule="", codec="", raw_bytes=0, wire_bytes=0, seconds=(), events=()):
        self.collective, self.schedule, self.codec = collective, schedule, codec
        self.raw_bytes, self.wire_bytes = raw_bytes, wire_bytes
        self._seconds, self.events = seconds, events

    @property
    def seconds(self) -> dict:
        return dict(zip(("agree", "encode", "decode", "total"), self._seconds))

    @property
    def ratio(self) -> float:
        """raw_bytes / wire_bytes; 1 where nothing was sent."""
        return self.raw_bytes / self.wire_bytes if self.wire_bytes else 1.0

    def __repr__(self):
        phases = ", ".join(f"{name} {1e3 * s:.3f} ms" for name, s in self.seconds.items())
        return (
            f"<{self.collective} {self.codec} by {self.schedule}: {self.raw_bytes} bytes raw, {self.wire_bytes} on the wire "
            f"({self.ratio:.2f} x); {phases}" + "".join(f"; {event}" for event in self.events) + ">"
        )


class Outgoing:
    """A frame that this rank writes, part by part."""

    __slots__ = ("cut", "buffer", "seed", "end")

    def __init__(self, cut, buffer, seed):
        self.cut, self.buffer, self.seed, self.end = cut, buffer, seed, 0


class Call:
    """One call: its arrays, codec and buffers, and the steps of which schedules are made."""

    # What most calls leave as it is.
    out, aliases = None, False  # the output, flat, and whether it is x itself
    turn = None  # among the calls that use MPI's own collectives
    rows = None  # what ranks told each other when they agreed
    progress = 0  # parts encoded and decoded
    encode_seconds = decode_seconds = 0.0
    raw_bytes = wire_bytes = 0
    _other = None  # a second array for max and min

    def __init__(self, communicator, plan, sequence, view, seed, entry, blocking):
        self.communicator = communicator
        self.transport = communicator.transport
        self.rank, self.size = communicator.rank, communicator.size
        self.plan, self.codec, self.op = plan, plan.codec, plan.op
        self.x, self.n, self.code, self.dtype = view.flat, view.n, view.code, view.dtype
        self.sequence, self.seed, self.blocking = sequence, seed, blocking
        self.entry = entry  # (feedback entry, key), or None
        self.sends = Pending()
        self.taken: list[np.ndarray] = []
        self.events: list[str] = []

    @property
    def peers(self):
        """All other ranks, from the next one up, so that no rank is everybody's first."""
        return self.communicator.peers

    # --- buffers ---

    def take(self, size: int) -> np.ndarray:
        """A workspace buffer for the length of this call."""
        buffer = self.communicator.workspace.take(size)
        self.taken.append(buffer)
        return buffer

    def array(self, n: int, dtype) -> np.ndarray:
        """A workspace array of n values."""
        return self.take(n * dtype.itemsize)[: n * dtype.itemsize].view(dtype)

    def cut(self, n: int, dtype=None) -> Cut:
        return self.plan.cut(n, self.code if dtype is None else dtype_code(dtype), 4 * self.communicator.checksum)

    def residual(self, role: str, n: int):
        return None if self.entry is None else self.entry[0].residual(self.entry[1], role, n)

    # --- frames out ---

    def outgoing(self, cut: Cut, *words: int) -> Outgoing:
        """A new frame; `words` set its random bits apart from those of the call's other frames."""
        return Outgoing(cut, self.take(cut.edges[-1]), mix(self.seed, self.rank, *words))

    def encode(self, out: Outgoing, part: int, x, at: int, residual=None, lost: int = 0):
        """Encode part `part` of a frame from x[at:]; `lost` is the part's place in the residual."""
        started = perf_counter()
        cut, codec = out.cut, self.codec
        first, n = cut.span(part)
        if residual is not None and _native.any_nonfinite(x, at, n, cut.code):
            self.events.append(f"rank {self.rank}: non-finite values among {n} from {at}; what their blocks dropped before was kept")
        begin = max(cut.edges[part], frame.SIZE)
        used = codec.kernels.encode(codec.params, x, at, n, cut.code, out.buffer, begin, out.seed, first, residual, lost)
        out.end = begin + used
        if part == cut.parts - 1 and self.communicator.checksum:
            out.buffer[out.end : out.end + 4] = np.frombuffer(_native.crc32c(out.buffer[frame.SIZE : out.end]).to_bytes(4, "little"), np.uint8)
            out.end += 4
        if part == 0:
            size = (cut.edges[-1] if cut.fixed else out.end) - frame.SIZE
            flags = frame.CHECKSUM * self.communicator.checksum
            frame.pack(out.buffer, codec, cut.code, cut.n, size, flags=flags, digest=self.plan.digest, sequence=self.sequence)
        self.encode_seconds += perf_counter() - started
        self.progress += 1

    def send(self, source, part: int, peer: int, phase: int = 0):
        """Send a part of a frame: one of this rank's that was just encoded, or one that arrived, as it is. Parts go in order."""
        cut = source.cut
        end = cut.edges[part + 1] if cut.fixed else frame.SIZE + frame.unpack(source.buffer)[-1]
        self.transport.send(self.sends, source.buffer, cut.edges[part], end, peer, self.transport.tag(self.sequence, phase))
        self.wire_bytes += end - cut.edges[part]
        self.raw_bytes += cut.span(part)[1] * self.dtype.itemsize

    def sent(self):
        """Generator: until all that was sent has left its buffer."""
        while not self.sends.done():
            yield (self.sends,)

    # --- frames in ---

    def receive(self, cut: Cut, peer: int, phase: int = 0) -> Incoming:
        """Post the receives of a frame."""
        return self.transport.receive(self.take(cut.edges[-1]), cut, peer, self.transport.tag(self.sequence, phase))

    def decode(self, source, part: int, y, at: int):
        """Decode a part of a frame, one that arrived or one of this rank's own, into y[at:]."""
        started = perf_counter()
        begin, end = self._wire(source, part)
        m = source.cut.span(part)[1]
        if not self.codec.kernels.decode(self.codec.params, source.buffer, begin, end - begin, y, at, m, source.cut.code):
            raise self._no_wire(m)
        self.decode_seconds += perf_counter() - started
        self.progress += 1

    def _wire(self, source, part: int) -> tuple[int, int]:
        """Where the wire of a part begins and ends in its frame's buffer, after what can be checked of the frame."""
        cut, buffer, arrived = source.cut, source.buffer, isinstance(source, Incoming)
        if part == 0 and arrived:
            self._check(source)
        end = cut.edges[part + 1] if cut.fixed else frame.SIZE + frame.unpack(buffer)[-1]
        if part == cut.parts - 1 and self.communicator.checksum:
            end -= 4
            if arrived and int.from_bytes(buffer[end : end + 4].tobytes(), "little") != _native.crc32c(buffer[frame.SIZE : end]):
                raise WireError(f"rank {self.rank}, {self.plan.description}: the checksum of the frame from rank {source.peers[0]} does not match")
        return max(cut.edges[part], frame.SIZE), end

    def _no_wire(self, n):
        return WireError(f"rank {self.rank}, {self.plan.description}: a peer's bytes are no {self.codec.name} wire of {n} values")

    def _check(self, incoming):
        cut = incoming.cut
        number, code, _, n, digest, sequence, size = frame.unpack(incoming.buffer)
        room = cut.edges[-1] - frame.SIZE
        got, expected = (number, code, n, digest, sequence), (self.codec.kernels.number, cut.code, cut.n, self.plan.digest, self.sequence & 0xFFFFFFFF)
        if got != expected or (size != room if cut.fixed else size > room):
            raise MismatchError(
                f"rank {self.rank}, {self.plan.description}: expected (codec, dtype, count, digest, call) {expected} in at most {room} bytes, "
                f"rank {incoming.peers[0]} sent {got} in {size}"
            )

    # --- sums: in rank order, in the accumulator's type ---

    def own(self, first: int, m: int):
        """A term of a sum: this rank's own values x[first : first + m], as they are."""
        size = self.dtype.itemsize
        return _native.IDENTITY, b"", self.x.view(np.uint8), first * size, m * size, self.code, self.plan.scale

    def theirs(self, source, part: int, scale: float | None = None):
        """A term of a sum: a part of a frame."""
        begin, end = self._wire(source, part)
        scale = self.plan.scale if scale is None else scale
        return self.codec.kernels, self.codec.params, source.buffer, begin, end - begin, source.cut.code, scale

    def sum_part(self, acc, at: int, m: int, terms):
        """acc[at : at + m] = the sum of the terms in their order, or their extreme."""
        started = perf_counter()
        sound = _native.add_up(terms, acc, at, m) if self.op in ("sum", "mean") else self._extreme(acc, at, m, terms)
        if not sound:
            raise self._no_wire(m)
        self.decode_seconds += perf_counter() - started
        self.progress += 1

    def _extreme(self, acc, at, m, terms):
        # Only exact values have extremes, so each term is decoded as it is. numpy's functions keep NaN.
        extreme = np.maximum if self.op == "max" else np.minimum
        if self._other is None or self._other.size < m:
            self._other = self.array(m, self.dtype)
        sound = True
        for place, (kernels, params, array, begin, size, code, _) in enumerate(terms):
            y, first = (self._other, 0) if place else (acc, at)
            sound &= kernels.decode(params, array, begin, size, y, first, m, code)
            if place:
                with np.errstate(invalid="ignore"):  # of NaN among bfloat16 and fp8 values
                    extreme(acc[at : at + m], self._other[:m], out=acc[at : at + m])
        return sound

    def finish_sum(self, acc, first: int, y, at: int, m: int):
        """y[at : at + m] = acc[first : first + m], divided if a mean is asked for and narrowed to the array's dtype."""
        if self.op == "mean" or (self.op == "sum" and self.plan.accumulator != self.dtype):
            _native.finish_sum(acc, first, y, at, m, self.code, self.plan.divisor)
        elif y is not acc:
            y[at : at + m] = acc[first : first + m]
