"""Who takes part: draws against marginals, marginals against enumeration."""

from itertools import combinations, permutations, product

import numpy as np
import pytest

from focusfl.participation import (
    PARTICIPATION,
    Adversarial,
    Async,
    Bernoulli,
    Correlated,
    Cyclic,
    Diurnal,
    Full,
    LatencyModel,
    Markov,
    Replay,
    Sync,
    Trace,
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


def outcomes_weighted_with_replacement(w, m):
    w = w / w.sum()
    for draws in product(range(len(w)), repeat=m):
        yield sorted(set(draws)), np.prod(w[list(draws)])


def outcomes_diurnal(p, amplitude, period, phase):
    for r in range(period):
        chance = p * (1 + amplitude * np.sin(2 * np.pi * r / period + phase))
        for ids, weight in outcomes_bernoulli(chance):
            yield ids, weight / period


def outcomes_correlated(p, outage, group):
    names = sorted(set(group))
    for up in product([0, 1], repeat=len(names)):
        chance = np.prod(np.where(up, 1 - outage, outage))
        alive = np.array(up)[[names.index(g) for g in group]]
        for ids, weight in outcomes_bernoulli(p * alive):
            yield ids, chance * weight


def outcomes_listed(sets):
    for ids in sets:
        yield ids, 1 / len(sets)


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
    *(
        (Weighted(m, W, replace=True), 6, outcomes_weighted_with_replacement(W, m))
        for m in (1, 2, 5)
    ),
    (
        Weighted(9, W[:3], replace=True),
        3,
        outcomes_weighted_with_replacement(W[:3], 9),
    ),
    (Weighted(4, W[:1], replace=True), 1, [([0], 1.0)]),
    (Markov(P, 0.2), 4, outcomes_bernoulli(P)),
    (Markov(0.3, [0.1, 0.2, 0.3, 0.4]), 4, outcomes_bernoulli(np.full(4, 0.3))),
    (Cyclic(2), 4, outcomes_listed([[0, 1], [2, 3]])),
    (Cyclic(3), 8, outcomes_listed([[0, 1, 2], [3, 4, 5], [6, 7]])),
    (Cyclic(3), 3, [([0, 1, 2], 1.0)]),
    (Cyclic(2, 1), 4, outcomes_listed([[0, 1], [1, 2], [2, 3], [0, 3]])),
    # m - overlap = 2 divides N = 6 but not m = 3: even clients are seen twice as often
    (Cyclic(3, 1), 6, outcomes_listed([[0, 1, 2], [2, 3, 4], [0, 4, 5]])),
    (
        Cyclic(3, 1),
        5,
        outcomes_listed([[0, 1, 2], [2, 3, 4], [0, 1, 4], [1, 2, 3], [0, 3, 4]]),
    ),
    (
        Diurnal(P / 2, 0.8, 5),
        4,
        outcomes_diurnal(P / 2, 0.8, 5, np.arange(4) * np.pi / 2),
    ),
    (Diurnal(0.5, 1, 2, 0.3), 8, outcomes_diurnal(np.full(8, 0.5), 1, 2, 0.3)),
    (
        Diurnal(P / 2, 0.4, 7, [0.0, 1.0, 5.0, -2.0]),
        4,
        outcomes_diurnal(P / 2, 0.4, 7, np.array([0.0, 1.0, 5.0, -2.0])),
    ),
    (Correlated(P, 0.25, 2), 4, outcomes_correlated(P, 0.25, [0, 0, 1, 1])),
    (Correlated(P, 0.25, [7, 3, 7, 7]), 4, outcomes_correlated(P, 0.25, [7, 3, 7, 7])),
    (
        Correlated(1, 0.5, 3),
        8,
        outcomes_correlated(np.ones(8), 0.5, [0, 0, 0, 1, 1, 1, 2, 2]),
    ),
    (Correlated(P, 0, 2), 4, outcomes_bernoulli(P)),
    (Adversarial(3, 2), 5, outcomes_listed([[0, 1, 2]] * 2 + [[0, 1, 2, 3, 4]])),
    (Adversarial(2, [1, 0]), 3, outcomes_listed([[2], [0, 1, 2]])),
    (
        Trace([[1, 1, 0], [0, 0, -1], [1, 0, 1]]),
        3,
        outcomes_listed([[0, 1], [], [0, 2]]),
    ),
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
        (Weighted(9, W, replace=True), 6),
        (Cyclic(3), 8),
        (Cyclic(3, 1), 5),
        (Diurnal(P / 2, 0.9, 20), 4),
        (Correlated(P, 0.3, 2), 4),
        (Adversarial(20, 3), 5),
    ],
    ids=lambda v: str(v)[:20],
)
def test_draws_follow_the_marginals(law, n):
    rounds = 12_000  # a multiple of all periods
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


