"""Rounds drawn as a run comes to them, and by participants where clients are many."""

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pytest
from helpers import quadratic

import focusfl as ff
from focusfl.participation import Bernoulli, Full, Markov, Replay, Uniform
from focusfl.participation.model import FEW, masks, schedule
from focusfl.simulation import plan as drawn

HOW = {"rounds": 90, "lr": 0.02, "local_steps": 2}


@dataclass(frozen=True, eq=False)
class Odd(Full):
    """Everybody, but in the second block of rounds it is changed."""

    change: Any = None

    def draw(self, state, rounds, num_clients, rng):
        state, drawn = super().draw(state, rounds, num_clients, rng)
        return state, self.change(drawn) if rounds.start else drawn


@pytest.mark.parametrize("run", [ff.loop, ff.simulate])
@pytest.mark.parametrize(
    "change, message",
    [
        (lambda ids: ids[:-1], "a list of 26 arrays .* rounds 64 to 89; got 25"),
        (lambda ids: [*ids, ids[0]], "a list of 26 arrays .* rounds 64 to 89; got 27"),
        (lambda ids: None, "a list of 26 arrays .*; got NoneType"),
        (lambda ids: [ids[0] + 0.5, *ids[1:]], "in whole numbers; got array"),
        (lambda ids: [[0, 1], *ids[1:]], r"in whole numbers; got \[0, 1\]"),
        (lambda ids: [*ids[:2], ids[0] + 1, *ids[3:]], r"from 0 to 5; .* in round 66"),
        (lambda ids: [ids[0] - 1, *ids[1:]], r"got \[-1, 0.* in round 64"),
        (lambda ids: [np.array([2, 2]), *ids[1:]], r"once.* got \[2, 2\] in round 64"),
        (lambda ids: [np.array([2, 1]), *ids[1:]], r"increasing.* got \[2, 1\] in rou"),
    ],
)  # fmt: skip
def test_a_schedule_that_is_not_what_was_asked_for_is_refused(run, change, message):
    with pytest.raises(ValueError, match=r"Odd.draw must .*" + message):
        run(ff.Focus(), quadratic(6), Odd(change=change), **HOW)


@pytest.mark.parametrize("who", [Uniform(3), Bernoulli(0.2), Markov(0.3, 0.2)], ids=str)
def test_a_run_drawn_as_it_comes_is_the_run_drawn_before(monkeypatch, who):
    how = {**HOW, "rounds": 600}
    expected = ff.simulate(ff.Focus(), quadratic(20), who, **how)
    monkeypatch.setattr(drawn, "AHEAD", 1)
    result = ff.simulate(ff.Focus(), quadratic(20), who, **how)
    np.testing.assert_allclose(result.x, expected.x, rtol=0, atol=1e-12)
    for name in ("up", "down", "gradients"):
        assert np.array_equal(result.metrics[name], expected.metrics[name])


def test_a_round_larger_than_all_before_gets_more_slots(monkeypatch):
    monkeypatch.setattr(drawn, "AHEAD", 1)
    masks = np.zeros((700, 20), bool)
    masks[:, :2] = True
    masks[600, :9] = True
    how = {**HOW, "rounds": 700}
    slow, fast = (
        run(ff.Focus(), quadratic(20), Replay(masks), **how) for run in (ff.loop, ff.simulate)
    )
    assert np.abs(slow.x - fast.x).max() < 1e-12


def test_few_rounds_are_held(monkeypatch):
    monkeypatch.setattr(drawn, "AHEAD", 100)
    rounds = drawn.Participants(Uniform(5), 2000, 10_000, [0, 1])
    every = [list(schedule(Uniform(5), 2000, 640, seed)) for seed in (0, 1)]
    for first in range(0, 640, 32):
        taken = rounds.take(32)
        assert len(rounds._ready[0]) <= 64
        for own, ids in zip(every, taken, strict=True):
            assert np.array_equal(own[first : first + 32], ids)
    assert not rounds.all and rounds.active.shape == (2, 640)


@pytest.mark.parametrize("who, p", [(Bernoulli(0.01), 0.01), (Uniform(40), 0.01)])
def test_many_clients_are_drawn_by_participants_with_the_same_law(who, p):
    clients, rounds = 4 * FEW - 96, 2000
    drawn = masks(who, clients, rounds, seed=3)
    often = drawn.mean(0)
    sigma = np.sqrt(p * (1 - p) / rounds)
    assert abs(often.mean() - p) < 5 * sigma / np.sqrt(clients)
    assert np.abs(often - p).max() < 6 * sigma
    if isinstance(who, Bernoulli):
        sizes = drawn.sum(1)
        assert sizes.var() == pytest.approx(clients * p * (1 - p), rel=0.2)
    longer = islice(schedule(who, clients, 100, seed=3), 70)
    shorter = schedule(who, clients, 70, seed=3)
    for a, b in zip(longer, shorter, strict=True):
        assert np.array_equal(a, b) and np.all(np.diff(a) > 0)
