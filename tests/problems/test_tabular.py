"""Exactness on real data: a9a split by label, four hospitals."""

import os

import numpy as np
import pytest

import focusfl as ff
from focusfl import participation as who
from focusfl.problems.tabular import heart_disease, libsvm

real_data = pytest.mark.skipif(
    "FOCUSFL_DATA" not in os.environ, reason="FOCUSFL_DATA names no folder of data sets"
)


def ends(problem, law, lr, rounds, local_steps=5):
    return [
        np.median(
            ff.simulate(
                alg, problem, law, rounds=rounds, lr=step, local_steps=local_steps
            ).metrics["distance"][-50:]
        )
        for alg, step in [
            (ff.Focus(), lr[0]),
            (ff.Scaffold(), lr[1]),
            (ff.FedAvg(), lr[1]),
        ]
    ]


@real_data
def test_on_a9a_split_by_label_exact_methods_are_exact():
    problem = libsvm(rows=3200, penalty=0.05)
    assert problem.A.shape == (32, 100, 123)
    assert np.all(np.abs(problem.b.sum(1)[[0, -1]]) == 100)  # one label each
    p = np.random.default_rng(0).permutation(np.geomspace(0.05, 0.9, 32))
    focus, scaffold, fedavg = ends(problem, who.Bernoulli(p), (0.015, 0.2), 2000)
    assert focus < 1e-10 and scaffold < 1e-10 and fedavg > 0.05


@real_data
def test_fedavg_forgets_the_hospital_that_is_rarely_online():
    problem = heart_disease(penalty=0.05)
    assert problem.num_clients == 4
    law = who.Bernoulli([0.9, 0.9, 0.9, 0.05])
    focus, scaffold, fedavg = ends(problem, law, (0.05, 0.1), 4000)
    assert focus < 1e-10 and scaffold < 1e-10 and fedavg > 0.05


@real_data
def test_splits_of_a_table_are_named(as_a_user):
    with pytest.raises(ValueError, match="split must be one of"):
        libsvm(split="label")
    with pytest.raises(ValueError, match="rows must lie between"):
        libsvm(rows=3)


def test_a_missing_data_set_says_what_where_and_how(tmp_path):
    with pytest.raises(ValueError, match="libsvm_binary.npz"):
        libsvm(data_dir=str(tmp_path))
