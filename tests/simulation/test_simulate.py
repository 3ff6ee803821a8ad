"""The simulator's own machinery, and what a user meets at its door."""

import re
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from helpers import Nested, loop, quadratic, same, simulate, some_masks, squares, sweep

import focusfl as ff
from focusfl.participation import Bernoulli, Full, Replay, Uniform
from focusfl.simulation import plan as plan
from focusfl.simulation import runner as simulator
from focusfl.simulation.plan import cohort_sizes
from focusfl.simulation.spec import Options, RunSpec

both = pytest.mark.parametrize("run", [loop, simulate])
GOOD = {"rounds": 5, "lr": 0.05, "local_steps": 2}
NOBODY = Replay(np.zeros((9, 6), bool))


@both
def test_the_tracker_is_the_sum_of_stored_gradients_after_every_round(run):
    problem, masks = quadratic(), some_masks()
    for rounds in range(1, len(masks) + 1):
        result = run(ff.Focus(), problem, Replay(masks), rounds=rounds, lr=0.05, local_steps=3)
        seen = masks[:rounds].any(0)
        assert np.abs(result.server.y - result.clients.grad.sum(0)).max() < 1e-13
        assert not result.clients.grad[~seen].any()


def test_focus_reaches_the_optimum_while_one_client_shows_up_once_in_fifty():
    p = np.array([0.02, 0.9, 0.5, 0.7, 0.3, 0.6])
    result = ff.simulate(ff.Focus(), quadratic(), Bernoulli(p), rounds=6000, lr=0.02, local_steps=3)
    assert result.metrics["distance"][-1] < 1e-13
    biased = ff.simulate(
        ff.FedAvg(), quadratic(), Bernoulli(p), rounds=6000, lr=0.02, local_steps=3
    )
    assert np.median(biased.metrics["distance"][-600:]) > 1e-2


@both
def test_metrics_begin_at_x0_and_count_vectors(run):
    problem, masks = quadratic(), some_masks(rounds=10)
    x0 = np.arange(5.0)
    result = run(
        ff.Focus(warm_start=True), problem, Replay(masks), rounds=10, lr=0.01, x0=x0,
        record_models=True,
    )  # fmt: skip
    H, h, c = problem.mean
    assert np.array_equal(result.trajectory[0], x0)
    assert np.array_equal(result.trajectory[-1], result.x)
    assert result.metrics["loss"][0] == pytest.approx(x0 @ H @ x0 / 2 - h @ x0 + c)
    assert result.metrics["grad_norm"][0] == pytest.approx(np.linalg.norm(H @ x0 - h))
    error = np.linalg.norm(x0 - problem.optimum) / np.linalg.norm(problem.optimum)
    assert result.metrics["distance"][0] == pytest.approx(error)
    assert result.metrics["up"].tolist() == [6, *masks.sum(1)]


@both
def test_divergence_is_reported_at_its_round_and_nothing_is_nan(run):
    with pytest.warns(ff.DivergenceWarning) as told:
        result = run(
            ff.FedAvg(),
            quadratic(),
            Full(),
            rounds=400,
            lr=5.0,
            record_models=True,
        )
    words = f"diverged in round {result.diverged_at} at lr = 5. .* Try lr = 0.65 or"
    assert re.search(words, str(told[0].message))
    assert 0 < result.diverged_at < 400
    assert len(result.trajectory) == result.diverged_at + 1
    assert np.isfinite(result.x).all() and np.isfinite(result.trajectory).all()
    assert all(np.isfinite(curve).all() for curve in result.metrics.values())
    assert all(len(c) == result.diverged_at + 1 for c in result.metrics.values())
    with pytest.raises(ff.Diverged, match=f"round {result.diverged_at} at lr = 5. .*T"):
        run(
            ff.FedAvg(),
            quadratic(),
            Full(),
            rounds=400,
            lr=5.0,
            on_divergence="raise",
        )
    silent = run(
        ff.FedAvg(),
        quadratic(),
        Full(),
        rounds=400,
        lr=5.0,
        on_divergence="ignore",
    )
    assert silent.diverged_at == result.diverged_at


