"""Asynchronous runs: late replies of FOCUS are exact, in whatever order they come."""

import numpy as np
import pytest
from tests.helpers import quadratic

import focusfl as ff
from focusfl import theory
from focusfl.participation import Async, LatencyModel, Sync

SPREAD = LatencyModel(compute={"median": 1.0, "sigma": 1.0}, up=0.001, jitter=0.5)
RUN = {"rounds": 20_000, "lr": 0.01, "local_steps": 2, "eval_every": 5000}


def random_clock(seed):
    """Speeds that differ by up to a hundred, links, jitter, phones that leave."""
    rng = np.random.default_rng(seed)
    trace = rng.random((12, 6)) < 0.6
    trace[rng.integers(12, size=6), np.arange(6)] = True
    return LatencyModel(
        compute=10 ** rng.uniform(-1, 1, 6), latency=rng.random(6), up=rng.random(6),
        jitter=rng.uniform(0.1, 1), trace=trace * 1.0 if seed % 2 else None, grid=5.0,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("memory", ["last", "mean"])
def test_focus_is_exact_under_any_order_of_arrivals(seed, memory):
    problem, law = quadratic(), Async(random_clock(seed), replies=1 + seed % 3)
    result = ff.simulate(ff.Focus(memory=memory), problem, law, seed=seed, **RUN)
    assert result.metrics["distance"][-1] < 1e-10
    stored = np.sum(result.clients.inner.grad, 0)
    assert np.abs(result.server.y - stored).max() < 1e-10


def test_fedbuff_and_fedasync_are_not():
    problem = quadratic()
    for algorithm in (ff.FedBuff(3), ff.FedAsync()):
        result = ff.simulate(algorithm, problem, Async(random_clock(0)), **RUN)
        assert result.metrics["distance"][-1] > 1e-3


@pytest.mark.parametrize("law", [Async(SPREAD), Sync(SPREAD, 5, 3, deadline=4.0)])
@pytest.mark.parametrize(
    "algorithm",
    [ff.Focus(warm_start=True), ff.Scaffold(option=1), ff.FedAsync(), ff.FedBuff()],
)
def test_both_engines_agree_on_models_and_seconds(law, algorithm):
    how = {"rounds": 40, "lr": 0.01, "local_steps": 2, "seed": 3}
    what = algorithm, quadratic(), law
    fast, plain = ff.simulate(*what, **how), ff.loop(*what, **how)
    assert np.abs(fast.x - plain.x).max() < 1e-12
    for name in ("seconds", "lost", "bytes_up"):
        assert np.array_equal(fast.metrics[name], plain.metrics[name])
    assert fast.metrics["seconds"][1:].min() >= 0 < fast.metrics["seconds"].sum()


def test_one_who_comes_late_worked_on_the_model_it_left_with():
    """Written anew: x, y and each client's x and gradient, arrival by arrival."""
    problem, law = quadratic(), Async(SPREAD)
    result = ff.simulate(ff.Focus(), problem, law, rounds=60, lr=0.01)
    x, y = np.zeros(5), np.zeros(5)
    left, stored = np.zeros((6, 5)), np.zeros((6, 5))
    fitted = law.with_work(ff.Focus(), problem.x0, 1)
    for (i,) in ff.participation.schedule(fitted, 6, 60, seed=0):
        grad = problem.objective.grad(
            left[i], {name: a[i] for name, a in problem.data.items()}, None
        )
        y, stored[i] = y + grad - stored[i], grad
        x = x - 0.01 * y
        left[i] = x
    assert np.abs(result.x - x).max() < 1e-12


def test_messages_take_time_by_their_bytes():
    law = Sync(LatencyModel(up=1.0))  # Mbit/s; a model of 5 float64 is 40 bytes
    how = {"rounds": 3, "lr": 0.01}
    once, twice = (
        ff.simulate(algorithm, quadratic(), law, **how).metrics["seconds"][1]
        for algorithm in (ff.Focus(), ff.Scaffold(option=1))
    )
    assert once == pytest.approx(40 / 125_000) and twice == pytest.approx(2 * once)


def test_runs_side_by_side_have_the_seconds_of_their_seeds():
    law, how = Async(SPREAD), {"rounds": 20, "local_steps": 2}
    many = ff.sweep(ff.Focus(), quadratic(), law, lrs=[0.01], seed=[3, 4], **how)
    alone = [
        ff.simulate(ff.Focus(), quadratic(), law, lr=0.01, seed=seed, **how) for seed in (3, 4)
    ]
    for one, other in zip(many, alone, strict=True):
        assert np.array_equal(one.metrics["seconds"], other.metrics["seconds"])
    assert many[0].metrics["seconds"].sum() != many[1].metrics["seconds"].sum()


def test_theory_refuses_models_that_are_old():
    law = Async(SPREAD, work=[1, 0, 0])
    with pytest.raises(ValueError, match="newest model; under Async"):
        ff.simulate(ff.Focus(), quadratic(), law, rounds=2, lr="auto")
    with pytest.raises(ValueError, match="newest model; under Async"):
        theory.report(quadratic(), law, lr=0.01)
    assert (
        theory.predict(ff.Focus(), quadratic(), law, lr=0.01, local_steps=1) == theory.Prediction()
    )


def test_a_step_is_chosen_for_who_is_in_time():
    law = Sync(LatencyModel(compute=1.0), select=3)
    result = ff.simulate(ff.Focus(), quadratic(), law, rounds=400, lr="auto", eval_every=400)
    assert result.metrics["distance"][-1] < 1e-6


def test_what_cannot_count_later_is_refused():
    with pytest.raises(ValueError, match="does not support asynchronous"):
        ff.simulate(ff.Scaffold(), quadratic(), Async(SPREAD), rounds=2, lr=0.01)
    with pytest.raises(ValueError, match="left with already"):
        ff.Stale(ff.FedBuff())
