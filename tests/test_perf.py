"""thinwire-perf, run as a user runs it."""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import thinwire as tw

BIN = Path(sys.executable).parent
PERF = [str(BIN / "thinwire-perf")] if (BIN / "thinwire-perf").exists() else [sys.executable, "-m", "thinwire.perf"]
COLUMNS = {
    "size", "count", "type", "redop", "root", "time", "time_min", "time_max", "algbw", "busbw", "codec", "schedule", "ratio", "wirebw",
    "error", "plain", "plain_min", "plain_max", "speedup",
}  # fmt: skip


def run(command):
    return subprocess.run(["timeout", "120", *command], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def perf(*arguments, ranks=None):
    """The command; without `ranks` it must find no MPI library."""
    if ranks:
        return run([str(BIN / "mpirun"), "-n", str(ranks), *PERF, *arguments])
    return run([*PERF, *arguments])


def rows(*arguments, ranks=None):
    done = perf(*arguments, "--json", ranks=ranks)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_allreduce_rows():
    options = ["-b", "4K", "-e", "64K", "-f", "16", "-n", "3", "--rounds", "5"]
    table = rows("allreduce", *options, "--codec", "raw;int8", "--codec", "int4:block=64", ranks=2)
    assert [(r["size"], r["codec"]) for r in table] == [(s, c) for s in (4096, 65536) for c in ("raw", "int8", "int4:block=64")]
    for r in table:
        assert set(r) == COLUMNS
        assert (r["count"], r["type"], r["redop"], r["root"]) == (r["size"] // 4, "float", "sum", -1)
        assert 0 < r["time_min"] <= r["time"] <= r["time_max"] and 0 < r["plain_min"] <= r["plain"] <= r["plain_max"]
        assert r["algbw"] == pytest.approx(r["size"] / r["time"] / 1e3)
        assert r["busbw"] == pytest.approx(r["algbw"])  # 2 (W - 1) / W
        assert r["wirebw"] == pytest.approx(r["busbw"] / r["ratio"])
        assert r["speedup"] == pytest.approx(r["plain"] / r["time"])
        assert r["schedule"] in tw.schedules()
    raw, int8, int4 = table[3:]
    assert raw["ratio"] == 1 and raw["error"] < 1e-6
    assert 3.8 < int8["ratio"] < 4 and 1e-4 < int8["error"] < 1.5 / 127
    assert 6.5 < int4["ratio"] < 8 and int8["error"] < int4["error"] < 1.5 / 7


@pytest.mark.parametrize("name, count, root, factor", [
    ("reduce_scatter", 1000, -1, 2 / 3), ("allgather", 1000, -1, 2 / 3), ("alltoall", 1000, -1, 2 / 3), ("alltoallv", 1000, -1, 5 / 6),
    ("broadcast", 3001, 2, 1), ("sendrecv", 3001, -1, 1),
])  # fmt: skip
def test_every_collective(name, count, root, factor):
    """Three ranks, a count that they do not divide, a type that MPI cannot add, and every codec."""
    arguments = ["-b", "6002", "-n", "1", "-w", "1", "--rounds", "1", "-d", "bfloat16", "-o", "avg", "--root", "2", "--codec", "all"]
    table = rows(name, *arguments, ranks=3)
    known = {codec: spec for spec, codec in tw.aliases().items()}
    assert {tw.codec(r["codec"]) for r in table} <= known.keys() | {cls() for cls in tw.codecs().values()}
    assert {"raw", "int8"} <= {r["codec"] for r in table}
    for r in table:
        assert (r["count"], r["root"], r["type"]) == (count, root, "bfloat16")
        assert r["redop"] == ("mean" if name == "reduce_scatter" else "none")
        assert r["busbw"] == pytest.approx(factor * r["algbw"])
        if tw.codec(r["codec"]).lossless:
            assert r["error"] <= (2**-8 if name == "reduce_scatter" else 0)


def test_real_arrays_and_feedback(tmp_path):
    """One row a rank, tiled: 1, -1 and 127 are on int8's levels, so nothing is lost."""
    np.save(tmp_path / "x.npy", np.array([[1, -1, 127], [127, 0, 1]], np.float32))
    input = ["-b", "12000", "-n", "2", "--rounds", "1", "--input", str(tmp_path / "x.npy")]
    (r,) = rows("allgather", *input, "--codec", "int8", ranks=2)
    assert r["error"] == 0
    (r,) = rows("allreduce", *input, "--codec", "int4:rounding=stochastic", "--feedback", "--schedule", "direct", ranks=2)
    assert 0 < r["error"] < 0.4 and r["schedule"] == "direct"
    assert perf("allreduce", "--input", str(tmp_path / "none.npy"), ranks=2).returncode == 2


def test_text_table():
    done = perf("allreduce", "-b", "1K", "-n", "2", "--codec", "int8", "-d", "half", ranks=2)
    assert done.returncode == 0 and not done.stderr
    lines = done.stdout.splitlines()
    head = next(line for line in lines if "busbw" in line and line.startswith("#"))
    assert head.split()[1:7] == ["size", "count", "type", "redop", "root", "time"]
    assert COLUMNS - set(head.split()) == {"time_min", "time_max", "plain_min", "plain_max"} and head.split()[-1] == "speedup"
    assert any("MPI cannot add half" in line for line in lines) and any("2 ranks" in line for line in lines)
    assert len([line for line in lines if not line.startswith("#")]) == 1
    assert lines[-1].startswith("# Avg bus bandwidth")


@pytest.mark.parametrize("arguments, says", [
    (["allreduce", "--codec", "int99"], "no codec 'int99'"),
    (["allreduce", "--codec", "int8:block=33"], "power of two from 32 to 4096"),
    (["allreduce", "-b", "x"], "a size is"),
    (["allreduce", "--op", "max", "--codec", "int8"], "needs a lossless codec"),
    (["allreduce", "--schedule", "nonsense"], "there are auto"),
    (["broadcast", "-r", "2"], "ranks 0 to 1"),
])  # fmt: skip
def test_wrong_arguments(arguments, says):
    """Exit status 2, and one rank says why."""
    done = perf(*arguments, ranks=2)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count(says) == 1, done.stderr


def test_without_mpi():
    assert "allreduce" in perf("--help").stdout
    assert "speedup" in perf("allreduce", "--help").stdout
    assert perf("codecs", "--codec", "int99").returncode == 2
    assert perf("codecs", "--codec", "auto").returncode == 2
    hidden = """if 1:
        import sys
        sys.modules["mpi4py.MPI"] = None
        sys.argv = "thinwire-perf codecs -b 64K".split()
        from thinwire.perf.__main__ import main
        main()
    """
    assert run([sys.executable, "-c", hidden]).returncode == 0


@pytest.mark.parametrize("datatype", ["float", "bfloat16"])
def test_codecs(datatype):
    table = {r["codec"]: r for r in rows("codecs", "-b", "256K", "-d", datatype)}
    taking = {codec for codec in [*tw.aliases().values(), *(cls() for cls in tw.codecs().values())]}
    assert {tw.codec(spec) for spec in table} <= taking
    for r in table.values():
        for speed in ("encode", "decode", "add", "read", "memcpy"):
            assert 0 < r[f"{speed}_min"] <= r[speed] <= r[f"{speed}_max"]
        assert r["enc/read"] == pytest.approx(r["encode"] / r["read"]) and r["passes"] > 0
        assert (r["kept"] is None) == (not tw.codec(r["codec"]).selects)
        assert 0 <= r["rms"] and 0 <= r["error"] < 4
    size = 4 if datatype == "float" else 2
    assert table["int8"]["ratio"] == pytest.approx(size / (1 + 4 / 256), rel=0.01) and table["int8"]["stoch"] > 0
    assert table["raw"]["ratio"] == 1 and table["raw"]["error"] == 0 and table["raw"]["stoch"] is None


def test_selections_of_a_law():
    table = rows("codecs", "-b", "1M", "--input", "laplace", "--codec", "topk:0.001;topk:k=100;sidco:0.01", "--rounds", "1")
    assert [r["codec"] for r in table] == ["topk:0.001", "topk:k=100", "sidco:0.01"]
    assert table[0]["kept"] == 262 / 2**18 and table[1]["kept"] == 100 / 2**18 and table[2]["kept"] == pytest.approx(0.01, rel=0.1)
    assert perf("codecs", "--input", "cauchy").returncode == 2


def tampered(statement):
    """An allreduce of two ranks that run a statement before each check."""
    program = f"""if 1:
        import sys
        from thinwire.perf import __main__, collectives
        check = collectives.Case.check
        def tampered(case, spec):
            {statement}
            return check(case, spec)
        collectives.Case.check = tampered
        sys.argv = "thinwire-perf allreduce -b 1K -n 1 --rounds 1".split()
        __main__.main()
    """
    return run([str(BIN / "mpirun"), "-n", "2", sys.executable, "-c", program])


@pytest.mark.parametrize("statement, says", [
    ("case.out[case.mpi.rank] += 1e-6", "ranks hold different results"),
    ("case.out[0] += 1e-3", "an error of"),
    ("case.out[0] = float('nan')", "an error of nan"),
])  # fmt: skip
def test_a_wrong_result_fails(statement, says):
    done = tampered(statement)
    assert done.returncode == 1 and done.stderr.count(says) == 1, done.stderr
    assert "Failed checks   : 1 FAILED" in done.stdout


def test_an_exception_on_one_rank_ends_all():
    done = tampered("case.mpi.rank and {}['only here']")
    assert done.returncode == 1 and "KeyError: 'only here'" in done.stderr