@both
def test_a_run_that_overflows_in_its_first_round_keeps_x0(run):
    with pytest.warns(ff.DivergenceWarning, match="round 0 breaks at any lr, look for"):
        result = run(ff.FedAvg(), quadratic(), Full(), rounds=5, lr=1e308, local_steps=4)
    assert result.diverged_at == 0
    assert np.array_equal(result.x, np.zeros(5))


@both
def test_progress_is_told_and_ends_at_the_last_round(run):
    told = []

    def tell(done, metrics):
        told.append((done, metrics["distance"]))

    run(ff.Focus(), quadratic(), Full(), rounds=300, lr=0.01, callbacks=tell)
    assert told[-1][0] == 300 and told[-1][1] < told[0][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize("law", [Full(), Uniform(7), Bernoulli(0.05), Bernoulli(0.5)])
@pytest.mark.parametrize("rounds", [500, 20_000])
def test_slots_waste_little(law, rounds):
    active = ff.participation.masks(law, 64, rounds, seed=0).sum(1)
    slots = cohort_sizes(active, 64)
    used = np.array(slots)[np.searchsorted(slots, active[active > 0])].sum()
    assert len(slots) <= 6 and active.max() <= slots[-1] <= 64
    assert used - active.sum() <= max(0.15 * used, 50_000) or len(slots) == 6


@pytest.mark.parametrize("slot, few", [(1, True), (plan.SPARE // 100, False)])
def test_short_runs_of_little_work_share_one_program(slot, few):
    """Whoever takes part; those with much to do gather who does."""
    pace = plan.chunk_policy(np.zeros(5), True, slot)
    for law in (Uniform(1), Uniform(3), Bernoulli(0.3)):
        active = ff.participation.masks(law, 8, 50, seed=0).sum(1)
        (slots,) = cohort_sizes(active, 8, pace)
        assert slots == (8 if few else active.max())


def test_a_model_is_work_too():
    """A slot for each of 4,000 clients that have one number would be 36 million."""
    problem = ff.problems.from_loss(
        lambda x, a: (a * x).sum(1), np.ones(9000), [np.ones((1, 1))] * 4000,
        batch_size=None, eval_data=np.ones((1, 1)),
    )  # fmt: skip
    spec = RunSpec(ff.FedAvg(), problem, Uniform(1), 2, [0.1]).validated()
    assert simulator.Runner(spec, Options()).config.slots == (1,)
    assert plan.chunk_policy(problem.x0, True, 1).few > 8000


def test_a_run_with_several_sizes_of_rounds_equals_the_loop(monkeypatch):
    often = plan.ChunkPolicy(chunk=64, worth=0, most=6)
    monkeypatch.setattr(simulator, "chunk_policy", lambda *_: often)
    masks = some_masks(rounds=60)
    assert len(cohort_sizes(masks.sum(1), 6, often)) > 1
    slow, fast = (
        run(ff.Focus(), quadratic(), Replay(masks), rounds=60, lr=0.05, local_steps=3)
        for run in (ff.loop, ff.simulate)
    )
    assert np.abs(slow.x - fast.x).max() < 1e-12


@both
@pytest.mark.parametrize(
    "change, message",
    [
        ({"lr": 0.0}, "lr must be positive"),
        ({"lr": float("nan")}, "lr must be positive"),
        ({"local_steps": 0}, "local_steps must be a whole number of at least 1; got 0"),
        ({"local_steps": 1.5}, "local_steps must be a whole number"),
        ({"rounds": 0}, "rounds must be a whole number"),
        ({"x0": np.zeros(4)}, r"x0 must have shape \(5,\); got \(4,\)"),
        ({"x0": np.full(5, np.nan)}, "x0 must be finite"),
        ({"on_empty": "stop"}, "on_empty must be one of"),
        ({"record_models": "all"}, "record_models must be true or false"),
        ({"participation": Replay(np.ones((5, 4), bool))}, "got 4 for 6 clients"),
        ({"participation": Replay(np.ones((2, 6), bool))}, "masks hold 2 rounds"),
        ({"participation": Uniform(7)}, "got m = 7 of 6"),
        ({"participation": Full}, "participation must be a Participation.*call it"),
        ({"algorithm": "focus"}, "algorithm must be a Algorithm; got 'focus'"),
        ({"algorithm": ff.Focus}, "algorithm must be a Algorithm.*; call it"),
        ({"problem": None}, "problem must be a Problem; got None"),
        ({"problem": None, "lr": "auto"}, "problem must be a Problem; got None"),
        ({"participation": 1, "lr": "auto"}, "participation must be a Participation"),
        ({"local_steps": 0, "lr": "auto"}, "local_steps must be a whole number"),
        (
            {"participation": NOBODY, "lr": "auto"},
            "under Replay nobody ever",
        ),
        (
            {"lr": None},
            'number, "auto" or a function of the round; got None.',
        ),
        ({"lr": abs}, "lr must be positive and finite in every round; it is 0.0 in"),
        (
            {"lr": True},
            'number, "auto" or a function of the round; got True.',
        ),
        (
            {"lr": 1j},
            'number, "auto" or a function of the round; got 1j.',
        ),
        ({"lr": "0.1"}, "function of the round; got '0.1'."),
        ({"lr": [[0.1], [0.1, 0.2]]}, "lr must be one number, .* Use sweep"),
        ({"seed": -1}, r"seed must be a whole number from 0 to 2\^32 - 1; got -1."),
        ({"seed": "a"}, "seed must be a whole number .*; got 'a'."),
        ({"seed": 1.5}, "seed must be a whole number .*; got 1.5."),
        ({"seed": None}, "seed must be a whole number .*; got None."),
        ({"seed": True}, "seed must be a whole number .*; got True."),
        ({"seed": 2**32}, "seed must be a whole number .*; got 4294967296."),
        ({"seed": [0, 1]}, r"seed must be a whole number .*; got \[0, 1\]."),
        ({"x0": "zeros"}, "x0 must be real numbers; got 'zeros'."),
        ({"x0": np.ones(5) * 1j}, "x0 must be real numbers; got an array"),
        ({"x0": [[1], [1, 2]]}, "x0 must be real numbers; got"),
        ({"x0": [None] * 5}, "x0 must be real numbers; got"),
        ({"x0": {"w": np.ones(5)}}, "x0 must be real numbers; got"),
        ({"rounds": True}, "rounds must be a whole number of at least 1; got True"),
        ({"rounds": 1e3}, "rounds must be a whole number of at least 1; got 1000.0"),
        ({"rounds": 2**30, "local_steps": 2}, r"rounds times local_steps .* 2\^31"),
        ({"local_steps": 2.5}, "local_steps must be a whole number"),
        ({"eval_every": 0}, "every must be a whole number of at least 1; got 0"),
        ({"callbacks": 5}, "callbacks must be a Stop, a function of the rounds done .*got 5"),
        ({"callbacks": [lambda: None]}, "callbacks must be a Stop, a function of the rounds done"),
        ({"on_divergence": "yes"}, "on_divergence must be one of .*; got .yes"),
        ({"record_models": ["model"]}, "record_models must be true or false"),
        ({"on_empty": np.array(["skip", "step"])}, "on_empty must be one of"),
        ({"callbacks": ff.Stop}, "callbacks must be a Stop.*; call it"),
        ({"callbacks": [ff.Stop(), ff.Stop()]}, "callbacks must hold at most one Stop; got 2"),
    ],
)
def test_bad_input_is_refused_with_a_reason(run, change, message):
    arguments = {
        "algorithm": ff.Focus(), "problem": quadratic(), "participation": Full(),
        **GOOD, **change,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message) as told:
        run(**arguments)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"lrs": []}, r"lrs must hold at least one number; got \[\]"),
        (
            {"lrs": None},
            "numbers or functions of the round; got None",
        ),
        (
            {"lrs": "auto"},
            "numbers or functions of the round; got 'auto'",
        ),
        ({"lrs": [0.1, None]}, "lrs must be a list of numbers"),
        ({"lrs": [[0.1], [0.1, 0.2]]}, "lrs must be a list of numbers"),
        ({"lrs": np.ones((2, 2))}, "lrs must be a list of numbers"),
        ({"lrs": [0.1, 0.0]}, "lr must be positive and finite"),
        ({"seed": []}, r"seed must be one or a list of at least one; got \[\]"),
        ({"seed": [0, -1]}, "seed must be a whole number .*; got -1"),
        ({"seed": ["a"]}, "seed must be a whole number .*; got 'a'"),
        ({"seed": {0, 1}}, "seed must be a whole number .*; got {0, 1}"),
        ({"devices": 0}, "devices must be a whole number of at least 1; got 0"),
        ({"devices": "all"}, "devices must be a whole number of at least 1; got 'all'"),
        ({"devices": True}, "devices must be a whole number of at least 1; got True"),
        ({"devices": 99}, "devices must be at most"),
        ({"checkpoint": 5}, "checkpoint must be the path of a folder; got 5"),
        ({"checkpoint": ""}, "checkpoint must be the path of a folder; got ''"),
        ({"checkpoint": b"a"}, "checkpoint must be the path of a folder; got b'a'"),
        ({"checkpoint": "a\0b"}, "checkpoint must be the path of a folder"),
        ({"checkpoint": "a", "checkpoint_every": "often"}, "every must be a number of seconds"),
        ({"checkpoint": "a", "checkpoint_every": "60"}, "every must be a number of seconds"),
        ({"client_state": "gpu"}, "client_state must be one of"),
        ({"client_state": "disk", "state_folder": 5}, "state_folder must be the path of"),
        ({"on_divergence": 2}, "on_divergence must be one of .*; got 2"),
    ],
)
def test_a_sweep_refuses_with_a_reason_too(change, message):
    arguments = {"rounds": 5, "lrs": [0.05], **change}
    with pytest.raises(ValueError, match=message) as told:
        sweep(ff.Focus(), quadratic(), Full(), **arguments)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("array", ["torch", None, list])
