"""Training on compressed gradients reaches what training on plain ones does: scikit-learn's digits, a small network, 4 ranks.

Test accuracies after 150 steps, seeds 0 to 5, when the thresholds were set:

    raw                      0.9550 0.9600 0.9525 0.9500 0.9550 0.9575    mean 0.9550
    int8                     0.9550 0.9600 0.9525 0.9500 0.9550 0.9575    mean 0.9550
    int4 with feedback       0.9550 0.9600 0.9525 0.9550 0.9550 0.9575    mean 0.9558
    sign with feedback       0.9525 0.9600 0.9500 0.9525 0.9575 0.9575    mean 0.9550
    sign without feedback    0.9300 0.9325 0.9400 0.9450 0.9325 0.9175    mean 0.9329

So over the three seeds that run here sign without feedback lacks 0.020, and any three of the six lack 0.013 or more; the test asks
for 0.008. One of 400 test images is 0.0025. At rates 0.7 and 1.0, and after 100 and 300 steps, the order was the same.

With momentum 0.9, a tenth of the rate and 300 steps, seeds 0 to 3:

    raw, in the optimizer                 0.9600 0.9650 0.9575 0.9575                  mean 0.9600
    1 %, momentum correction              0.9575 0.9625 0.9575 0.9525                  mean 0.9575
    1 % int8, momentum correction         0.9525 0.9625 0.9500 0.9550                  mean 0.9550
    1 %, feedback alone                   0.8950 0.9025 0.8900 0.9175                  mean 0.9013
"""
import json

import pytest

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def accuracy(kit):
    done = kit.mpirun(4, "training.py", 0, 1, 2, seconds=150)
    line = next((line for line in done.stdout.splitlines() if line.startswith("TRAINING ")), None)
    assert line and done.returncode == 0, done.stdout[-4000:]
    return {name: sum(row) / len(row) for name, row in json.loads(line[9:]).items()}


@pytest.mark.parametrize("name", ["int8", "int4 with feedback", "sign with feedback"])
def test_compressed_gradients_train_as_well(accuracy, name):
    assert accuracy["raw"] > 0.94
    assert accuracy[name] >= accuracy["raw"] - 0.01


def test_feedback_matters(accuracy):
    assert accuracy["sign without feedback"] <= accuracy["sign with feedback"] - 0.008


@pytest.mark.parametrize("name", ["1 % with momentum correction", "1 % int8 with momentum correction"])
def test_one_percent_of_the_gradient_trains_within_one_percent(accuracy, name):
    assert accuracy["raw with momentum"] > 0.95
    assert accuracy[name] >= accuracy["raw with momentum"] - 0.01


def test_momentum_correction_matters(accuracy):
    assert accuracy["1 % with feedback"] <= accuracy["1 % with momentum correction"] - 0.03
