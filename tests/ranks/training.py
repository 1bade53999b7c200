"""A small network on scikit-learn's digits, its gradients averaged over the ranks by several codecs.

`mpirun -n 4 python -m mpi4py tests/ranks/training.py SEED ...`, run by test_training.py. Rank 0 prints a line of JSON:
{configuration: [test accuracy of each seed]}.
"""
import json
import sys

import numpy as np
from sklearn.datasets import load_digits

import thinwire as tw

HIDDEN, BATCH, MOMENTUM = 32, 32, 0.9
PLAIN, HEAVY = dict(rate=0.5, steps=150), dict(rate=0.05, steps=300)  # without and with momentum, whose steps are ten times as long
# what a codec does to the gradients: the codec, an ErrorFeedback's options or None, and the optimizer
CONFIGURATIONS = {
    "raw": ("raw", None, PLAIN),
    "int8": ("int8", None, PLAIN),
    "int4 with feedback": ("int4", {}, PLAIN),
    "sign with feedback": ("sign:block=4096", {}, PLAIN),
    "sign without feedback": ("sign:block=4096", None, PLAIN),
    "raw with momentum": ("raw", None, dict(HEAVY, momentum=MOMENTUM)),
    "1 % with momentum correction": ("topk:0.01", dict(momentum=MOMENTUM), HEAVY),
    "1 % int8 with momentum correction": ("topk:0.01|int8", dict(momentum=MOMENTUM), HEAVY),
    "1 % with feedback": ("topk:0.01", {}, HEAVY),
}

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
order = np.random.RandomState(0).permutation(len(images))
TEST, TRAIN = order[:400], order[400:]


def forward(w, x):
    w1, b1, w2, b2 = parts(w)
    hidden = np.maximum(x @ w1 + b1, 0)
    scores = hidden @ w2 + b2
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores)
    return hidden, p / p.sum(axis=1, keepdims=True)


def parts(w):
    shapes = (64, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,)
    at, out = 0, []
    for shape in shapes:
        size = int(np.prod(shape))
        out.append(w[at : at + size].reshape(shape))
        at += size
    return out


def gradient(w, x, y):
    hidden, p = forward(w, x)
    p[np.arange(len(y)), y] -= 1
    p /= len(y)
    back = (p @ parts(w)[2].T) * (hidden > 0)
    return np.concatenate([(x.T @ back).ravel(), back.sum(axis=0), (hidden.T @ p).ravel(), p.sum(axis=0)])


def train(comm, seed, codec, feedback, optimizer):
    """Test accuracy after some steps of SGD; every rank draws its own batches and holds the same weights."""
    start = np.random.RandomState(seed)
    w = np.concatenate([start.randn(64 * HIDDEN) / 8, np.zeros(HIDDEN), start.randn(HIDDEN * 10) / HIDDEN**0.5, np.zeros(10)]).astype(np.float32)
    batches = np.random.RandomState(1000 * seed + comm.rank)
    mine = TRAIN[comm.rank :: comm.size]
    feedback = None if feedback is None else tw.ErrorFeedback(**feedback)
    velocity = np.zeros_like(w)
    for step in range(optimizer["steps"]):
        batch = mine[batches.randint(0, len(mine), BATCH)]
        g = gradient(w, images[batch], labels[batch])
        velocity *= optimizer.get("momentum", 0.0)
        velocity += comm.allreduce(g, op="mean", codec=codec, seed=step, feedback=feedback, key="w")
        w -= np.float32(optimizer["rate"]) * velocity
    return float((forward(w, images[TEST])[1].argmax(axis=1) == labels[TEST]).mean())


if __name__ == "__main__":
    with tw.Communicator() as comm:
        results = {name: [train(comm, int(seed), *how) for seed in sys.argv[1:]] for name, how in CONFIGURATIONS.items()}
        same = comm.allgather(np.array([v for row in results.values() for v in row])).reshape(comm.size, -1)
        assert (same == same[0]).all(), "replicas drifted apart"
        if comm.rank == 0:
            print("TRAINING " + json.dumps(results), flush=True)