def test_what_makes_no_arrays_is_refused(array):
    with pytest.raises(ValueError, match="array must make an array of one of numpy's"):
        ff.loop(ff.Focus(), quadratic(), Full(), **GOOD, array=array)


@both
@pytest.mark.parametrize(
    "metrics, message",
    [
        ({"loss": np.nan}, "loss is nan at x0; look for NaN, infinity or very large"),
        ({"loss": 1.0, "auc": np.inf}, "auc is inf at x0"),
        ({"loss": np.ones(3)}, "must give a single number for 'loss'; got shape"),
    ],
)
def test_metrics_that_say_nothing_at_x0_are_refused(run, metrics, message):
    with pytest.raises(ValueError, match=message):
        problem = ff.problems.from_loss(
            squares, {"w": np.ones(4), "b": np.ones(())},
            [{"a": np.ones((3, 4)), "y": np.ones(3)}] * 2,
            batch_size=3, metrics_fn=lambda x, eval_data: metrics, dtype="float64",
            eval_data={"a": np.ones((3, 4)), "y": np.ones(3)},
        )  # fmt: skip
        run(ff.Focus(), problem, Full(), **GOOD)


@both
def test_auto_gets_by_where_hardly_anybody_comes(run):
    """No round of the race has a participant; the closed form needs none."""
    rare = run(ff.Focus(), quadratic(), Bernoulli(1e-9), rounds=2, lr="auto")
    assert rare.lr > 0 and rare.why_lr.startswith("the closed form")
    masks = np.ones((20, 6), bool)
    masks[:, 0] = False  # and one who never does bounds nothing
    assert run(ff.Focus(), quadratic(), Replay(masks), rounds=2, lr="auto").lr > 1e-3