def test_shares_with_replacement_are_exact_or_state_their_error(monkeypatch):
    law = Weighted(30, np.arange(1.0, 41), replace=True)
    exact = law.marginals(40)
    assert abs(exact.q.sum() - 1) < 1e-12  # no round is empty
    monkeypatch.setattr("focusfl.participation.weighted.EXACT_SHARES", 0)
    sampled = law.marginals(40)
    assert np.array_equal(sampled.p, exact.p) and sampled.p_error == 0
    # the largest of 40 deviations: 4 standard errors for one, a little more for many
    assert np.all(np.abs(sampled.q - exact.q) <= 4.8 * sampled.q_error)
    assert np.all(sampled.q_error > 0)


CLOCK = LatencyModel(compute={"median": 0.5, "sigma": 0.5}, up=0.01, jitter=0.3)
ONE_OF_EACH = {
    "full": Full(),
    "uniform": Uniform(2),
    "bernoulli": Bernoulli(0.3),
    "weighted": Weighted(2, W),
    "weighted with replacement": Weighted(5, W, replace=True),
    "markov": Markov(0.3, 0.05),
    "cyclic": Cyclic(4),
    "cyclic with overlap": Cyclic(4, 1),
    "diurnal": Diurnal(0.3, 0.9, 17),
    "correlated": Correlated(0.3, 0.2, 3),
    "adversarial": Adversarial(7, [4, 1]),
    "trace": Trace(masks(Bernoulli(0.3), 6, 50, seed=3).astype(int)),
    "sync": Sync(CLOCK, 4, 3, deadline=2.0, work=[2, 40, 40]),
    "async": Async(CLOCK, replies=2, work=[2, 40, 40]),
    "replay": Replay(masks(Bernoulli(0.3), 6, 4 * BLOCK, seed=3)),
}


def test_no_model_is_left_out():
    assert {name.split()[0] for name in ONE_OF_EACH} == set(PARTICIPATION)
    assert all(type(ONE_OF_EACH[name]) is kind for name, kind in PARTICIPATION.items())


@pytest.mark.parametrize("law", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_participants_come_sorted_and_once(law):
    for ids in schedule(law, 6, 3 * BLOCK, seed=0):
        assert np.all(np.diff(ids) > 0)
        assert np.all((ids >= 0) & (ids < 6)) and ids.dtype.kind == "i"


def test_participants_come_sorted_and_once_among_many():
    w = np.arange(1.0, 2001)
    for law in (
        Uniform(5), Weighted(5, w), Weighted(50, w, replace=True), Bernoulli(0.01),
        Markov(0.01, 0.001), Cyclic(300, 7), Diurnal(0.01, 1, 48),
        Correlated(0.01, 0.5, 30), Adversarial(9, 1990),
    ):  # fmt: skip
        for ids in schedule(law, 2000, 70, seed=0):
            assert np.all(np.diff(ids) > 0)


@pytest.mark.parametrize("law", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_a_longer_schedule_begins_like_a_shorter_one(law):
    long = masks(law, 6, 3 * BLOCK + 7, seed=1)
    for rounds in (5, BLOCK, BLOCK + 5):
        assert np.array_equal(long[:rounds], masks(law, 6, rounds, seed=1))


def test_many_clients_are_drawn_a_few_rounds_at_a_time(monkeypatch):
    laws = (
        Bernoulli(0.3),
        Markov(0.3, 0.1),
        Diurnal(0.3, 1, 9),
        Correlated(0.3, 0.2, 2),
    )
    at_once = [masks(law, 6, 100, seed=2) for law in laws]
    monkeypatch.setattr("focusfl.participation.model.DRAWS", 50)
    for law, expected in zip(laws, at_once, strict=True):
        assert np.array_equal(masks(law, 6, 100, seed=2), expected)


def test_replay_gives_back_what_it_was_given():
    given = masks(Bernoulli(0.3), 7, 100, seed=0)
    assert np.array_equal(masks(Replay(given), 7, 100, seed=9), given)
    stated = Replay(given).marginals(7)
    assert np.allclose(stated.p, given.mean(0))
