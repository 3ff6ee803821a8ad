"""Laws that cannot be: refused when they are built, or when they meet the clients."""

import numpy as np
import pytest

from focusfl.participation import (
    Adversarial,
    Bernoulli,
    Correlated,
    Cyclic,
    Diurnal,
    Markov,
    Replay,
    Uniform,
    Weighted,
)


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
        (lambda: Bernoulli([[0.5]]), r"number or one per client; got shape \(1, 1\)"),
        (lambda: Markov(0.5, 0), r"wake must lie in \(0, 1\]; got 0.0"),
        (lambda: Markov([0.5, 0.2], [0.5] * 3), "got 2 and 3"),
        (lambda: Markov(0.5, [0.1, 0.2]).check(3), "wake .* got 2 for 3 clients"),
        (
            lambda: Markov([0.5, 0.2], 0.5),
            r"client 1 cannot be on for p = 0.2 of the rounds and wake up with chance "
            r"0.5: it would have to turn off with chance 2. Its wake can be 0.25",
        ),
        (lambda: Cyclic(0), "m must be a whole number of at least 1; got 0"),
        (lambda: Cyclic(3, 3), "from 0 to m - 1; got 3 for m = 3"),
        (lambda: Cyclic(3, 1.0), "overlap must be .* at least 0; got 1.0"),
        (lambda: Cyclic(5).check(4), "got m = 5 of 4"),
        (lambda: Diurnal(0.2, 1.5, 24), r"amplitude must lie in \[0, 1\]; got 1.5"),
        (lambda: Diurnal([0.2, 0.8], 0.5, 24), "client 1 .* amplitude can be 0.25"),
        (lambda: Diurnal(0.2, 0.5, 1), "period must be at least 2 rounds; got 1"),
        (lambda: Diurnal(0.2, 0.5, 24, "noon"), "phase must be .* got 'noon'"),
        (lambda: Diurnal(0.2, 0.5, 24, float("inf")), "phase must be finite"),
        (lambda: Diurnal(0.2, 0.5, 24, [0, 1]).check(3), "phase .* got 2 for 3"),
        (lambda: Correlated(0.2, 1, 3), r"outage must lie in \[0, 1\); got 1"),
        (lambda: Correlated(0.2, 0.1, 0), "groups must be a whole number"),
        (lambda: Correlated(0.2, 0.1, [0.5, 1]), "groups must be a number of groups"),
        (
            lambda: Correlated(0.2, 0.1, [0, 1]).check(3),
            "groups .* got 2 for 3 clients",
        ),
        (lambda: Correlated(0.2, 0.1, 4).check(3), "got 4 for 3 clients"),
        (lambda: Adversarial(0), "gap must be a whole number of at least 1; got 0"),
        (lambda: Adversarial(2, [1, 1]), r"list of different clients.* got \[1, 1\]"),
        (lambda: Adversarial(2, []), "list of different clients"),
        (lambda: Adversarial(2, [1, 7]).check(5), "lie in 0 to 4; got 1 to 7"),
        (lambda: Adversarial(2, 9).check(5), "got 9 of 5 clients"),
        (lambda: Adversarial(2, 5).check(5), "leave somebody .* got 5 of 5 clients"),
        (lambda: Replay(np.ones(4, bool)), r"got shape \(4,\)"),
        (lambda: Replay(np.full((2, 2), 0.5)), "true and false"),
    ],
)
def test_impossible_laws_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
