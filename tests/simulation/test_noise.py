"""Stochastic gradients: the same draws in both engines, and the noise floor."""

import numpy as np
import pytest
from helpers import ALL, gap, quadratic

import focusfl as ff
from focusfl import participation as who


@pytest.mark.parametrize("alg", ALL[:4], ids=repr)
def test_both_engines_meet_the_same_noise(alg):
    problem = ff.problems.Noisy(quadratic(), 0.5)
    slow, fast = (
        run(alg, problem, who.Uniform(3), rounds=20, lr=0.03, local_steps=2, seed=4)
        for run in (ff.loop, ff.simulate)
    )
    assert gap(slow.x, fast.x) < 1e-12
    quiet = ff.simulate(alg, quadratic(), who.Uniform(3), rounds=20, lr=0.03, local_steps=2, seed=4)
    assert gap(quiet.x, fast.x) > 1e-3


def test_two_algorithms_meet_the_same_noise():
    """One step from one point: the noise is that of the seed, not of the algorithm."""
    problem = ff.problems.Noisy(quadratic(), 0.5)
    focus, mifa = (
        ff.simulate(alg, problem, who.Full(), rounds=1, lr=lr)
        for alg, lr in [(ff.Focus(), 0.01), (ff.MIFA(), 0.06)]
    )
    assert gap(focus.x, mifa.x) < 1e-15


def test_the_tracker_stays_the_sum_of_stored_gradients_under_noise():
    problem = ff.problems.Noisy(quadratic(), 1.0)
    result = ff.simulate(
        ff.Focus(), problem, who.Bernoulli(0.3), rounds=500, lr=0.01, local_steps=3
    )
    assert np.abs(result.server.y - result.clients.grad.sum(0)).max() < 1e-11


@pytest.mark.parametrize(
    "p", [np.ones(8), np.array([0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9])], ids=str
)
def test_the_noise_floor_is_that_of_the_formula(p):
    """E|x - x*|^2 = (lr s^2 / 2) tr(H^-1) mean(2 / p - 1) for small lr.

    Two local steps: with one the formula is the same, with more it is not needed.
    The mean is over 160 times that the slowest mode takes to forget: 5 % off or so.
    """
    exact = quadratic(num_clients=8, dim=4, seed=2)
    lr, scale, rounds = 8e-4, 1.0, 30_000
    result = ff.simulate(
        ff.Focus(), ff.problems.Noisy(exact, scale), who.Bernoulli(p), rounds=rounds,
        lr=lr, x0=exact.optimum,
    )  # fmt: skip
    settled = result.metrics["distance"][rounds // 10 :] * np.linalg.norm(exact.optimum)
    trace = np.trace(np.linalg.inv(exact.mean[0]))
    predicted = lr * scale**2 / 2 * trace * np.mean(2 / p - 1)
    assert np.mean(settled**2) == pytest.approx(predicted, rel=0.15)
