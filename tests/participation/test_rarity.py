"""Participation that depends on the data."""

import numpy as np
import pytest

from focusfl.participation import Bernoulli, by_rarity, rarity

SCORES = np.random.default_rng(0).standard_normal(200)


def follow(p):
    """Correlation of ranks: 1 if the highest score is the rarest to take part."""
    ranks = [np.argsort(np.argsort(a)) for a in (SCORES, -p)]
    return np.corrcoef(ranks)[0, 1]


def test_who_holds_rare_data_is_rarely_there():
    p = by_rarity(SCORES, 0.05, 0.9)
    assert p[SCORES.argmax()] == 0.05 and p[SCORES.argmin()] == 0.9
    assert follow(p) == pytest.approx(1)
    assert follow(by_rarity(SCORES, 0.05, 0.9, -1)) == pytest.approx(-1)
    Bernoulli(p).check(200)


def test_strength_mixes_and_never_changes_the_chances():
    followed = [follow(by_rarity(SCORES, 0.05, 0.9, s)) for s in np.linspace(-1, 1, 9)]
    assert np.all(np.diff(followed) > 0)
    assert abs(followed[4]) < 4 / np.sqrt(200)  # shuffled
    for strength in (-0.5, 0, 0.3, 1):
        p = by_rarity(SCORES, 0.05, 0.9, strength, seed=3)
        assert np.array_equal(np.sort(p), np.sort(by_rarity(SCORES, 0.05, 0.9)))


def test_a_seed_decides_who_is_shuffled_where():
    p = [by_rarity(SCORES, 0.1, 1, 0, seed) for seed in (0, 0, 1)]
    assert np.array_equal(p[0], p[1]) and not np.array_equal(p[0], p[2])


def test_equal_scores_are_dealt_at_random():
    p = by_rarity([1.0] * 50, 0.1, 1)
    assert not np.all(np.diff(p) < 0) and not np.all(np.diff(p) > 0)
    assert np.all(by_rarity([3, 3, 7, 3], 0.2, 0.8).argmin() == 2)


def test_rarity_is_the_mean_surprise_of_the_labels():
    counts = np.array([[8, 0, 0], [4, 4, 0], [0, 0, 0.5]])
    share = np.array([12, 4, 0.5]) / 16.5
    expected = [-np.log(share[0]), -np.log(share[:2]).mean(), -np.log(share[2])]
    assert np.allclose(rarity(counts), expected, rtol=1e-14)
    assert np.allclose(rarity(np.array([[3, 0], [5, 0]])), 0)  # a class nobody has


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: by_rarity([], 0.1, 1), "scores must have shape .* got"),
        (lambda: by_rarity([1, float("nan")], 0.1, 1), "scores must be .* nan"),
        (lambda: by_rarity([1, 2], 0, 1), "p_min must be positive and finite; got 0"),
        (lambda: by_rarity([1, 2], 0.5, 0.2), "got 0.5 and 0.2"),
        (
            lambda: by_rarity([1, 2], 0.1, 1, 2),
            r"strength must lie in \[-1, 1\]; got 2",
        ),
        (lambda: rarity([[1, 2], [0, 0]]), "samples in every row; .* row sum 0"),
        (lambda: rarity([1, 2]), r"counts must have shape .* got \(2,\)"),
    ],
)
def test_impossible_scores_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
