"""What theory says of one run, beside the run."""

import numpy as np
import pytest

import focusfl as ff

PROBLEM = ff.problems.random_quadratic(num_clients=6, dim=5, L=2.0, seed=1)
COINS = ff.participation.Bernoulli(np.linspace(0.3, 0.9, 6))


def measured(algorithm, who, lr, rounds, local_steps=1, problem=PROBLEM):
    run = ff.simulate(algorithm, problem, who, rounds=rounds, lr=lr, local_steps=local_steps)
    return run.metrics["distance"], run


def test_the_rate_is_that_of_a_run_at_small_steps():
    told = ff.theory.predict(ff.Focus(), PROBLEM, COINS, lr=1e-3, local_steps=1)
    error, _ = measured(ff.Focus(), COINS, 1e-3, 3000)
    rate = (error[2500] / error[1500]) ** 1e-3
    assert 1 - rate == pytest.approx(1 - told.rate, rel=0.1)
    assert told.bias == 0 and told.floor is None
    bold = ff.theory.predict(ff.Focus(), PROBLEM, COINS, lr=0.1, local_steps=1)
    assert bold.rate is None, "no number where the formula does not hold"


@pytest.mark.parametrize(
    "algorithm", [ff.MIFA(), ff.FedVARP(), ff.FedAvg()], ids=lambda a: type(a).__name__
)
def test_the_bias_is_where_a_run_ends(algorithm):
    told = ff.theory.predict(algorithm, PROBLEM, ff.participation.Full(), lr=0.05, local_steps=4)
    error, _ = measured(algorithm, ff.participation.Full(), 0.05, 2000, 4)
    assert told.rate is None and told.bias > 1e-3
    assert error[-1] == pytest.approx(told.bias, rel=1e-6)


def test_the_floor_is_where_noise_keeps_a_run():
    told = ff.theory.predict(ff.Focus(), PROBLEM, COINS, lr=2e-3, local_steps=1, noise=0.1)
    noisy = ff.problems.Noisy(PROBLEM, 0.1)
    error, _ = measured(ff.Focus(), COINS, 2e-3, 40_000, problem=noisy)
    found = np.sqrt(np.mean(error[5_000:] ** 2))
    assert found == pytest.approx(told.floor, rel=0.2)


def test_what_is_not_known_is_not_told():
    logistic = ff.problems.robust(num_clients=4, dim=3)
    who = ff.participation.Full()
    told = ff.theory.predict(ff.FedAvg(), logistic, who, lr=1e-2, local_steps=2)
    assert told == (None, None, None)
    told = ff.theory.predict(ff.LocalSGD(), PROBLEM, who, lr=1e-2, local_steps=2)
    assert told == (None, None, None)
