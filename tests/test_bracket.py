"""The one search for a step size: a geometric grid without an edge."""

import math

import pytest

from focusfl.core.bracket import best_step, bracket


@pytest.mark.parametrize("best", [2.0**k for k in range(-6, 7)])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_best_step_is_bracketed(best, batch):
    asked = []

    def score(steps):
        asked.extend(steps)
        return {step: abs(math.log2(step / best)) for step in steps}

    scores = bracket(score, [0.5, 1.0, 2.0], batch=batch, max_steps=30)
    assert best_step(scores) == best
    assert min(scores) < best < max(scores)
    assert list(scores) == sorted(asked)  # each once


def test_a_search_without_an_end_ends():
    scores = bracket(lambda steps: {step: step for step in steps}, [1.0, 2.0], max_steps=7)
    assert len(scores) == 8 and best_step(scores) == min(scores)


def test_steps_that_all_diverge_are_followed_by_smaller_ones():
    def score(steps):
        return {step: math.inf if step > 0.1 else -step for step in steps}

    assert best_step(bracket(score, [1.0, 2.0, 4.0], max_steps=20)) == 0.0625
