"""FOCUS that stores the mean of its local gradients, its default, not the last."""

import numpy as np
import pytest
from helpers import gap, quadratic, same, some_masks

import focusfl as ff
from focusfl.simulation.divergence import RestWarning
from focusfl.simulation.reference import states
from focusfl.simulation.spec import RunSpec
from focusfl.studies.summary import tracking_gap

MEAN = ff.Focus()
FULL, COINS = ff.participation.Full(), ff.participation.Bernoulli(0.4)
both = pytest.mark.parametrize("run", [ff.loop, ff.simulate])


@pytest.mark.parametrize("warm", [False, True])
def test_the_tracker_is_the_sum_of_all_memories_after_every_round(warm):
    who = ff.participation.Replay(some_masks())
    spec = RunSpec(ff.Focus(warm, "mean"), quadratic(), who, 40, [0.03], 3, np.ones(5), [0])
    for state, _ in states(spec.validated()):
        stored = np.sum([client.grad for client in state.clients], axis=0)
        assert gap(state.server.y, stored) < 1e-14


@both
def test_the_tracker_is_the_sum_of_weighted_memories(run):
    w = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 0.25])
    problem = ff.problems.Quadratic(quadratic().H, quadratic().h, weights=w)
    result = run(MEAN, problem, COINS, rounds=200, lr=0.01, local_steps=3)
    assert tracking_gap(result) < 1e-13


def test_a_memory_is_the_mean_of_the_local_gradients():
    problem, lr = quadratic(1), 0.1
    run = ff.loop(MEAN, problem, FULL, rounds=1, lr=lr, local_steps=3)
    z, grads, H, h = problem.x0, [], problem.H[0], problem.h[0]
    for _ in range(3):  # the first memory is 0
        grads.append(H @ z - h)
        z = z - lr * grads[-1]
    assert gap(run.clients.grad[0], np.mean(grads, axis=0)) < 1e-15
    assert gap(run.x, problem.x0 - lr * np.mean(grads, axis=0)) < 1e-15


@both
@pytest.mark.parametrize("warm", [False, True])
def test_with_one_local_step_it_is_focus_to_the_bit(run, warm):
    what = quadratic(), COINS
    ours, theirs = (
        run(ff.Focus(warm, memory), *what, rounds=60, lr=0.05) for memory in ("mean", "last")
    )
    assert same(ours.server, theirs.server) and same(ours.clients, theirs.clients)


def test_at_exactly_two_over_L_memory_is_never_renewed():
    """The bound is sharp: two steps lead back to where they began, from anywhere."""
    H, h = np.tile(2.0 * np.eye(2), (3, 1, 1)), np.arange(6.0).reshape(3, 2)
    problem = ff.problems.Quadratic(H, h)
    with pytest.warns(RestWarning):
        run = ff.loop(MEAN, problem, FULL, rounds=50, lr=1.0, local_steps=2)
    assert MEAN.max_exact_lr(2.0, 2) == 1.0
    assert np.all(run.x == problem.x0) and np.all(run.server.y == 0)
    assert np.linalg.norm(problem.optimum) > 1


def test_its_step_can_be_chosen():
    what = quadratic(), ff.participation.Uniform(2)
    choice = ff.theory.auto_lr(MEAN, *what, 4)
    assert choice.lr != ff.theory.auto_lr(ff.Focus(memory="last"), *what, 4).lr
    run = ff.simulate(MEAN, *what, rounds=600, lr="auto", local_steps=4)
    assert run.lr == choice.lr and run.metrics["distance"][-1] < 1e-10


def test_its_noise_is_that_of_a_mean():
    problem, steps, lr = quadratic(), 4, 2e-3
    told = {
        memory: ff.theory.predict(
            ff.Focus(memory=memory), problem, COINS, lr=lr, local_steps=steps, noise=0.5
        )
        for memory in ("last", "mean")
    }
    assert told["mean"].floor == pytest.approx(told["last"].floor / steps**0.5)
    assert told["mean"].rate == told["last"].rate and told["mean"].bias == 0
    noisy = ff.problems.Noisy(problem, 0.5)
    run = ff.simulate(MEAN, noisy, COINS, rounds=8000, lr=lr, local_steps=steps)
    found = np.sqrt(np.mean(run.metrics["distance"][2000:] ** 2))
    assert found == pytest.approx(told["mean"].floor, rel=0.15)
