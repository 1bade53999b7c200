"""What happens when ranks disagree or do not come: `mpirun -n W python [-m mpi4py] tests/ranks/failures.py SCENARIO`.

Run by test_failures.py. Every scenario has a communicator of its own; ranks meet between scenarios by MPI itself. Each rank prints
what it saw; the last line of a rank that got through is "DONE rank".
"""
import sys
import time
import traceback

import numpy as np
from mpi4py import MPI

import thinwire as tw

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
ODD = RANK == SIZE - 1  # the rank that does something else
TIMEOUT = 1.5
problems = []


def x(n=1000, dtype=np.float32):
    return np.ones(n, dtype)


def expect(condition, *what):
    if not condition:
        problems.append(f"rank {RANK}: " + " ".join(map(str, what)))


def lossy():
    """Two codecs that differ, and one codec twice with another parameter, whatever the registry holds."""
    codecs = [c for c in tw.aliases().values() if not c.lossless]
    return codecs[0], next(c for c in codecs if type(c) is type(codecs[0]) and c != codecs[0]), next(c for c in codecs if type(c) is not type(codecs[0]))


def mismatches():
    """Name: (what most ranks call, what the odd one calls, words that the error must hold for both sides)."""
    one, other, third = lossy()
    counts, more = [1] * SIZE, [2] + [1] * (SIZE - 1)
    return {
        "count": (lambda c: c.allreduce(x(1000), codec=one), lambda c: c.allreduce(x(1001), codec=one), ("1000", "1001")),
        "count raw": (lambda c: c.allreduce(x(1000)), lambda c: c.allreduce(x(1001)), ("1000", "1001")),
        "count 0": (lambda c: c.allreduce(x(0)), lambda c: c.allreduce(x(1)), ("0", "1")),
        "count huge": (lambda c: c.allreduce(x(300_000), codec=one), lambda c: c.allreduce(x(3), codec=one), ("300000", "3")),
        "dtype": (lambda c: c.allreduce(x(dtype=np.float32)), lambda c: c.allreduce(x(dtype=np.float16)), ("float32", "float16")),
        "dtype of one size": (lambda c: c.allreduce(x(dtype=np.float32)), lambda c: c.allreduce(x(dtype=np.int32)), ("float32", "int32")),
        "op": (lambda c: c.allreduce(x(), op="sum"), lambda c: c.allreduce(x(), op="mean"), ("sum", "mean")),
        "codec": (lambda c: c.allreduce(x(), codec=one), lambda c: c.allreduce(x(), codec=third), (str(one), str(third))),
        "codec or none": (lambda c: c.allreduce(x(), codec=one), lambda c: c.allreduce(x()), (str(one), "raw")),
        "parameters": (lambda c: c.allreduce(x(), codec=one), lambda c: c.allreduce(x(), codec=other), (str(one), str(other))),
        "schedule": (lambda c: c.allreduce(x(), schedule="direct"), lambda c: c.allreduce(x(), schedule="ring"), ("direct", "ring")),
        "schedule or auto": (lambda c: c.allreduce(x(), schedule="plain"), lambda c: c.allreduce(x()), ("plain",)),
        "root": (lambda c: c.broadcast(x(), 0), lambda c: c.broadcast(x(), 1), ("root 0", "root 1")),
        "seed": (lambda c: c.allreduce(x(), codec=one, seed=1), lambda c: c.allreduce(x(), codec=one, seed=2), ("seed 1", "seed 2")),
        "collective": (lambda c: c.allreduce(x()), lambda c: c.reduce_scatter(x()), ("allreduce", "reduce_scatter")),
        "collective without op": (lambda c: c.alltoall(x()), lambda c: c.broadcast(x()), ("alltoall", "broadcast")),
        "collective with a payload or without": (lambda c: c.allreduce(x()), lambda c: c.allgather(x()), ("allreduce", "allgather")),
        "payloads of two lengths": (lambda c: c.allgather(x()), lambda c: c.alltoallv(x(SIZE), counts), ("allgather", "alltoall")),
        "allgather's dtype": (lambda c: c.allgather(x()), lambda c: c.allgather(x(dtype=np.float64)), ("float32", "float64")),
        "order": (lambda c: (c.allreduce(x(10)), c.allreduce(x(20))), lambda c: (c.allreduce(x(20)), c.allreduce(x(10))), ("10", "20")),
        "one call more": (lambda c: (c.allreduce(x(5)), c.allreduce(x(5)), c.broadcast(x(5))), lambda c: (c.allreduce(x(5)), c.broadcast(x(5)), c.broadcast(x(5))), ("allreduce", "broadcast")),
        "nonfinite": (lambda c: c.allreduce(x()), lambda c: c.allreduce(x(), nonfinite="raise"), ("nonfinite",)),
        "received counts": (lambda c: c.alltoallv(x(SIZE), counts, counts), lambda c: c.alltoallv(x(SIZE), counts, more), ("expects 2",)),
        "non-blocking": (lambda c: c.iallreduce(x(10)).wait(), lambda c: c.iallreduce(x(11)).wait(), ("10", "11")),
        "non-blocking, several": (lambda c: [r.wait() for r in [c.iallreduce(x(n)) for n in (5, 6, 7)]], lambda c: [r.wait() for r in [c.iallreduce(x(n)) for n in (5, 7, 6)]], ("6", "7")),
    }  # fmt: skip


