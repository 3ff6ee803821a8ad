"""Verdicts, on curves whose truth is known and on runs whose end is."""

from dataclasses import replace

import numpy as np
import pytest

import focusfl as ff
from focusfl.core.result import Result
from focusfl.studies import spec
from focusfl.studies.runner import run
from focusfl.studies.summary import summarise, tracking_gap
from focusfl.studies.verdict import Expected

ROUNDS = np.arange(1001)
SCATTER = np.exp(0.3 * np.random.default_rng(0).standard_normal(1001))
# Directions that shrink at ten speeds, as those of an ill-conditioned problem.
MIXED = sum(0.1 * (1 - 3.0**-k) ** np.arange(61) for k in range(1, 11))


def run_with(distance, diverged_at=None, gradients=None) -> Result:
    metrics = {"distance": np.asarray(distance, float)}
    if gradients is not None:
        metrics["gradients"] = gradients
    return Result(None, metrics, None, diverged_at, 0.1, None, None, None)


@pytest.mark.parametrize(
    "distance, verdict, rounds, rate",
    [
        (0.9**ROUNDS + 1e-15, "exact", 175, 0.9),
        (0.9**ROUNDS + 1e-2, "biased", None, 0.9),
        (0.99**ROUNDS, "falling", None, 0.99),
        (0.99**ROUNDS * SCATTER, "falling", None, 0.99),
        (0.999 ** np.arange(61), "falling", None, 0.999),
        (MIXED, "falling", None, 0.98),
        (0.02 + 0.995**ROUNDS, "falling", None, 0.996),
        (0.9**ROUNDS + 1e-2 * SCATTER, "biased", None, 0.9),
        (0.9999 ** np.arange(61), "unclear", None, 1.0),
        (1.0 + 0 * ROUNDS, "unclear", None, None),
        (1.002**ROUNDS, "unclear", None, None),
        (0.9 ** np.arange(6), "unclear", None, 0.9),
        (0.9**ROUNDS + 0.01 * 10 ** np.sin(ROUNDS / 7), "oscillating", None, 0.9),
    ],
)
def test_a_curve_gets_the_verdict_it_deserves(distance, verdict, rounds, rate):
    summary = summarise(run_with(distance))
    assert summary.verdict == verdict, summary.reason
    assert summary.rounds_to_target == rounds
    if rate is not None and summary.rate is not None:
        assert summary.rate == pytest.approx(rate, abs=0.02)


def test_theory_is_asked_where_the_curve_is_flat():
    flat = run_with(0.9**ROUNDS + 1e-2)
    assert summarise(flat, Expected(bias=0.01)).verdict == "biased"
    assert summarise(flat, Expected(noisy=True)).verdict == "noisy"
    crawling = run_with(0.1 * (1 + 0.9**ROUNDS) * SCATTER)
    assert summarise(crawling).verdict == "biased"
    assert summarise(crawling, Expected(bias=0.0)).verdict == "unclear"


def test_rounds_that_were_not_evaluated_are_passed_over():
    gaps = np.where(ROUNDS % 10 == 0, 0.97**ROUNDS, np.nan)
    summary = summarise(run_with(gaps))
    assert summary.verdict == "exact" and summary.rounds_to_target == 610
    assert summary.rate == pytest.approx(0.97, abs=1e-3)


def test_a_run_that_stopped_at_its_target_is_not_called_biased():
    summary = summarise(run_with(0.9 ** np.arange(60)), target=1e-2)
    assert summary.verdict == "falling" and "target" in summary.reason


def test_a_run_to_which_nobody_came_says_so():
    summary = summarise(run_with(np.ones(50), gradients=np.zeros(50)))
    assert summary.verdict == "absent" and "nobody" in summary.reason


def test_divergence_wins_over_everything():
    summary = summarise(run_with(2.0 ** np.arange(20), diverged_at=19))
    assert summary.verdict == "diverged" and summary.diverged_at == 19


def test_a_run_that_broke_at_once_has_a_summary():
    assert summarise(run_with(np.array([1.0]), diverged_at=0)).verdict == "diverged"


def study(rounds, lr, **problem):
    return spec.parse(
        {
            "rounds": rounds,
            "lr": lr,
            "local_steps": 5,
            "problem": {"kind": "ridge", "num_clients": 16, "dim": 20, "rows": 40} | problem,
            "participation": {
                "full": {},
                "coins": {"kind": "bernoulli", "p": np.linspace(0.1, 0.9, 16).tolist()},
            },
            "algorithms": {"focus": {}, "scaffold": {}, "fedavg": {}},
        },
        "study",
    )


