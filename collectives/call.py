"""One call of a collective: what a schedule works with.

A schedule is a generator over a Call. It sends and receives frames of its values in parts, so that encoding, transfer and decoding
overlap, and yields what it waits for whenever it can do nothing. A frame is cut at granules of the codec: its parts are slices of one wire,
whose bytes do not depend on the cut. Where the size of a wire depends on the values, each part is a frame of its own.
"""
from __future__ import annotations

from itertools import accumulate
from time import perf_counter

import numpy as np

from .. import _native
from ..compress import frame
from ..compress.array import dtype_code
from ..compress.codec import Codec, WireError, accumulator
from .errors import MismatchError
from .transport import Incoming, Pending

# Uncompressed bytes a part: a quarter of the frame within these limits. Four parts overlap nearly all there is to overlap, and fewer cost less; small
# ones stay in a core's L2, and the wires of large ones are small enough for MPI's eager protocol.
PART, LARGEST_PART = 1 << 20, 1 << 22
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
    """How n values are cut into parts: edges in values, and in bytes of the buffer that they are encoded into.

    fixed: one frame, whose header goes with part 0, of a size known beforehand. Otherwise each part is a frame and has room for the most
    that it can take.
    """

    __slots__ = ("n", "code", "values", "edges", "parts", "fixed", "tail")

    def __init__(self, codec: Codec, n: int, code: int, tail: int):
        self.n, self.code, self.fixed, self.tail = n, code, bool(codec.granule), tail
        size = accumulator(code).itemsize
        part = min(max(n * size // 4, PART), LARGEST_PART)
        step = max(part // size // codec.cut_at, 1) * codec.cut_at if codec.cut_at else n
        self.values = [*range(0, n, step), n] if n else [0]
        self.parts = len(self.values) - 1
        if self.fixed:
            self.edges = [0] + [frame.SIZE + codec.kernels.bound(codec.params, v, code) for v in self.values[1:]]
            self.edges[-1] += tail if n else 0
        else:
            room = [frame.SIZE + codec.kernels.bound(codec.params, b - a, code) + tail for a, b in zip(self.values, self.values[1:])]
            self.edges = [0, *accumulate(room)]

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


class Phase:
    """Time spent in one kind of work, and how often: `with call.encoding: ...`."""

    __slots__ = ("seconds", "steps", "_started")

    def __init__(self):
        self.seconds, self.steps = 0.0, 0

    def __enter__(self):
        self._started = perf_counter()

    def __exit__(self, *_):
        self.seconds += perf_counter() - self._started
        self.steps += 1


class Outgoing:
    """A frame that this rank writes, part by part; where parts are frames, `ends` is where each of them ends in the buffer."""

    __slots__ = ("cut", "buffer", "seed", "ends")

    def __init__(self, cut, buffer, seed):
        self.cut, self.buffer, self.seed, self.ends = cut, buffer, seed, cut.edges[1:]

    @property
    def start(self):
        """Where the wire of a frame of one part begins."""
        return frame.SIZE

    def place(self, part):
        """The buffer that holds a part, and its first and last byte there."""
        return self.buffer, self.cut.edges[part], self.ends[part]


class Call:
    """One call: its arrays, codec and buffers, and the steps of which schedules are made."""

    # What most calls leave as it is.
    out, aliases = None, False  # the output, flat, and whether it is x itself
    turn = None  # among the calls that use MPI's own collectives
    rows = None  # what ranks told each other when they agreed
    raw_bytes = wire_bytes = 0
    _other = None  # a second array for max and min

    def __init__(self, communicator, plan, sequence, view, seed, entry, blocking):
        self.communicator = communicator
        self.transport = communicator.transport
        self.rank, self.size = communicator.rank, communicator.size
        self.plan, self.codec, self.op = plan, plan.codec, plan.op
        self.x, self.n, self.code, self.dtype = view.flat, view.n, view.code, view.dtype
        self.index = getattr(view, "index", None)  # where the values of a sparse array stand
        self.sequence, self.seed, self.blocking = sequence, seed, blocking
        self.entry = entry  # (feedback entry, key), or None
        self.encoding, self.decoding = Phase(), Phase()
        self.sends = Pending()
        self.taken: list[np.ndarray] = []
        self.events: list[str] = []

    @property
    def progress(self):
        """Parts encoded and decoded."""
        return self.encoding.steps + self.decoding.steps

    @property
    def sparse(self):
        """Whether the array is a sparse one, and its result."""
        return self.index is not None

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

    def selected(self, index):
        """Tell the feedback which positions are sent."""
        if self.entry is not None:
            self.entry[0].sent(self.entry[1], index)

    # --- frames out ---

    def outgoing(self, cut: Cut, *words: int, room: int | None = None) -> Outgoing:
        """A new frame; `words` set its random bits apart from those of the call's other frames. room: most bytes of its wire, if that is known better."""
        size = cut.edges[-1] if room is None else frame.SIZE + room + cut.tail
        return Outgoing(cut, self.take(size), mix(self.seed, self.rank, *words))

    def encode(self, out: Outgoing, part: int, x, at: int, residual=None, lost: int = 0):
        """Encode part `part` of a frame from x[at:]; `lost` is the part's place in the residual."""
        cut, codec = out.cut, self.codec
        first, n = cut.span(part)
        with self.encoding:
            self.report_nonfinite(residual, x, at, n, cut.code)
            begin = cut.edges[part] if cut.fixed and part else cut.edges[part] + frame.SIZE
            used = codec.kernels.encode(codec.params, x, at, n, cut.code, out.buffer, begin, out.seed, first, residual, lost)
            self.close(out, part, begin + used)
            if residual is not None and codec.selects and self.entry[0].how.masks:
                found = codec.kernels.unpack(codec.params, out.buffer, begin, used, n, cut.code, lost)
                self.selected(found[0])

    def report_nonfinite(self, residual, x, at, n, code) -> bool:
        """Whether feedback meets non-finite values, which never enter a residual: an event."""
        found = residual is not None and _native.any_nonfinite(x, at, n, code)
        if found:
            self.events.append(f"rank {self.rank}: non-finite values among {n} from {at}; what their blocks dropped before was kept")
        return found

    def close(self, out: Outgoing, part: int, end: int):
        """Complete a part whose wire ends at byte `end` of its buffer: header and checksum."""
        cut, tail = out.cut, self.communicator.checksum
        if tail and (not cut.fixed or part == cut.parts - 1):
            start = frame.SIZE if cut.fixed else cut.edges[part] + frame.SIZE
            out.buffer[end : end + 4] = np.frombuffer(_native.crc32c(out.buffer[start:end]).to_bytes(4, "little"), np.uint8)
            end += 4
        if not cut.fixed:
            out.ends[part] = end
            self._header(out.buffer[cut.edges[part] :], cut, cut.span(part)[1], end - cut.edges[part])
        elif part == 0:
            self._header(out.buffer, cut, cut.n, cut.edges[-1])

    def _header(self, buffer, cut, n, size):
        flags = frame.CHECKSUM * self.communicator.checksum
        frame.pack(buffer, self.codec, cut.code, n, size - frame.SIZE, flags=flags, digest=self.plan.digest, sequence=self.sequence)

    def send(self, source, part: int, peer: int, phase: int = 0):
        """Send a part of a frame: one of this rank's that was just encoded, or one that arrived, as it is. Parts go in order."""
        cut, tag = source.cut, self.transport.tag(self.sequence, phase)
        buffer, begin, end = source.place(part)
        self.transport.send(self.sends, buffer, begin, end, peer, tag, announce=not cut.fixed)
        self.wire_bytes += end - begin
        self.raw_bytes += cut.span(part)[1] * self.dtype.itemsize

    def sent(self):
        """Generator: until all that was sent has left its buffer."""
        while not self.sends.done():
            yield (self.sends,)

    # --- frames in ---

    def receive(self, cut: Cut, peer: int, phase: int = 0) -> Incoming:
        """The parts of a frame from a peer: receives are posted where their sizes are known."""
        tag = self.transport.tag(self.sequence, phase)
        if cut.fixed:
            return self.transport.receive(self.take(cut.edges[-1]), cut, peer, tag)
        return self.transport.await_frames(self.take, cut, peer, tag)

    def decode(self, source, part: int, y, at: int):
        """Decode a part of a frame, one that arrived or one of this rank's own, into y[at:]."""
        with self.decoding:
            buffer, begin, end = self.wire(source, part)
            m = source.cut.span(part)[1]
            if not self.codec.kernels.decode(self.codec.params, buffer, begin, end - begin, y, at, m, source.cut.code):
                raise self.no_wire(m)

    def wire(self, source, part: int):
        """(buffer, first, last byte) of the wire of a part, after what can be checked of its frame."""
        cut, arrived = source.cut, isinstance(source, Incoming)
        buffer, begin, end = source.place(part)
        start = begin if not cut.fixed or part == 0 else 0
        if start == begin:
            if arrived:
                self._check(source, buffer[begin:end], cut.n if cut.fixed else cut.span(part)[1], (cut.edges[-1] if cut.fixed else end - begin) - frame.SIZE)
            begin += frame.SIZE
        if self.communicator.checksum and (not cut.fixed or part == cut.parts - 1):
            end -= 4
            if arrived and int.from_bytes(buffer[end : end + 4].tobytes(), "little") != _native.crc32c(buffer[start + frame.SIZE : end]):
                raise WireError(f"rank {self.rank}, {self.plan.description}: the checksum of the frame from rank {source.peers[0]} does not match")
        return buffer, begin, end

    def no_wire(self, n):
        return WireError(f"rank {self.rank}, {self.plan.description}: a peer's bytes are no {self.codec.name} wire of {n} values")

    def _check(self, incoming, head, n, size):
        got = frame.unpack(head)
        number, code, _, count, digest, sequence, follow = got
        expected = self.codec.kernels.number, incoming.cut.code, n, self.plan.digest, self.sequence & 0xFFFFFFFF, size
        if (number, code, count, digest, sequence, follow) != expected:
            raise MismatchError(
                f"rank {self.rank}, {self.plan.description}: expected (codec, dtype, count, digest, call, bytes) {expected}, "
                f"rank {incoming.peers[0]} sent {(number, code, count, digest, sequence, follow)}"
            )

    # --- sums: in rank order, in the accumulator's type ---

    def own(self, first: int, m: int):
        """A term of a sum: this rank's own values x[first : first + m], as they are."""
        size = self.dtype.itemsize
        return _native.IDENTITY, b"", self.x.view(np.uint8), first * size, m * size, self.code, self.plan.scale

    def theirs(self, source, part: int, scale: float | None = None):
        """A term of a sum: a part of a frame."""
        buffer, begin, end = self.wire(source, part)
        scale = self.plan.scale if scale is None else scale
        return self.codec.kernels, self.codec.params, buffer, begin, end - begin, source.cut.code, scale

    def add_part(self, source, acc):
        """acc += the values of a frame of one part."""
        kernels, params, buffer, begin, size, code, scale = self.theirs(source, 0)
        with self.decoding:
            if not kernels.decode(params, buffer, begin, size, acc, 0, acc.size, code, _native.ADD, scale):
                raise self.no_wire(acc.size)

    def sum_part(self, acc, at: int, m: int, terms, streamed=False):
        """acc[at : at + m] = the sum of the terms in their order, or their extreme. streamed: acc is large and not read again in this call."""
        with self.decoding:
            sound = _native.add_up(terms, acc, at, m, streamed) if self.op in ("sum", "mean") else self._extreme(acc, at, m, terms)
            if not sound:
                raise self.no_wire(m)

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
