"""How a run ends: its last round, enough of them, or a stop that was asked for."""

import itertools
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import Stopped, bits, loop, quadratic, simulate, some_masks, stop_after, sweep, walked

import focusfl as ff
from focusfl.core.result import COSTS
from focusfl.participation import Bernoulli, Full, Replay
from focusfl.simulation import checkpoint

both = pytest.mark.parametrize("run", [loop, simulate])
HOW = {"lr": 0.02, "local_steps": 2}


def every_round(problem, who, rounds, **how):
    return simulate(ff.Focus(), problem, who, rounds=rounds, **HOW, **how)


@both
@pytest.mark.parametrize("every", [1, 5, 7, 40, 41, 10**12])
def test_the_last_round_is_evaluated_and_others_are_fresh_or_nan(run, every):
    who = Replay(some_masks(rounds=40))
    whole = every_round(quadratic(), who, 40)
    result = run(ff.Focus(), quadratic(), who, rounds=40, eval_every=every, **HOW)
    due = [done for done in range(41) if done % every == 0 or done == 40]
    assert result.evaluated.tolist() == due
    for name, curve in result.metrics.items():
        expected = whole.metrics[name].astype(float)
        if name not in COSTS:
            expected[np.setdiff1d(np.arange(41), due)] = np.nan
        np.testing.assert_allclose(curve, expected, rtol=1e-9)  # last bits of sums
    assert every == 1 or np.isnan(result.metrics["loss"][1])


def test_runs_side_by_side_are_evaluated_after_the_last_round_too():
    runs = sweep(
        ff.Focus(), quadratic(), Bernoulli(0.4), lrs=[0.01, 0.02], seed=[0, 1],
        rounds=23, eval_every=10,
    )  # fmt: skip
    for run in runs:
        assert run.evaluated.tolist() == [0, 10, 20, 23]
        error = np.linalg.norm(run.x - quadratic().optimum)
        unit = np.linalg.norm(quadratic().optimum)
        assert run.metrics["distance"][-1] == pytest.approx(error / unit)


@both
def test_a_run_that_was_told_to_stop_is_evaluated_where_it_stopped(run):
    def progress(done, metrics):
        assert np.isfinite(metrics["distance"])
        return done >= 300

    result = run(
        ff.Focus(), quadratic(), Full(), rounds=3000, eval_every=1000, callbacks=progress,
        **HOW,
    )  # fmt: skip
    end = len(result.metrics["up"]) - 1
    assert 300 <= end < 1000 and result.evaluated.tolist() == [0, end]
    whole = every_round(quadratic(), Full(), end)
    assert result.metrics["distance"][-1] == pytest.approx(whole.metrics["distance"][-1], rel=1e-6)


@both
def test_a_run_that_diverges_between_evaluations_is_evaluated_where_it_ends(run):
    result = run(
        ff.FedAvg(),
        quadratic(),
        Full(),
        rounds=4000,
        lr=5.0,
        eval_every=3000,
        on_divergence="ignore",
    )
    end = result.diverged_at
    assert result.evaluated.tolist() == [0, end] and len(result.metrics["up"]) == end + 1


@both
def test_a_run_that_blows_up_after_its_last_evaluation_has_diverged(run):
    """Finite to the end, but 1e8 times as far away as it began."""
    how = {"lr": 5.0, "on_divergence": "ignore"}
    broken = loop(ff.FedAvg(), quadratic(), Full(), rounds=400, **how).diverged_at
    result = run(ff.FedAvg(), quadratic(), Full(), rounds=broken + 2, eval_every=10**6, **how)
    assert result.diverged_at == broken + 1


