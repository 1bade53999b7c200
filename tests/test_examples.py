"""The examples run, on 2 ranks, and do what they say."""
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_every_example_is_run():
    assert {p.name for p in EXAMPLES.glob("*.py")} == {"data_parallel.py", "embedding.py"}


@pytest.mark.parametrize("codec, least, ratio", [("topk:0.01|int8", 0.93, 40), ("int4", 0.93, 7), ("raw", 0.93, 1)])
def test_data_parallel(kit, codec, least, ratio):
    done = kit.mpirun(2, EXAMPLES / "data_parallel.py", codec)
    found = re.search(r"accuracy (0\.\d+).*\((\d+\.\d) x\)", done.stdout)
    assert done.returncode == 0 and found, done.stdout
    assert float(found[1]) >= least and float(found[2]) >= ratio


def test_embedding(kit):
    done = kit.mpirun(2, EXAMPLES / "embedding.py")
    assert done.returncode == 0 and done.stdout.count("rows changed") == 5, done.stdout
