"""One rule for everybody: the best step of a geometric grid that has no edge.

Steps are 2^(k/2), k whole. The first eight are octaves apart; while the best of those
tried is the smallest or the largest, the next eight are tried too; then, where some
step got to the target, the half octaves around the best.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

AT_ONCE = 8  # steps that are tried side by side
FIRST = range(-14, 2, 2)  # 1/128 to 1, in units of 1/L
MOST = 6  # batches of steps, at most
NEAR = 2.0  # steps that need so many times the best are near it


class Trial(NamedTuple):
    """What a step came to, in the median over seeds. Less is better."""

    value: float  # what is measured; infinite if it did not get there
    error: float  # in the end; infinite if it diverged


Tried = dict[int, Trial]


class Search(NamedTuple):
    """The best step, and what all came to."""

    best: int
    tried: Tried
    edge: bool  # whether the best is the last that was tried, all the same

    @property
    def step(self) -> float:
        """The best step."""
        return step_of(self.best)

    @property
    def near(self) -> int:
        """How many steps of the grid, √2 apart, need at most twice the best."""
        best = self.tried[self.best].value
        if not np.isfinite(best):
            return 0
        return sum(bool(trial.value <= NEAR * best) for trial in self.tried.values())


def step_of(k: int) -> float:
    """The step size by its place in the grid."""
    return float(2.0 ** (k / 2))


def best_of(tried: Tried) -> int:
    """The place of the best step: by what is measured, then by the error, then the
    larger; if all have diverged, the smallest."""

    def merit(k: int) -> tuple:
        value, error = tried[k]
        return value, error, -k if np.isfinite(error) else k

    return min(tried, key=merit)


def search(run: Callable[[list[int]], Tried], finer: bool = True, most: int = MOST) -> Search:
    """Find the best step; `run` tries eight at a time, `finer` half octaves too."""
    tried: Tried = {}
    batch: Iterable[int] = FIRST
    for _ in range(most):
        tried |= run(list(batch))
        found = _next(tried, finer)
        if found is None:
            break
        batch = found
    best = best_of(tried)
    return Search(best, tried, best in (min(tried), max(tried)))


def _next(tried: Tried, finer: bool) -> range | None:
    """The steps to try next; None if there is nothing to gain."""
    best, wide = best_of(tried), 2 * AT_ONCE
    if best == max(tried):
        return range(best + 2, best + 2 + wide, 2)
    if best == min(tried):
        return range(best - wide, best, 2)
    if finer and np.isfinite(tried[best].value) and not {best - 1, best + 1} & {*tried}:
        return range(best - wide // 2 + 1, best + wide // 2, 2)
    return None