@pytest.mark.parametrize("case", [{}, {"record_models": True}, {"client_state": "disk"}])
def test_a_run_stopped_and_resumed_has_the_bits_of_one_that_was_not(tmp_path, case):
    how = {"rounds": 1030, "eval_every": 1000, "lr": 0.02, **case}
    run = (ff.Focus(), walked(), Bernoulli(0.3))
    whole = simulate(*run, **how)
    how |= {"checkpoint": tmp_path, "checkpoint_every": 0}
    stopped = simulate(*run, **how, callbacks=lambda done, _: done >= 200)
    end = len(stopped.metrics["up"]) - 1
    assert 200 <= end < 1000 and stopped.evaluated.tolist() == [0, end]
    with pytest.raises(Stopped):
        simulate(*run, **how, callbacks=stop_after(end + 1))
    resumed = simulate(*run, **how)
    assert resumed.evaluated.tolist() == [0, 1000, 1030]
    if case.get("client_state") == "disk":  # rows that are read when asked for
        assert np.array_equal(resumed.x["w"], whole.x["w"])
    else:
        assert bits(resumed) == bits(whole)


@both
@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("metric", ["tolerance", "distance", "grad_norm", "loss"])
def test_a_run_ends_at_the_evaluation_that_reaches_its_target(run, every, metric):
    problem, who = quadratic(), Bernoulli(0.6)
    name = "distance" if metric == "tolerance" else metric
    whole = every_round(problem, who, 900, eval_every=every).metrics[name]
    target = float(whole[35]) * (1 + 1e-9)  # the last bits of a sum may differ
    stop = ff.Stop(tolerance=target) if metric == "tolerance" else None
    stop = stop or ff.Stop(tolerance=1e-9, below={metric: target})
    first = int(np.flatnonzero(whole <= target)[0])
    result = run(ff.Focus(), problem, who, rounds=900, eval_every=every, callbacks=stop, **HOW)
    assert len(result.metrics["up"]) == first + 1 and result.diverged_at is None
    assert result.metrics[name][-1] <= target
    shorter = every_round(problem, who, first)
    assert np.abs(result.x - shorter.x).max() < 1e-12  # engines agree to this
    assert np.abs(result.clients.grad - shorter.clients.grad).max() < 1e-11


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("stop", [ff.Stop(tolerance=1e-3), ff.Stop(vectors=90)], ids=str)
@pytest.mark.parametrize("algorithm", [ff.Focus(warm_start=True), ff.FedAU()], ids=repr)
def test_runs_side_by_side_each_end_where_they_end_alone(algorithm, stop, every):
    problem, who = quadratic(), Bernoulli(0.4)
    how = {"rounds": 600, "local_steps": 2, "eval_every": every, "callbacks": stop}
    lrs, seeds = [0.005, 0.02, 9.0], [3, 4]
    runs = sweep(
        algorithm,
        problem,
        who,
        lrs=lrs,
        seed=seeds,
        on_divergence="ignore",
        record_models=True,
        **how,
    )
    ends = set()
    for run, (seed, lr) in zip(runs, [(s, lr) for s in seeds for lr in lrs], strict=True):
        alone = simulate(algorithm, problem, who, lr=lr, seed=seed, on_divergence="ignore", **how)
        ends.add(len(run.metrics["up"]))
        assert run.diverged_at == alone.diverged_at
        assert run.evaluated.tolist() == alone.evaluated.tolist()
        np.testing.assert_allclose(run.x, alone.x, atol=1e-12)
        assert np.array_equal(run.trajectory[-1], run.x)
        if alone.diverged_at is None:
            for mine, theirs in zip(run.clients, alone.clients, strict=True):
                np.testing.assert_allclose(mine, theirs, atol=1e-11)
    assert len(ends) > 1


