"""Exactness on real data: a9a split by label, four hospitals."""

import numpy as np
import pytest

import focusfl as ff
from focusfl import participation as who
from focusfl.problems.tabular import heart_disease, libsvm, tcga_brca

real_data = pytest.mark.needs("data")


def ends(problem, law, lr, rounds, local_steps=5):
    return [
        np.median(
            ff.simulate(alg, problem, law, rounds=rounds, lr=step, local_steps=local_steps).metrics[
                "distance"
            ][-50:]
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
def test_splits_of_a_table_are_named():
    with pytest.raises(ValueError, match="split must be one of"):
        libsvm(split="label")
    with pytest.raises(ValueError, match="rows must lie between"):
        libsvm(rows=3)


@real_data
def test_patients_are_for_training_or_for_tests():
    parts = [heart_disease(missing="mean", part=part) for part in ("train", "test")]
    train, test = ((problem.b != 0).sum(1) for problem in parts)
    assert (train + test).tolist() == [303, 294, 123, 200]
    assert test.tolist() == [76, 73, 31, 50]  # a quarter of the ill and of the well
    other = heart_disease(missing="mean", part="train", seed=1)
    assert not np.array_equal(parts[0].b, other.b)
    # Standardised without a look at the tests.
    rows = parts[0].A[parts[0].b != 0][:, :-1]
    assert np.allclose(rows.mean(0), 0, atol=1e-12)
    with pytest.raises(ValueError, match="part must be one of all, train, test"):
        heart_disease(part="tests")


@real_data
def test_survival_in_six_regions_has_an_optimum_and_focus_finds_it():
    problem = tcga_brca()
    assert problem.num_clients == 6 and problem.event.sum() == 151
    found = problem.objective.evaluate(problem.optimum, problem.eval_data)
    assert found["grad_norm"] < 1e-14
    law = who.Bernoulli([0.9, 0.9, 0.05, 0.9, 0.9, 0.9])
    focus, scaffold, fedavg = ends(problem, law, (0.02, 0.02), 2000)
    assert focus < 1e-10 and scaffold < 1e-10 and fedavg > 0.05


def test_a_missing_data_set_says_what_where_and_how(tmp_path):
    with pytest.raises(ValueError, match="libsvm_binary.npz"):
        libsvm(data_dir=str(tmp_path))


@real_data
def test_the_split_that_an_error_advises_is_one_that_can_be_asked_for():
    with pytest.raises(ValueError, match="Use a larger alpha, dirichlet_balanced"):
        libsvm("mushrooms", num_clients=500, split="dirichlet", alpha=1e-3)
    problem = libsvm("mushrooms", num_clients=500, split="dirichlet_balanced")
    assert problem.num_clients == 500 and np.ptp(problem.mask.sum(1)) <= 1
