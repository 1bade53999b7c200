"""Gradients of an embedding table: a few rows a rank, added up as rows, without the table ever being sent.

    mpirun -n 4 python -m mpi4py examples/embedding.py
"""
import numpy as np

import thinwire as tw

comm = tw.Communicator()
table = np.zeros((100_000, 64), np.float32)
rng = np.random.default_rng(comm.rank)

for step in range(5):
    ids = rng.zipf(1.2, 512) % len(table)  # what this rank's batch looked up; popular ids come more than once, and on several ranks
    gradient = tw.RowSparse(ids, rng.standard_normal((len(ids), table.shape[1])).astype(np.float32), table.shape)
    total = comm.allreduce(gradient, codec="nonzero|fp16", op="mean", seed=step)
    table[total.rows] -= 0.1 * total.values
    if comm.rank == 0:
        print(f"step {step}: {len(total.rows)} rows changed; {comm.last.wire_bytes:,} bytes sent for a table of {table.nbytes:,}, by {comm.last.schedule}")

same = comm.allgather(np.array([table.sum()]))
assert (same == same[0]).all(), "replicas drifted"
