"""Data-parallel training of a small classifier in numpy: each rank has its own batches, gradients are averaged in few bytes.

    mpirun -n 4 python -m mpi4py examples/data_parallel.py                      # 1 % of the gradient, 8 bits a value
    mpirun -n 4 python -m mpi4py examples/data_parallel.py raw                  # everything
    mpirun -n 4 python -m mpi4py examples/data_parallel.py int4
"""
import sys

import numpy as np

import thinwire as tw

codec = tw.codec(sys.argv[1] if len(sys.argv) > 1 else "topk:0.01|int8")
comm = tw.Communicator()
feedback = tw.ErrorFeedback()  # what is not sent in a step is sent later

teacher = np.random.default_rng(0).standard_normal((32, 4))
rng = np.random.default_rng(1 + comm.rank)


def batch(n):
    x = rng.standard_normal((n, 32)).astype(np.float32)
    return x, (x @ teacher).argmax(axis=1)


start = np.random.default_rng(7)
w1, w2 = (start.standard_normal(shape).astype(np.float32) * 0.1 for shape in ((32, 64), (64, 4)))
sent = raw = 0
for step in range(400):
    x, labels = batch(64)
    hidden = np.maximum(x @ w1, 0)
    scores = np.exp((logits := hidden @ w2) - logits.max(axis=1, keepdims=True))
    error = scores / scores.sum(axis=1, keepdims=True)
    error[np.arange(len(x)), labels] -= 1
    error /= len(x)
    gradients = {"w1": x.T @ (error @ w2.T * (hidden > 0)), "w2": hidden.T @ error}
    for name, weight in (("w1", w1), ("w2", w2)):
        weight -= 0.5 * comm.allreduce(gradients[name], codec=codec, op="mean", feedback=feedback, key=name, seed=step)
        sent, raw = sent + comm.last.wire_bytes, raw + comm.last.raw_bytes

x, labels = batch(2000)
right = (np.maximum(x @ w1, 0) @ w2).argmax(axis=1) == labels
accuracy = comm.allreduce(np.array([right.mean()]), op="mean")[0]
if comm.rank == 0:
    print(f"{codec}: accuracy {accuracy:.3f}; {sent:,} bytes sent of {raw:,} ({raw / max(sent, 1):.1f} x)")
sums = comm.allgather(np.array([w1.sum()]))
assert (sums == sums[0]).all(), "replicas drifted"