def mismatch():
    for name, (usual, odd, words) in mismatches().items():
        comm = tw.Communicator(timeout=10)
        started = time.monotonic()
        try:
            (odd if ODD else usual)(comm)
            expect(False, name, "passed unnoticed")
            continue
        except tw.MismatchError as error:
            message = str(error)
        except Exception as error:  # noqa: BLE001
            expect(False, name, "raised", repr(error))
            continue
        expect(time.monotonic() - started < 5, name, "took", time.monotonic() - started)
        expect(all(word in message for word in words), name, "does not name both sides:", message)
        for again in (lambda: comm.allreduce(x()), lambda: comm.iallreduce(x()), lambda: comm.send(x(), 0), lambda: comm.recv(0), lambda: comm.broadcast(x())):
            try:
                again()
                expect(False, name, "the communicator is used again")
            except tw.MismatchError as error:
                expect(str(error) == message, name, "another message:", error)
        comm.close()
        WORLD.Barrier()
    # another communicator of the same ranks is none the worse
    with tw.Communicator() as comm:
        expect(comm.allreduce(x(7)).tolist() == [SIZE] * 7, "a new communicator does not work")


def lost_ones():
    """Name: what the ranks that come call; the odd rank stays away."""
    one = lossy()[0]
    return {
        "allreduce": lambda c: c.allreduce(x(), codec=one),
        "raw allreduce": lambda c: c.allreduce(x()),
        "allgather": lambda c: c.allgather(x()),
        "alltoallv": lambda c: c.alltoallv(x(SIZE), [1] * SIZE),
        "broadcast": lambda c: c.broadcast(x(), SIZE - 1),
        "iallreduce": lambda c: c.iallreduce(x(), codec=one).wait(),
        "iallreduce, polled": lambda c: polled(c.iallreduce(x(), codec=one)),
        "recv": lambda c: c.recv(SIZE - 1),
        "after some calls": lambda c: c.reduce_scatter(x(), codec=one),
    }


def polled(request):
    while not request.test():
        time.sleep(0.001)
    return request.wait()


def lost():
    for name, call in lost_ones().items():
        comm = tw.Communicator(timeout=TIMEOUT)
        if name == "after some calls":
            for _ in range(70):
                comm.allreduce(x())
        WORLD.Barrier()
        if not ODD:
            started = time.monotonic()
            try:
                call(comm)
                expect(False, name, "passed without rank", SIZE - 1)
            except tw.PeerLostError as error:
                took, message = time.monotonic() - started, str(error)
                expect(TIMEOUT * 0.8 < took < TIMEOUT * 3 + 2, name, "took", took)
                expect(f"rank {SIZE - 1}" in message.split(":", 1)[1], name, "does not name the missing rank:", message)
                expect("ranks" not in message, name, "names more than the missing rank:", message)
                try:
                    comm.allreduce(x())
                    expect(False, name, "the communicator is used again")
                except tw.PeerLostError as error:
                    expect(str(error) == message, name, "another message:", error)
            except Exception as error:  # noqa: BLE001
                expect(False, name, "raised", repr(error))
        comm.close()
        WORLD.Barrier()


def late():
    """A rank that comes late, but within the timeout, is waited for; computing in between counts for nobody's patience."""
    comm = tw.Communicator(timeout=TIMEOUT)
    for step in range(3):
        if ODD:
            time.sleep(TIMEOUT * 0.6)
        expect(comm.allreduce(x(9)).tolist() == [SIZE] * 9, "late", step)
    request = comm.iallreduce(x(9))
    time.sleep(TIMEOUT * 1.5)  # all ranks compute for longer than the timeout before they look again
    expect(request.wait().tolist() == [SIZE] * 9, "computed in between")
    comm.close()


def raising():
    """The odd rank raises in the middle of a step: the others hear of it by their timeout, and every process ends."""
    comm = tw.Communicator(timeout=TIMEOUT)
    comm.allreduce(x())
    if ODD:
        raise ZeroDivisionError("in the middle of a step")
    try:
        comm.allreduce(x(), codec=lossy()[0])
        expect(False, "passed")
    except tw.PeerLostError as error:
        expect(f"rank {SIZE - 1}" in str(error).split(":", 1)[1], "does not name the missing rank:", error)
        report()
        raise


def leaving():
    """The odd rank returns early: like raising, but it ends well. The others get their error and end, too."""
    comm = tw.Communicator(timeout=TIMEOUT)
    comm.allreduce(x())
    if not ODD:
        try:
            comm.allreduce(x(100_000), codec=lossy()[0])
            expect(False, "passed")
        except tw.PeerLostError as error:
            expect(f"rank {SIZE - 1}" in str(error).split(":", 1)[1], "does not name the missing rank:", error)


def damaged():
    """With checksums a wire that was damaged on the way is a WireError on the rank that sees it, and the communicator is done for."""
    comm = tw.Communicator(timeout=TIMEOUT, checksum=True)
    send = comm.transport.send

    def damage(pending, buffer, begin, end, peer, tag, announce=False):
        if end - begin > 64:
            buffer[end - 9] ^= 1
        return send(pending, buffer, begin, end, peer, tag, announce)

    comm.transport.send = damage
    try:
        comm.allreduce(x(), codec=lossy()[0], schedule="one-shot")
        expect(False, "damage passed unnoticed")
    except (tw.WireError, tw.PeerLostError) as error:
        expect(isinstance(error, tw.WireError) and "checksum" in str(error), "raised", repr(error))
        try:
            comm.allreduce(x())
            expect(False, "used again")
        except tw.WireError as again:
            expect(str(again) == str(error), "another message", again)
    comm.close()
    WORLD.Barrier()


def report():
    for problem in problems:
        print("PROBLEM", problem, flush=True)
    if not problems:
        print("DONE", RANK, flush=True)


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]]()
    except ZeroDivisionError:
        raise
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        raise
    report()
