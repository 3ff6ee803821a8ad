"""Marginals of many clients: exact where they can be, in little time and memory."""

import tracemalloc

import numpy as np
import pytest

from focusfl.participation import Bernoulli, Correlated, Diurnal, Weighted
from focusfl.participation.weighted import (
    inclusion,
    sampled_inclusion,
    sampled_shares,
    shares,
)


def by_recursion(p):
    """E[1{i in S} / |S|] from how many of the others are there, one after the other."""
    q = np.empty(len(p))
    for i in range(len(p)):
        count = np.zeros(len(p))
        count[0] = 1
        for own in np.delete(p, i):
            moved = own * count[:-1]
            count *= 1 - own
            count[1:] += moved
        q[i] = p[i] * (count / (1 + np.arange(len(p)))).sum()
    return q


RNG = np.random.default_rng(0)
CHANCES = [
    *(RNG.random(n) for n in (2, 50, 63, 64, 65, 66, 130, 200)),
    np.geomspace(1e-6, 1, 200),
    1e-3 * RNG.random(150),
    1 - 1e-6 * RNG.random(150),
    np.repeat([0.9, 0.01], 80),
]


@pytest.mark.parametrize("p", CHANCES, ids=lambda p: f"{len(p)}-{p.sum():.3g}")
def test_shares_of_coins_equal_the_recursion(p):
    # 2 len(p) logarithms add up: some 1e-14, relative to the smallest share
    assert np.abs(Bernoulli(p).marginals(len(p)).q / by_recursion(p) - 1).max() < 1e-13


@pytest.mark.parametrize("n", [100, 10_000, 10**6])
@pytest.mark.parametrize("p", [1e-7, 1e-3, 0.3, 1 - 1e-9])
def test_one_chance_for_all_has_a_closed_form(n, p):
    exact = -np.expm1(n * np.log1p(-p)) / n
    assert np.abs(Bernoulli(p).marginals(n).q / exact - 1).max() < 1e-13


@pytest.mark.parametrize("outage", [0.0, 1e-3, 0.2, 0.9])
@pytest.mark.parametrize("groups", [1, 3, 500])
def test_shares_add_up_to_the_chance_that_anybody_is_there(outage, groups):
    n = 5000
    p = np.random.default_rng(1).random(n) * np.geomspace(1e-4, 1, n)
    law = Correlated(p, outage, groups)
    own = [np.log1p(-p[law._group(n) == g]).sum() for g in range(groups)]
    empty = np.prod(outage + (1 - outage) * np.exp(own))
    assert abs(law.marginals(n).q.sum() - (1 - empty)) < 1e-12


def test_a_long_day_is_averaged_over_some_of_its_times(monkeypatch):
    """Everybody at once and down to nobody: the roughest day of some ten clients."""
    law = Diurnal(0.5, 1.0, 8192, phase=0.0)
    some = law.marginals(20).q
    monkeypatch.setattr("focusfl.participation.diurnal.TIMES", 8192)
    assert np.abs(some / law.marginals(20).q - 1).max() < 1e-12


@pytest.mark.parametrize(
    "law",
    [
        Bernoulli(RNG.random(100_000) / 2 + 1e-6),
        Correlated(RNG.random(100_000) / 2 + 1e-6, 0.2, 30),
        Diurnal(RNG.random(100_000) / 3 + 1e-6, 0.5, 2),
        Weighted(100, RNG.random(100_000) + 0.01),
        Weighted(300, RNG.random(100_000) + 0.01, replace=True),
    ],
    ids=lambda law: type(law).__name__,
)
def test_a_hundred_thousand_clients_fit_into_a_quarter_of_a_gigabyte(law):
    tracemalloc.start()
    found = law.marginals(100_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**28
    assert np.all(found.p > 0) and np.all(found.q > 0)
    assert found.q.sum() == pytest.approx(1, abs=1e-12)  # no round of these is empty


@pytest.mark.parametrize("n, m", [(40, 10), (60, 3), (100, 50)])
def test_sampled_chances_are_as_near_as_they_say(n, m):
    w = np.random.default_rng(n).random(n) + 0.01
    w /= w.sum()
    for sampled, exact, total in [
        (sampled_inclusion, inclusion, m),
        (sampled_shares, shares, 1),
    ]:
        (found, error), expected = sampled(w, m), exact(w, m)
        # the largest of 100 deviations: 4 standard errors, a little more for many
        assert np.all(np.abs(found - expected) <= 4.8 * error)
        assert found.sum() == pytest.approx(total, abs=1e-12)
    # Less than a third of what counting who was drawn would have.
    p, error = sampled_inclusion(w, m)
    assert error.max() < np.sqrt(p * (1 - p) / 20_000).max() / 3
