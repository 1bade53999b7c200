from __future__ import annotations

from itertools import accumulate

from .call import Call, shard
from .entries import add_up, select, to_owners
from .schedule import BYTE, CODED, MESSAGE, Schedule


class Direct(Schedule):
    """Every frame straight to the rank that needs it.

    A reduction sends each shard to its owner, which adds in rank order; an allreduce then encodes the sum once and sends it to all.
    So a value is encoded twice, whatever the number of ranks, and the owner decodes its own frame like everybody else.
    """

    name = "direct"

    def cost(self, plan, size):
        share = plan.wire_bytes / size
        return 2 * (MESSAGE * size + BYTE * share * (size - 1)) + CODED * 3 * plan.nbytes

    def reduces(self, plan):
        return super().reduces(plan) or (plan.collective == "reduce_scatter" and plan.codec.algebra == "union" and plan.op in ("sum", "mean"))

    def allreduce(self, call: Call):
        yield from _reduce(call, share_sum=True)

    def reduce_scatter(self, call: Call):
        if call.codec.algebra == self.algebra:
            yield from _reduce(call, share_sum=False)
        elif call.n:  # entries that are selected from the whole array, not from each shard
            edges = [shard(call.n, call.size, r)[0] for r in range(call.size)] + [call.n]
            terms = yield from to_owners(call, select(call), edges)
            acc = call.array(call.out.size, call.plan.accumulator)
            add_up(call, terms, acc, edges[call.rank])
            call.finish_sum(acc, 0, call.out, 0, call.out.size)
            yield from call.sent()

    def allgather(self, call: Call):
        yield from _exchange(call, [(0, call.n)] * call.size, spans(call.rows[:, 0]), same=True)

    def alltoall(self, call: Call):
        yield from _exchange(call, spans(call.rows[call.rank, : call.size]), spans(call.rows[:, call.rank]), same=False)


def spans(counts):
    """[start, stop) of each of several parts that follow one another."""
    edges = [0, *accumulate(map(int, counts))]
    return list(zip(edges, edges[1:]))


def _reduce(call: Call, share_sum: bool):
    """Shards to their owners; the owner's sum into its output, or, for an allreduce, as a frame to everybody."""
    shards = [shard(call.n, call.size, r) for r in range(call.size)]
    cuts = [call.cut(b - a) for a, b in shards]
    start, cut = shards[call.rank][0], cuts[call.rank]
    receivers = [p for p in call.peers if cuts[p].n]
    incoming = {p: call.receive(cut, p) for p in call.peers} if cut.n else {}
    results = {p: call.receive(cuts[p], p, 1) for p in receivers} if share_sum else {}
    residual = call.residual("worker", call.n)
    if share_sum and cut.n:
        total = call.outgoing(cut, call.size, 1)
        owner_residual = call.residual("owner", cut.n)
    acc = call.array(cut.widest, call.plan.accumulator)
    narrowed = acc if call.plan.accumulator == call.dtype else call.array(cut.widest, call.dtype)

    def to_owners():
        """Encode and send this rank's terms of the others' sums, a part at each step."""
        frames = {p: call.outgoing(cuts[p], p, 0) for p in receivers}
        for part in range(max((cuts[p].parts for p in receivers), default=0)):
            for p, frame in frames.items():
                if part < cuts[p].parts:
                    at = shards[p][0] + cuts[p].values[part]
                    call.encode(frame, part, call.x, at, residual, at)
                    call.send(frame, part, p)
                    yield

    def add_up(part):
        """Sum one part of this rank's shard."""
        first, m = cut.span(part)
        call.sum_part(acc, 0, m, (call.own(start + first, m) if r == call.rank else call.theirs(incoming[r], part) for r in range(call.size)))
        if not share_sum:
            call.finish_sum(acc, 0, call.out, first, m)
            return
        call.finish_sum(acc, 0, narrowed, 0, m)
        call.encode(total, part, narrowed, 0, owner_residual, first)
        for p in call.peers:
            call.send(total, part, p, 1)
        call.decode(total, part, call.out, start + first)

    # What others wait for comes first: a part of the sum as soon as its terms are here, then this rank's terms of other sums, then
    # the results.
    sending, summed = to_owners(), 0
    while sending or summed < cut.parts or results:
        if summed < cut.parts and all(f.ready(summed) for f in incoming.values()):
            add_up(summed)
            summed += 1
        elif sending:
            if next(sending, call) is call:
                sending = None
        elif not take_arrived(call, results, {p: shards[p][0] for p in results}):
            yield [*incoming.values(), *results.values()]
    yield from call.sent()


def take_arrived(call: Call, incoming: dict, places: dict) -> bool:
    """Decode one part that has arrived into the output, from `places[peer]` on; False if there is none. Complete frames leave the dict."""
    for peer, frame in incoming.items():
        if frame.ready(frame.decoded):
            call.decode(frame, frame.decoded, call.out, places[peer] + frame.cut.values[frame.decoded])
            frame.decoded += 1
            if frame.decoded == frame.cut.parts:
                del incoming[peer]
            return True
    return False


def _exchange(call: Call, sent, received, same: bool):
    """This rank's values [a, b) of `sent[peer]` to each peer, theirs into the output at `received[peer]`.

    A rank's own part goes through the codec too, so that what a value becomes does not depend on where it stays. `same`: all peers
    get the same frame, encoded once.
    """
    incoming = {p: call.receive(call.cut(b - a), p) for p in call.peers for a, b in [received[p]] if b > a}
    residual = call.residual("worker", call.n)
    destinations = [call.rank] if same else [*call.peers, call.rank]
    frames = {p: call.outgoing(call.cut(b - a), p) for p in destinations for a, b in [sent[p]] if b > a}

    def encoding():
        for part in range(max((f.cut.parts for f in frames.values()), default=0)):
            for peer, frame in frames.items():
                if part < frame.cut.parts:
                    first = frame.cut.values[part]
                    call.encode(frame, part, call.x, sent[peer][0] + first, residual, sent[peer][0] + first)
                    for p in call.peers if same else [peer]:
                        if p != call.rank:
                            call.send(frame, part, p)
                    if peer == call.rank:
                        call.decode(frame, part, call.out, received[peer][0] + first)
                    yield

    places = {p: a for p, (a, _) in enumerate(received)}
    working = encoding()
    while working or incoming:
        if working:
            if next(working, call) is call:
                working = None
        elif not take_arrived(call, incoming, places):
            yield list(incoming.values())
    yield from call.sent()
