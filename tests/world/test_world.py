"""Some sequences of the world, and the bugs it must find."""

import pickle
from collections import Counter

import pytest

from world.bugs import BUGS, shows
from world.job import DEPLOYED, setting
from world.world import Outcome, live


@pytest.mark.parametrize("seed", [*range(len(DEPLOYED)), 8660])
def test_laws_hold_under_faults(seed):
    """One sequence for every algorithm, and one that violated a law; python tests/world
    runs as many as you like."""
    assert not live(seed).wrong


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug):
    assert shows(bug, bug.seed)


def test_where_nothing_is_planted_the_same_seeds_violate_nothing():
    for bug in BUGS:
        algorithm = next(a for a in DEPLOYED if type(a) in type(bug.algorithm).mro())
        assert not live(bug.seed, setting(algorithm, 1 + bug.seed % 2)).wrong


def test_an_outcome_comes_back_from_another_process_whole():
    outcome = Outcome(Counter(rounds=3), "a law", 0.5, 0.25)
    assert pickle.loads(pickle.dumps(outcome)) == outcome