@both
def test_vectors_are_counted_with_the_warm_start_and_end_a_run_in_its_round(run):
    masks = some_masks(rounds=40)
    result = run(
        ff.Focus(warm_start=True), quadratic(), Replay(masks), rounds=40, eval_every=50,
        callbacks=ff.Stop(vectors=40), **HOW,
    )  # fmt: skip
    sent = np.cumsum(result.metrics["up"] + result.metrics["down"])
    assert sent[-1] >= 40 > sent[-2]
    assert result.evaluated.tolist() == [0, len(sent) - 1]
    enough = run(
        ff.Focus(warm_start=True), quadratic(), Replay(masks), rounds=40,
        callbacks=ff.Stop(vectors=12), **HOW,
    )  # fmt: skip
    assert enough.metrics["up"].tolist() == [6]


@both
def test_a_run_that_begins_at_its_target_does_nothing(run):
    problem = quadratic()
    result = run(
        ff.Focus(), problem, Full(), rounds=40, x0=problem.optimum,
        callbacks=ff.Stop(tolerance=1e-9), **HOW,
    )  # fmt: skip
    assert len(result.metrics["up"]) == 1 and np.array_equal(result.x, problem.optimum)
    assert result.diverged_at is None and result.clients is not None


@both
def test_seconds_end_a_run(run):
    result = run(
        ff.Focus(), quadratic(), Full(), rounds=10**6, eval_every=10**6,
        callbacks=ff.Stop(seconds=1e-3), **HOW,
    )  # fmt: skip
    end = len(result.metrics["up"]) - 1
    assert 0 < end < 10_000 and result.evaluated.tolist() == [0, end]


@both
def test_all_callbacks_are_called_and_any_of_them_ends_a_run(run):
    told = []
    callbacks = [lambda done, _: done >= 300, lambda done, _: told.append(done)]
    how = {"rounds": 3000, "eval_every": 10, **HOW}
    result = run(ff.Focus(), quadratic(), Full(), callbacks=[*callbacks, ff.Stop()], **how)
    assert 300 <= told[-1] < 3000 and len(result.metrics["up"]) - 1 < 3000
    stop = ff.Stop(tolerance=0.1)
    early = run(ff.Focus(), quadratic(), Full(), callbacks=[*callbacks, stop], **how)
    assert len(early.metrics["up"]) - 1 < 300 and early.metrics["distance"][-1] <= 0.1


@both
def test_without_an_optimum_the_tolerance_is_of_the_gradient(run):
    result = run(
        ff.Focus(), ff.problems.robust(), Full(), rounds=900, lr=0.01,
        callbacks=ff.Stop(tolerance=0.5),
    )  # fmt: skip
    assert "distance" not in result.metrics
    norm = result.metrics["grad_norm"] / result.metrics["grad_norm"][0]
    assert norm[-1] <= 0.5 < norm[:-1].min()


@both
def test_accuracy_ends_a_run_within_one_evaluation(run):
    rng = np.random.default_rng(0)
    centres = 2 * rng.standard_normal((3, 8))

    def samples(rows):
        y = rng.integers(0, 3, rows)
        x = centres[y] + rng.standard_normal((rows, 8))
        return {"x": x.astype("float32"), "y": y}

    problem = ff.problems.softmax(
        [samples(20) for _ in range(4)], classes=3, eval_data=samples(200), batch_size=5
    )
    result = run(
        ff.Focus(), problem, Bernoulli(0.6), rounds=500, lr=0.02, eval_every=10,
        callbacks=ff.Stop(accuracy=0.9),
    )  # fmt: skip
    seen = result.metrics["accuracy"][result.evaluated]
    assert seen[-1] >= 0.9 > seen[:-1].max() and len(result.metrics["up"]) % 10 == 1


def test_a_stop_can_be_met_on_a_model_off_the_device():
    how = {
        "rounds": 600,
        "lr": 0.02,
        "callbacks": ff.Stop(below={"loss": 2.0}),
        "eval_every": 5,
    }
    here, there = (
        simulate(ff.Focus(), walked(), Bernoulli(0.3), client_state=place, **how)
        for place in ("device", "disk")
    )
    assert len(here.metrics["up"]) == len(there.metrics["up"]) < 601
    # Two programs, in which the compiler rounds sums of float32 in other orders.
    rounding = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(here.x["w"], there.x["w"], **rounding)
    np.testing.assert_allclose(here.clients.grad["w"], there.clients.grad["w"][:], **rounding)