def test_a_model_of_another_structure_is_refused():
    with pytest.raises(ValueError, match="same names"):
        ff.simulate(ff.Focus(), Nested(), Full(), **GOOD, x0={"out": np.zeros(2)})


def test_several_step_sizes_are_for_sweep():
    with pytest.raises(ValueError, match="Use sweep"):
        ff.simulate(ff.Focus(), quadratic(), Full(), rounds=2, lr=[0.1, 0.2])


@both
def test_auto_chooses_a_step_that_works_and_says_how(run):
    result = run(ff.Focus(), quadratic(), Bernoulli(0.3), rounds=600, lr="auto", local_steps=3)
    assert result.metrics["distance"][-1] < 1e-8
    assert result.lr > 0 and result.why_lr.endswith(".")
    with pytest.raises(ValueError, match="Focus only"):
        run(ff.FedAvg(), quadratic(), Full(), rounds=5, lr="auto")


def test_an_unknown_word_for_lr_is_refused():
    with pytest.raises(ValueError, match="function of the round; got 'fast'"):
        ff.simulate(ff.Focus(), quadratic(), Full(), rounds=5, lr="fast")


@pytest.mark.parametrize("rounds", [1, 31, 32, 33, 256, 257, 300, 2500, 10_000])
def test_chunks_cover_a_run_with_little_padding(rounds):
    rows = plan.chunk_rows(rounds)
    chunks = -(-rounds // rows)
    grain = plan.QUICK.chunk // plan.GRAINS
    assert rows <= plan.QUICK.chunk and rows % grain == 0
    assert 0 <= chunks * rows - rounds < chunks * grain


@pytest.mark.parametrize("algorithm", [ff.Focus(warm_start=True), ff.FedAU()], ids=repr)
@pytest.mark.parametrize(
    "who, on_empty",
    [
        (ff.participation.Bernoulli(0.1), "skip"),
        (ff.participation.Bernoulli(0.1), "step"),
        (ff.participation.Full(), "skip"),  # no round is empty
    ],
    ids=repr,
)
def test_seeds_side_by_side_are_the_runs_of_each(algorithm, who, on_empty):
    """Somebody may take part under one seed when nobody does under another."""
    problem = ff.problems.Noisy(ff.problems.ridge(num_clients=8, dim=6, rows=9), 0.1)
    how = {
        "rounds": 60,
        "local_steps": 2,
        "options": ff.Options(record_models=True, on_empty=on_empty),
    }
    lrs, seeds = [1e-3, 2e-3], [3, 9]
    runs = ff.sweep(algorithm, problem, who, lrs=lrs, seed=seeds, **how)
    for run, (seed, lr) in zip(runs, product(seeds, lrs), strict=True):
        alone = ff.simulate(algorithm, problem, who, lr=lr, seed=seed, **how)
        np.testing.assert_allclose(run.trajectory, alone.trajectory, atol=1e-12)
        np.testing.assert_allclose(run.metrics["loss"], alone.metrics["loss"], rtol=1e-12)
        for name in ("down", "up", "gradients"):
            assert np.array_equal(run.metrics[name], alone.metrics[name])
        for mine, theirs in zip(run.clients, alone.clients, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-12)


@pytest.mark.parametrize("engine", [ff.simulate, ff.loop], ids=["simulate", "loop"])
def test_who_watches_can_say_that_it_is_enough(engine):
    problem = ff.problems.ridge(num_clients=4, dim=5, rows=9)
    told = []

    def watch(done, metrics):
        told.append(done)
        return metrics["distance"] < 1e-6

    run = engine(
        ff.Focus(), problem, ff.participation.Full(), rounds=3000, lr=2e-3,
        callbacks=watch,
    )  # fmt: skip
    assert run.diverged_at is None and run.clients is not None
    assert run.metrics["distance"][-1] < 1e-6
    assert 0 < len(run.metrics["distance"]) - 1 < 3000 and told[-1] < 3000


@dataclass(frozen=True)
class OnlyJax(ff.Scaffold):
    """Anybody's, with a method in it that numpy's arrays do not have."""

    def init(self, params):
        return super().init(params.at[:].get())


def test_an_algorithm_may_begin_by_what_jax_alone_has():
    how = {"rounds": 5, "lr": 0.1}
    problem = ff.problems.Logistic(np.ones((3, 4, 2)), np.ones((3, 4)))
    ours, theirs = (
        ff.simulate(algorithm, problem, Full(), **how) for algorithm in (OnlyJax(), ff.Scaffold())
    )
    assert same(ours.x, theirs.x)
