"""Law 9: ranks that disagree are told so, ranks that do not come are named, nothing hangs. Scenarios are in tests/ranks/failures.py."""
import subprocess
import sys
import time

import pytest


def run(kit, size, scenario, seconds=60, **options):
    started = time.monotonic()
    done = kit.mpirun(size, "failures.py", scenario, seconds=seconds, **options)
    assert done.returncode not in (124, 137), f"{scenario} hung on {size} ranks for {time.monotonic() - started:.0f} s:\n{done.stdout[-4000:]}"
    problems = [line for line in done.stdout.splitlines() if "PROBLEM" in line]
    assert not problems, "\n".join(problems[:20])
    return done, done.stdout.count("DONE")


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("scenario", ["mismatch", "late", "damaged"])
def test_ranks_that_disagree(kit, size, scenario):
    done, finished = run(kit, size, scenario)
    assert done.returncode == 0 and finished == size, done.stdout[-4000:]


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_that_do_not_come_are_named(kit, size):
    done, finished = run(kit, size, "lost", seconds=100)
    assert done.returncode == 0 and finished == size, done.stdout[-4000:]


@pytest.mark.parametrize("abort", [True, False], ids=["mpi4py", "plain python"])
def test_a_rank_that_raises_leaves_nobody_waiting(kit, abort):
    """Under `-m mpi4py` the launch is aborted at once; without it, the others get a PeerLostError and all end by themselves."""
    done, finished = run(kit, 3, "raising", seconds=40, abort=abort)
    assert done.returncode != 0 and "ZeroDivisionError" in done.stdout
    assert abort or finished == 2 and done.stdout.count("PeerLostError: rank") >= 2, done.stdout[-4000:]


def test_a_rank_that_leaves_early_leaves_nobody_waiting(kit):
    done, finished = run(kit, 3, "leaving", seconds=40)
    assert finished == 3, done.stdout[-4000:]


WITHOUT_MPI = """
import warnings
import numpy as np
import thinwire as tw
x = np.ones(1000, np.float32)
for name, cls in tw.codecs().items():
    assert tw.decode(tw.encode(x, cls())).size == 1000, name
assert tw.ErrorFeedback().state_dict() == {} and "allreduce" in dir(tw)
for call in (lambda: tw.allreduce(x), lambda: tw.Communicator(), lambda: tw.shard(10, 2, 0)):
    try:
        call()
    except RuntimeError as error:
        message = str(error)
        assert "pip install" in message and "mpich" in message and "\\n" not in message and len(message) < 400, message
        assert error.__cause__ is None and error.__suppress_context__
    else:
        raise AssertionError("there is an MPI")
print("codecs work")
"""


@pytest.mark.parametrize("how", ["no library", "no mpi4py"])
def test_without_mpi_codecs_work_and_collectives_say_what_to_install(kit, how, tmp_path):
    environment = {k: v for k, v in kit.os.environ.items() if not k.startswith(("MPI", "PMI", "OMPI"))}
    if how == "no library":
        environment["MPI4PY_LIBMPI"] = "/nonexistent/libmpi.so"
    else:
        (tmp_path / "mpi4py").mkdir()
        (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('no mpi4py here')\n")
        environment["PYTHONPATH"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", WITHOUT_MPI], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "codecs work\n", done.stdout + done.stderr


def test_one_process_needs_no_mpirun(kit):
    """`python script.py` is a world of one."""
    code = "import numpy as np, thinwire as tw; x = np.arange(5.0); y = tw.allreduce(x); assert (y == x).all(); print(tw.world().size)"
    done = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stdout + done.stderr
