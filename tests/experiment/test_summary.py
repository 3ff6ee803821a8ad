"""Verdicts, on curves whose truth is known."""

import numpy as np
import pytest

from focusfl.engines.run import Result
from focusfl.experiment.summary import summarise

ROUNDS = np.arange(1001)


def run_with(distance, diverged_at=None) -> Result:
    return Result(
        None, {"distance": distance}, None, diverged_at, 0.1, None, None, None
    )


@pytest.mark.parametrize(
    "distance, verdict, rounds, rate",
    [
        (0.9**ROUNDS + 1e-15, "exact", 175, 0.9),
        (0.9**ROUNDS + 1e-2, "biased", None, 0.9),
        (0.99**ROUNDS, "unfinished", None, 0.99),
        (0.1 + 0 * ROUNDS, "biased", None, None),
    ],
)
def test_a_curve_gets_the_verdict_it_deserves(distance, verdict, rounds, rate):
    summary = summarise(run_with(distance))
    assert summary.verdict == verdict
    assert summary.rounds_to_target == rounds
    if rate is None:
        assert summary.rate is None
    else:
        assert summary.rate == pytest.approx(rate, abs=0.02)


def test_divergence_wins_over_everything():
    summary = summarise(run_with(2.0 ** np.arange(20), diverged_at=19))
    assert summary.verdict == "diverged" and summary.diverged_at == 19


def test_a_run_that_broke_at_once_has_a_summary():
    assert summarise(run_with(np.array([1.0]), diverged_at=0)).verdict == "diverged"
