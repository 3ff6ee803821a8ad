"""Chains that fall asleep and wake up: how often, and for how long."""

from dataclasses import dataclass

import numpy as np
import pytest

from focusfl.participation import Markov, Participation, masks, schedule

P = np.array([0.9, 0.5, 0.3, 0.6, 0.1])
WAKE = np.array([0.3, 0.05, 0.1, 0.9, 0.02])
ROUNDS = 40_000


@pytest.fixture(scope="module")
def drawn():
    return masks(Markov(P, WAKE), len(P), ROUNDS, seed=5)


def test_clients_are_on_for_a_share_p_of_the_rounds(drawn):
    memory = 1 - WAKE / P  # correlation of one round and the next
    error = np.sqrt(P * (1 - P) * (1 + memory) / (1 - memory) / ROUNDS)
    assert np.all(np.abs(drawn.mean(0) - P) <= 4 * error)


@pytest.mark.parametrize(
    "on, chance", [(False, WAKE), (True, WAKE * (1 / P - 1))], ids=["wake", "sleep"]
)
def test_clients_turn_on_and_off_as_often_as_asked(drawn, on, chance):
    was, turned = drawn[:-1] == on, drawn[:-1] != drawn[1:]
    times = was.sum(0)
    error = np.sqrt(chance * (1 - chance) / times)
    assert np.all(np.abs((turned & was).sum(0) / times - chance) <= 4 * error)


def test_clients_are_independent_of_each_other(drawn):
    # Chains with memory a and b: products have memory a b, and mean 0 if independent.
    memory = 1 - WAKE / P
    z = (drawn - P) / np.sqrt(P * (1 - P))
    for i in range(len(P)):
        for j in range(i):
            ab = memory[i] * memory[j]
            error = np.sqrt((1 + ab) / (1 - ab) / ROUNDS)
            assert abs(np.mean(z[:, i] * z[:, j])) <= 4 * error


def test_the_first_round_is_stationary_already():
    first = np.mean([masks(Markov(P, WAKE), 5, 1, seed)[0] for seed in range(2000)], 0)
    assert np.all(np.abs(first - P) <= 4 * np.sqrt(P * (1 - P) / 2000))


def test_the_memory_is_not_drawn_from_the_numbers_of_the_first_rounds():
    @dataclass(frozen=True, eq=False)
    class Spy(Participation):
        def begin(self, num_clients, rng):
            return rng.random(num_clients)

        def draw(self, state, rounds, num_clients, rng):
            numbers.append((state, rng.random(num_clients)))
            return state, [np.arange(1)] * len(rounds)

        def marginals(self, num_clients): ...

    numbers: list = []
    list(schedule(Spy(), 4, 3, seed=0))
    (before, first) = numbers[0]
    assert not np.any(before == first)


def test_waking_up_with_chance_p_forgets_the_past():
    drawn = masks(Markov(0.3, 0.3), 1, ROUNDS, seed=1)[:, 0]
    z = (drawn - 0.3) / np.sqrt(0.3 * 0.7)
    assert abs(np.mean(z[1:] * z[:-1])) <= 4 / np.sqrt(ROUNDS)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.37, 0.5])
def test_the_largest_wake_is_taken_as_it_is_computed(p):
    drawn = masks(Markov(p, min(1.0, p / (1 - p))), 3, 300, seed=0)
    assert not np.any(drawn[1:] & drawn[:-1])  # nobody stays on


def test_who_is_always_on_never_leaves():
    assert np.all(masks(Markov(1, 0.2), 3, 200, seed=0))
