"""Where a path of models ends: a verdict that claims no more than was seen."""

from typing import Literal, NamedTuple

import numpy as np

from focusfl.conformance.problem import Problem

Word = Literal[
    "exact",  # at the optimum, to rounding, and stays there
    "biased",  # settled elsewhere, or around it
    "diverged",
    "unsettled",  # neither there nor at rest when the rounds were over
    "failed",  # could not be run
    "not applicable",
]

EXACT = {False: 1e-8, True: 1e-5}  # share of the first error, by whether it is single
STAYS = 20  # rounds that an exact run must stay there
BLOWN_UP = 1e4  # times the first error
FALLS = 0.8  # a level that is below this share of the one before still falls
GROWS = 1.25  # a cloud's level may come out so many times the one before
MOVES = 0.05  # share of the whole way that means of quarters may be apart at rest


class Seen(NamedTuple):
    """What a path has shown."""

    word: Word
    error: float  # level over the last quarter, as a share of the first error
    rate: float = np.nan  # factor per round, from the last two quarters
    at: int = 0  # the round in which it diverged


def seen(problem: Problem, models: np.ndarray, single: bool) -> Seen:
    """Judge a path of models after rounds 1, 2, ...

    At rest is what no longer falls, from the third quarter to the last, and whose mean
    has no longer moved: a slow fall is neither. A cloud around a point is at rest.
    """
    finite = np.isfinite(models).all(axis=1)
    errors = problem.error(models[finite])
    if not finite.all() or errors.max() > BLOWN_UP:
        beyond = ~finite
        beyond[finite] |= errors > BLOWN_UP
        return Seen("diverged", np.inf, at=int(np.argmax(beyond)) + 1)
    if len(errors) >= STAYS and (errors[-STAYS:] <= EXACT[single]).all():
        return Seen("exact", float(errors[-STAYS:].max()))
    if len(errors) < 4:
        return Seen("unsettled", float(errors[-1]))
    third, last = np.array_split(np.arange(len(models)), 4)[2:]
    before, level = (_level(errors[part]) for part in (third, last))
    rate = float((level / before) ** (1 / len(last)))
    mean = [models[part].mean(axis=0) for part in (third, last)]
    moved = np.linalg.norm(mean[1] - mean[0])
    way = np.linalg.norm(mean[1] - problem.x0)
    resting = FALLS * before <= level <= GROWS * before and moved <= MOVES * way
    return Seen("biased" if resting else "unsettled", level, rate)


def _level(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))
