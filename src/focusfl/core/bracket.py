"""Bracket the best step size on a geometric grid."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Scores = dict[float, Any]


def bracket(
    score: Callable[[Sequence[float]], Mapping[float, Any]],
    grid: Sequence[float],
    *,
    batch: int | None = None,
    max_steps: int,
) -> Scores:
    """Score the steps of a grid, and extend it while its best step is at an edge.

    Args:
        score: gives a score for each of some step sizes; less is better. Scores of one
            search must be comparable: numbers, or tuples of them.
        grid: at least two step sizes, increasing by one factor.
        batch: how many step sizes an extension adds; as many as `grid` has if None.
        max_steps: no extension begins once so many step sizes have a score.

    Returns:
        All scores by step size, increasing. Its best step is `best_step` of it.
    """
    factor, batch = grid[1] / grid[0], batch or len(grid)
    scores: Scores = {}
    steps = list(grid)
    while True:
        scores = dict(sorted({**scores, **score(steps)}.items()))
        best, low, high = best_step(scores), min(scores), max(scores)
        if low < best < high or len(scores) >= max_steps:
            return scores
        if best == low:
            steps = [low / factor**k for k in range(batch, 0, -1)]
        else:
            steps = [high * factor**k for k in range(1, batch + 1)]


def best_step(scores: Mapping[float, Any]) -> float:
    """Give the step size with the least score; the smallest of several."""
    return min(sorted(scores), key=scores.__getitem__)
