"""Where algorithms that are called exact can come to rest."""

import math

import numpy as np
import pytest

import focusfl as ff
from focusfl.simulation.divergence import RestWarning, tracker_norm

PAPER = ff.Focus(memory="last")
FULL, COINS = ff.participation.Full(), ff.participation.Bernoulli([0.9, 0.7, 0.5, 0.3])


def one_label_each(seed=0) -> ff.problems.Logistic:
    A = 1 + np.random.default_rng(seed).standard_normal((4, 20, 3))
    return ff.problems.Logistic(A, np.repeat([1.0, 1, -1, -1], 20).reshape(4, 20))


@pytest.mark.parametrize("engine", [ff.simulate, ff.loop])
def test_past_one_over_L_focus_rests_where_the_gradient_does_not_vanish(engine):
    problem = one_label_each()
    with pytest.warns(RestWarning) as told:
        run = engine(PAPER, problem, FULL, rounds=600, lr=1.43 / problem.L, local_steps=5)
    assert tracker_norm(run.server, 4) < 1e-13  # at rest, to rounding
    assert run.metrics["grad_norm"][-1] > 0.5 and run.metrics["distance"][-1] > 1
    words = [str(each.message) for each in told]
    assert any("lr * L = 1.43" in text for text in words)
    assert any("tracker is at rest" in text for text in words)


@pytest.mark.parametrize("who", [FULL, COINS])
@pytest.mark.parametrize(
    "algorithm, size",
    [
        (PAPER, 0.6),
        (ff.Focus(warm_start=True, memory="last"), 0.6),
        (ff.Focus(), 1.7),
        (ff.Scaffold(), 1.7),
        (ff.Scaffold(option=1), 0.6),
        (ff.Scaffnew(), 1.7),
        (ff.AmplifiedScaffold(), 1.7),
        (ff.FedDyn(), 1.7),
        (ff.FedLT(), 1.7),
        (ff.FedADMM(), 1.7),
        (ff.TAMUNA(), 1.7),
        (ff.AnchoredFocus(), 1.7),
        (ff.TFocus(), 0.2),
        (ff.TScaffold(), 0.9),
        (ff.TScaffold(option="1-up"), 0.9),
    ],
    ids=str,
)
def test_below_their_bound_exact_algorithms_rest_at_the_optimum(algorithm, size, who):
    for seed in range(3):
        problem = one_label_each(seed)
        assert size / problem.L < algorithm.max_exact_lr(problem.L, 5)
        run = ff.simulate(algorithm, problem, who, rounds=1280, lr=size / problem.L, local_steps=5)
        assert run.metrics["distance"][-1] < 1e-9


def test_at_exactly_one_over_L_memory_is_never_renewed():
    """The bound is sharp: a local step lands on the stored gradient from anywhere."""
    H, h = np.tile(2.0 * np.eye(2), (3, 1, 1)), np.arange(6.0).reshape(3, 2)
    problem = ff.problems.Quadratic(H, h)
    with pytest.warns(RestWarning):
        run = ff.loop(PAPER, problem, FULL, rounds=50, lr=0.5, local_steps=2)
    assert np.all(run.x == problem.x0) and np.all(run.server.y == 0)
    assert np.linalg.norm(problem.optimum) > 1


def test_one_local_step_needs_no_bound():
    for algorithm in (ff.Focus(), ff.Scaffold(), ff.MIFA(), ff.FedVARP()):
        assert algorithm.max_exact_lr(10.0, 1) == math.inf


def test_algorithms_with_a_bias_promise_nothing():
    for algorithm in (ff.MIFA(), ff.FedVARP(), ff.FedAvg(), ff.FedAU(), ff.LocalSGD()):
        assert algorithm.max_exact_lr(10.0, 5) == 0


def test_a_client_that_never_came_is_noticed_by_the_gradient():
    """y vanishes at the optimum of those who came."""
    problem = one_label_each()
    masks = np.tile([True, True, True, False], (800, 1))
    with pytest.warns(RestWarning, match="never taken part"):
        ff.simulate(
            ff.Focus(), problem, ff.participation.Replay(masks), rounds=800,
            lr=0.5 / problem.L, local_steps=2,
        )  # fmt: skip