def test_a_run_that_met_its_target_comes_back_and_another_target_is_refused(tmp_path):
    how = {
        "rounds": 900, **HOW, "checkpoint": tmp_path, "checkpoint_every": 0, "eval_every": 3
    }  # fmt: skip
    run = (ff.Focus(), quadratic(), Full())
    whole = simulate(*run, **how, callbacks=ff.Stop(tolerance=1e-3))
    again = simulate(*run, **how, callbacks=ff.Stop(tolerance=1e-3, seconds=1e-9))
    assert bits(again) == bits(whole) and len(whole.metrics["up"]) < 900
    with pytest.raises(ValueError, match=r": stop was Stop\(tolerance=0.001.*is Stop"):
        simulate(*run, **how)


def test_a_stop_that_was_asked_for_stays_asked_for(tmp_path, monkeypatch):
    """A checkpoint is due after the second chunk, so that two are drained together."""
    told, seconds = [], itertools.count(0, 40)

    def progress(done, _):
        told.append(done)
        return done == 256

    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr(checkpoint, "time", clock)
    result = simulate(
        ff.Focus(), quadratic(), Full(), rounds=3000, callbacks=progress,
        checkpoint=tmp_path, checkpoint_every=60, **HOW,
    )  # fmt: skip
    assert told == [256, 512] and len(result.metrics["up"]) - 1 == 512


@pytest.mark.parametrize(
    "stop, message",
    [
        ({"tolerance": 0}, "tolerance must be positive and finite; got 0"),
        ({"tolerance": "small"}, "tolerance must be positive and finite; got 'small'"),
        ({"seconds": float("inf")}, "seconds must be positive and finite; got inf"),
        ({"vectors": True}, "vectors must be positive and finite; got True"),
        ({"accuracy": 80}, "accuracy must be a share of at most 1; got 80"),
        ({"below": 0.1}, r'below must name metrics.*as in {"loss": 0.1}; got 0.1'),
        ({"above": {"loss": None}}, "above must name metrics and a number for each"),
        ({"above": {"loss": float("nan")}}, "above must name metrics and a number"),
    ],
)
def test_a_target_that_is_none_is_refused(stop, message):
    with pytest.raises(ValueError, match=message):
        ff.Stop(**stop)


@both
def test_a_target_of_a_metric_that_is_not_there_is_refused(run):
    for stop, message in [
        (ff.Stop(below={"los": 1.0}), "unknown metric: 'los'. Did you mean 'loss'?"),
        (ff.Stop(accuracy=0.9), "stop: unknown metric: 'accuracy'.*Known: distance"),
        ({"tolerance": 1}, "callbacks must be a Stop.*; got {'tolerance': 1}"),
    ]:
        with pytest.raises(ValueError, match=message):
            run(ff.Focus(), quadratic(), Full(), rounds=5, callbacks=stop, **HOW)


def test_a_sweep_warns_once_of_all_that_diverged():
    with pytest.warns(ff.DivergenceWarning) as told:
        sweep(ff.FedAvg(), quadratic(), Full(), rounds=300, lrs=[0.01, 5.0, 9.0])
    assert len(told) == 1
    assert "2 of 3 runs diverged in round" in str(told[0].message)
    assert "at lr = 5, in round" in str(told[0].message)
    with pytest.raises(ff.Diverged, match="2 of 3"):
        sweep(
            ff.FedAvg(), quadratic(), Full(), rounds=300, lrs=[0.01, 5.0, 9.0],
            on_divergence="raise",
        )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep(
            ff.FedAvg(),
            quadratic(),
            Full(),
            rounds=30,
            lrs=[9.0],
            on_divergence="ignore",
        )
