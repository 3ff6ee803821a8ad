"""Who takes part: draws against marginals, marginals against enumeration."""

from itertools import combinations, permutations, product

import numpy as np
import pytest

from focusfl.participation import (
    Bernoulli,
    Full,
    Replay,
    Uniform,
    Weighted,
    masks,
    schedule,
)
from focusfl.participation.model import BLOCK

P = np.array([0.9, 0.5, 0.3, 0.6])
W = np.array([1.0, 2.0, 5.0, 0.1, 3.0, 4.0])


def outcomes_bernoulli(p):
    for bits in product([0, 1], repeat=len(p)):
        ids = np.flatnonzero(bits)
        yield ids, np.prod(np.where(bits, p, 1 - p))


def outcomes_weighted(w, m):
    w = w / w.sum()
    for order in permutations(range(len(w)), m):
        chance, rest = 1.0, 1.0
        for i in order:
            chance, rest = chance * w[i] / rest, rest - w[i]
        yield list(order), chance


def outcomes_uniform(n, m):
    sets = list(combinations(range(n), m))
    for ids in sets:
        yield list(ids), 1 / len(sets)


def enumerate_marginals(outcomes, n):
    p, q = np.zeros(n), np.zeros(n)
    for ids, chance in outcomes:
        p[ids] += chance
        q[ids] += chance / max(len(ids), 1)
    return p, q


LAWS = [
    (Full(), 3, [([0, 1, 2], 1.0)]),
    (Uniform(2), 5, outcomes_uniform(5, 2)),
    (Bernoulli(P), 4, outcomes_bernoulli(P)),
    (Bernoulli(0.3), 8, outcomes_bernoulli(np.full(8, 0.3))),
    (
        Bernoulli(np.array([1.0, 1e-6, 0.5])),
        3,
        outcomes_bernoulli(np.array([1.0, 1e-6, 0.5])),
    ),
    (Weighted(1, W), 6, outcomes_weighted(W, 1)),
    (Weighted(2, W), 6, outcomes_weighted(W, 2)),
    (Weighted(5, W), 6, outcomes_weighted(W, 5)),
    (Weighted(6, W), 6, outcomes_weighted(W, 6)),
    (Weighted(2, W ** np.array([9, 1, 1, 9, 1, 1])), 6, None),
]


@pytest.mark.parametrize("law, n, outcomes", LAWS, ids=lambda v: type(v).__name__)
def test_marginals_equal_enumeration(law, n, outcomes):
    outcomes = outcomes or outcomes_weighted(law.w, law.m)
    p, q = enumerate_marginals(outcomes, n)
    stated = law.marginals(n)
    assert np.abs(stated.p - p).max() < 1e-12
    assert np.abs(stated.q - q).max() < 1e-12
    assert stated.p_error == 0 == stated.q_error


def test_the_example_of_the_specification():
    q = Bernoulli(P).marginals(4).q
    assert np.allclose(q, [0.4388, 0.1947, 0.1088, 0.2438], atol=5e-5)


@pytest.mark.parametrize(
    "law, n",
    [
        (Full(), 5),
        (Uniform(3), 9),
        (Uniform(300), 2000),
        (Bernoulli(P), 4),
        (Weighted(3, W), 6),
    ],
    ids=lambda v: str(v)[:20],
)
def test_draws_follow_the_marginals(law, n):
    rounds = 4000
    drawn = masks(law, n, rounds, seed=5)
    p, q, *_ = law.marginals(n)
    weights = drawn / np.maximum(drawn.sum(1, keepdims=True), 1)
    for mean, expected, spread in [
        (drawn.mean(0), p, np.sqrt(p * (1 - p))),
        (weights.mean(0), q, weights.std(0)),
    ]:
        # the largest of n deviations: 4 standard errors for one, a little more for many
        assert np.all(np.abs(mean - expected) <= 4.8 * spread / np.sqrt(rounds) + 1e-12)


def test_marginals_that_are_sampled_state_their_error():
    w = np.arange(1.0, 401)
    stated = Weighted(100, w).marginals(400)
    assert np.all(stated.p_error > 0)
    exact_sum = 100  # the p_i of m draws always add up to m
    assert abs(stated.p.sum() - exact_sum) < 1e-9


def test_participants_come_sorted_and_once():
    for law in (Uniform(5), Weighted(5, np.arange(1.0, 2001)), Bernoulli(0.01)):
        for ids in schedule(law, 2000, 70, seed=0):
            assert np.all(np.diff(ids) > 0)


def test_a_longer_schedule_begins_like_a_shorter_one():
    for law in (Uniform(2), Bernoulli(0.3), Weighted(2, W)):
        long = masks(law, 6, 3 * BLOCK + 7, seed=1)
        assert np.array_equal(long[: BLOCK + 5], masks(law, 6, BLOCK + 5, seed=1))


def test_replay_gives_back_what_it_was_given():
    given = masks(Bernoulli(0.3), 7, 100, seed=0)
    assert np.array_equal(masks(Replay(given), 7, 100, seed=9), given)
    stated = Replay(given).marginals(7)
    assert np.allclose(stated.p, given.mean(0))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Bernoulli(0.0), r"p must lie in \(0, 1\]; got 0.0"),
        (lambda: Bernoulli([0.5, 1.2]), r"got 1.2"),
        (lambda: Bernoulli([0.5, float("nan")]), "got nan"),
        (lambda: Uniform(0), "m must be a whole number of at least 1; got 0"),
        (lambda: Uniform(2.5), "got 2.5"),
        (lambda: Weighted(2, [1, -1]), "positive weights"),
        (lambda: Weighted(2, []), "positive weights"),
        (lambda: Weighted(3, [1, 2]).check(2), "got m = 3 of 2"),
        (lambda: Weighted(1, [1, 2]).check(3), "got 2 for 3 clients"),
        (lambda: Bernoulli([0.5, 0.5]).check(3), "got 2 for 3 clients"),
        (lambda: Replay(np.ones(4, bool)), r"got shape \(4,\)"),
        (lambda: Replay(np.full((2, 2), 0.5)), "true and false"),
    ],
)
def test_impossible_laws_are_refused(as_a_user, make, message):
    with pytest.raises(ValueError, match=message):
        make()
