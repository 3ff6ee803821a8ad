"""What methods of other papers claim, one law each, and where they end."""

import numpy as np
import pytest
from helpers import gap, quadratic, some_masks

import focusfl as ff
from focusfl import participation as who

SOME = who.Replay(some_masks())
COINS = who.Bernoulli([0.2, 0.9, 0.4, 0.7, 0.3, 0.6])
EVERY = [who.Full(), who.Uniform(2), COINS, who.Cyclic(2)]


def run(alg, law=SOME, **changes):
    options = {"rounds": 40, "lr": 0.05, "local_steps": 4, "record": "model"}
    return ff.simulate(
        alg, quadratic(), law, **{**options, "x0": np.linspace(-1, 1, 5), **changes}
    )


def falling(index):
    """A step that is another one in every round."""
    return 0.05 / (1 + index)


def own_gradients(problem):
    """Of every client at the optimum; they are far from 0."""
    found = np.einsum("nij,j->ni", problem.H, problem.optimum) - problem.h
    assert np.abs(found).max() > 0.1
    return found


# FedDyn.


@pytest.mark.parametrize("lr", [0.05, falling])
@pytest.mark.parametrize("alg", [ff.FedDyn(), ff.FedDyn(2.0)], ids=repr)
def test_feddyn_keeps_h_at_the_mean_of_the_corrections(alg, lr):
    """Whatever alpha is in which round."""
    result = run(alg, lr=lr)
    assert np.abs(result.clients.g).max() > 0.1
    assert gap(result.server.h, result.clients.g.mean(0)) < 1e-13


def test_many_local_steps_are_the_exact_minimisation_of_feddyns_paper():
    """On quadratics that has a closed form; 400 steps contract to rounding."""
    problem, masks, alpha = quadratic(), some_masks(rounds=30), 2.0
    x, g, h, expected = np.zeros(5), np.zeros((6, 5)), np.zeros(5), []
    for mask in masks:
        ids = np.flatnonzero(mask)
        if len(ids):
            left = problem.H[ids] + alpha * np.eye(5)
            right = problem.h[ids] + g[ids] + alpha * x
            z = np.linalg.solve(left, right[..., None])[..., 0]
            g[ids] -= alpha * (z - x)
            h = h - alpha / 6 * (z - x).sum(0)
            x = z.mean(0) - h / alpha
        expected.append(x)
    law = who.Replay(masks)
    result = run(ff.FedDyn(alpha), law, rounds=30, lr=0.1, local_steps=400, x0=None)
    assert gap(result.trajectory[1:], np.array(expected)) < 1e-12


# Where they end.

EXACT = [ff.FedDyn(), ff.FedDyn(3.0)]
LEARNT = {ff.FedDyn: lambda clients: clients.g}


@pytest.mark.parametrize("law", EVERY, ids=lambda law: type(law).__name__)
@pytest.mark.parametrize("alg", EXACT, ids=repr)
def test_exact_ones_end_at_the_optimum_whoever_takes_part(alg, law):
    """Each client has learnt its gradient there, too."""
    problem = quadratic()
    assert 0.05 < alg.exact_below(problem.L, 3)
    result = run(alg, law, rounds=3000, local_steps=3, record="metrics")
    assert result.metrics["distance"][-1] < 1e-12
    assert gap(LEARNT[type(alg)](result.clients), own_gradients(problem)) < 1e-10
