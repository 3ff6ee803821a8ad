"""Whether a run that has come to rest can be, or is, away from the optimum.

FOCUS watches y, the sum of everybody's last gradient. With several local steps and
lr * L of 1 or more, y can vanish where the gradient of F does not: see docs/theory.md.
"""

import warnings
from typing import Any

import numpy as np

from focusfl.algorithms import focus
from focusfl.core import Algorithm, gradient_sum, tree
from focusfl.core.result import Result
from focusfl.problems import Noisy, Problem

NEAR = 0.9  # share of the largest step from which on it is worth a warning
FEW = 1 << 22  # numbers of data up to which L is worked out to warn by
SOLVED = 1e-6  # the true gradient beside the first


class RestWarning(UserWarning):
    """A run may come to rest, or has, where the gradient of F does not vanish."""


def caution(algorithm: Algorithm, problem: Problem, lr: float, local_steps: int) -> str | None:
    """Say it if a step is so large that a run may rest elsewhere, where L is known."""
    plain = problem.exact if isinstance(problem, Noisy) else problem
    L = getattr(plain, "L", None) if tree.size(problem.data) <= FEW else None
    if not L:
        return None
    bound = algorithm.max_exact_lr(L, local_steps)
    if not 0 < bound <= lr / NEAR:
        return None
    where = "at or past" if lr >= bound else "close to"
    return (
        f"lr={lr:.3g} is {where} {bound:.3g}, from which on "
        f"{type(algorithm).__name__} with {local_steps} local steps may come to rest "
        f"away from the optimum (lr * L = {lr * L:.2f}); look at grad_norm, or take a "
        "smaller lr."
    )


def at_rest_elsewhere(result: Result, total_weight: float | int) -> str | None:
    """Say it if the tracker says that a run is over and the gradient says it is not."""
    tracked = tracker_norm(result.server, total_weight)
    slope = result.metrics.get("grad_norm")
    if tracked is None or slope is None or not result.metrics["gradients"].any():
        return None
    if tracked >= focus.AT_REST * slope[-1] or slope[-1] <= SOLVED * slope[0]:
        return None
    return (
        f"the tracker is at rest (|y|/N = {tracked:.1e}) and the gradient is not "
        f"({slope[-1]:.1e}): lr is too large, a compressor too coarse, or somebody has "
        "never taken part."
    )


def warn(algorithm: Algorithm, problem: Problem, result: Result, local_steps: int) -> None:
    """Warn if a run rests away from the optimum, or might for the step it took.

    One that has solved the problem, or diverged, needs no such warning.
    """
    slope = result.metrics.get("grad_norm")
    solved = slope is not None and slope[-1] <= SOLVED * slope[0]
    if result.diverged_at is not None or solved:
        return
    for words in (
        at_rest_elsewhere(result, problem.total_weight),
        caution(algorithm, problem, result.lr, local_steps),
    ):
        if words:
            warnings.warn(words, RestWarning, stacklevel=3)


def tracker_norm(server: Any, total_weight: float | int) -> float | None:
    """|y| / N, what FOCUS and those that track as it does take for the norm of the
    gradient; None for all others.

    N is the sum of the weights, where clients have some.
    """
    tracker = gradient_sum(server)
    if tracker is None:
        return None
    squares: list[float] = []
    tree.map(lambda y: squares.append(float(np.vdot(y, y).real)), tracker)
    return float(np.sqrt(sum(squares))) / total_weight