@pytest.mark.parametrize("rounds, lr", [(60, 1e-7), (60, 1e-5), (300, 1e-6), (8, 1e-5)])
def test_a_slow_exact_run_is_never_called_biased(rounds, lr):
    for one in run(study(rounds, lr)):
        if one.row["algorithm"] != "fedavg":
            assert one.row["verdict"] in ("falling", "unclear"), one.row["reason"]


def test_a_level_and_its_prediction_are_told_to_digits_that_tell_them_apart():
    found = summarise(run_with(0.9**ROUNDS + 0.25), Expected(bias=0.235))
    assert found.reason == "settled at 0.25; predicted 0.235"
    found = summarise(run_with(0.9**ROUNDS + 2.14e-5), Expected(bias=2.1e-5))
    assert found.reason == "settled at 2.14e-05; predicted 2.1e-05"
    falls = summarise(run_with(0.02 + 0.995**ROUNDS), Expected(bias=0.0235))
    assert falls.reason.endswith("; theory puts its end at 0.0235")
    swings = summarise(run_with(0.9**ROUNDS + 0.01 * 10 ** np.sin(ROUNDS / 7)))
    assert swings.reason.startswith("swings between 0.00113 and 0.089 ")


def test_settled_runs_are_told_apart_by_where_they_ended():
    words = {
        (one.row["participation"], one.row["algorithm"]): one.row["verdict"]
        for one in run(study(1500, 5e-4))
    }
    assert {words[s, a] for s in ("full", "coins") for a in ("focus", "scaffold")} == {"exact"}
    assert words["full", "fedavg"] == words["coins", "fedavg"] == "biased"


def test_what_is_known_of_exactness_stands_in_a_runs_row():
    plan = study(300, 5e-4)
    (one, *_) = run(plan)
    row, law = one.row, plan.participation["full"].participation
    result = ff.simulate(
        ff.Focus(),
        plan.problem,
        law,
        rounds=300,
        lr=5e-4,
        local_steps=row["local_steps"],
    )
    assert row["grad_norm"] == one.curves["grad_norm"][-1]
    assert row["tracker_norm"] == pytest.approx(np.linalg.norm(result.server.y) / 16)
    assert row["reason"]
    assert ff.Focus(memory="last").max_exact_lr(2.0, 5) == 0.5


def test_a_false_fixed_point_is_named_in_its_verdict():
    plan = study(600, 1.0)
    A = 1 + np.random.default_rng(0).standard_normal((4, 20, 3))
    b = np.repeat([1.0, 1, -1, -1], 20).reshape(4, 20)
    problem = ff.problems.Logistic(A, b)
    full = {"full": plan.participation["full"]}
    paper = replace(plan.algorithms["focus"], algorithm=ff.Focus(memory="last"))
    plan = replace(
        plan, problem=problem, participation=full, algorithms={"focus": paper},
        lrs=(1.43 / problem.L,),
    )  # fmt: skip
    (one,) = run(plan)
    assert one.row["verdict"] == "biased"
    assert "the tracker is at rest" in one.row["reason"]


def test_a_tracker_that_lost_a_push_shows():
    masks = np.array([[True, True], [True, False]])
    result = ff.simulate(
        ff.Focus(), ff.problems.random_quadratic(2, 3, seed=0),
        ff.participation.Replay(masks), rounds=2, lr=0.01, local_steps=2,
    )  # fmt: skip
    assert tracking_gap(result) < 1e-15
    lost = result.server._replace(y=0 * result.server.y)
    object.__setattr__(result, "server", lost)
    assert tracking_gap(result) > 0.1


@pytest.mark.parametrize("shift", [0.0, -5.0, 1000.0])
def test_a_run_of_which_the_loss_alone_is_known_is_judged_by_whether_it_falls(shift):
    rounds, rng = np.arange(100), np.random.default_rng(0)
    falls, rests = 2.0 * 0.99**rounds, 0.3 + 2.0 * 0.5**rounds

    def word(losses, **ended):
        losses = losses + 0.01 * rng.normal(size=100) + shift
        return summarise(judged_by_loss(losses, **ended))

    assert word(falls).verdict == "falling"
    found = word(rests)
    assert (found.verdict, found.rounds_to_target, found.rate) == (
        "unclear",
        None,
        None,
    )
    assert found.error == pytest.approx(0.3 + shift, abs=0.02)
    assert "no longer falls" in found.reason
    assert word(falls, diverged_at=99).verdict == "diverged"
    few = summarise(judged_by_loss(falls[:5] + shift))
    assert few.verdict == "unclear" and "too few" in few.reason


def judged_by_loss(losses, diverged_at=None):
    return Result(
        x=None, metrics={"loss": losses, "accuracy": 0 * losses}, trajectory=None,
        diverged_at=diverged_at, lr=0.1, why_lr=None, server=None, clients=None,
    )  # fmt: skip
