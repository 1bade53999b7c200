"""The laws of docs/design.md for collectives: tests/ranks/laws.py on 1 to 5 ranks, one launch a world."""
import functools
import json
from pathlib import Path

import numpy as np
import pytest

from thinwire.collectives.hashed import Shuffle

EVERY = "allreduce others sparse sparse_arrays sparse_bytes sparse_edges exact_sums operations dtypes groups two_communicators nonblocking module"
MORE = "large layouts torch_tensors seeds feedback checkpoint nonfinite counters arguments"
SECTIONS = {
    1: f"{EVERY} {MORE} huge",
    2: f"{EVERY} {MORE} memory",
    3: f"{EVERY} {MORE}",
    4: f"{EVERY} arguments",
    5: "allreduce others sparse sparse_bytes sparse_edges exact_sums groups nonblocking",
}


def test_a_shuffle_is_a_bijection_that_evens_out_loads():
    """Real embedding gradients: whole rows, hot rows shared by the ranks."""
    rows = np.load(Path(__file__).parent / "data" / "embedding_rows.npz")
    for n in (1, 2, 3, 5, 1000, 16384 * 32):
        shuffle = Shuffle(n)
        positions = np.arange(shuffle.span, dtype=np.uint64)
        keys = shuffle.keys(positions)
        assert n <= shuffle.span < max(2 * n, 3) and (shuffle.positions(keys) == positions).all() and (np.sort(keys) == positions).all()
    for size in (4, 8):
        load = np.zeros(size)
        for rank in range(size):
            positions = (rows[f"rank{rank % 4}"].astype(np.uint64)[:, None] * 32 + np.arange(32, dtype=np.uint64)).ravel()
            load += np.bincount((shuffle.keys(positions) * size // shuffle.span).astype(int), minlength=size)
        assert load.max() <= 1.1 * load.mean()


@pytest.fixture(scope="module")
def laws(kit):
    """What a world's launch found: ([number of failures, the first of them] by section, the process). One launch a world, when first asked for."""

    @functools.cache
    def run(size):
        codecs = dict.fromkeys([*kit.defaults(), *(kit.variants(cls)[-1] for cls in kit.tw.codecs().values())])
        done = kit.mpirun(size, "laws.py", json.dumps([codec.spec for codec in codecs]), SECTIONS[size].replace(" ", ","), seconds=240)
        line = next((line for line in done.stdout.splitlines() if line.startswith("LAWS ")), None)
        found = json.loads(line[5:]) if line else {"failures": {}, "seconds": {}}
        print(f"{size} ranks:", found["seconds"])
        return found["failures"], done

    return run


@pytest.mark.parametrize("size, section", [(size, section) for size, names in SECTIONS.items() for section in names.split()])
def test_laws(laws, size, section):
    found, done = laws(size)
    assert section in found, f"the launch ended with {done.returncode}:\n{done.stdout[-4000:]}"
    count, first = found[section]
    assert count == 0, f"{count} failures:\n" + "\n".join(first)


@pytest.mark.parametrize("size", SECTIONS)
def test_launch_ends_well_and_says_nothing(laws, size):
    _, done = laws(size)
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout[-4000:]}"
    noise = [line for line in done.stdout.splitlines() if line and not line.startswith("LAWS ")]
    assert not noise, "\n".join(noise[:40])
