"""When a run is not worth going on from, or rests away from the optimum, and the words.

FOCUS watches y, the sum of all clients' last gradients. With several local steps and
lr * L of 1 or more, y can vanish where the gradient of F does not: see docs/theory.md.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from focusfl.algorithms import focus
from focusfl.core import Algorithm, gradient_sum, tree
from focusfl.core.result import Result
from focusfl.problems import Noisy, Problem

BLOWN_UP = 1e8  # past this, times what it was at first, a distance or norm has diverged

FIRST_GUESS = 0.1  # a step to try where nothing is known
FURTHEST = 100.0  # a step to try is at most so many times smaller than one that broke
SPIKE, LEARNED = 2.0, 0.9  # shares of the first loss: a rise, and hardly a fall
PATIENCE = 20  # rounds after which the loss should be below the first one
NEAR = 0.9  # share of the largest step from which on it is worth a warning
FEW = 1 << 22  # numbers of data up to which L is worked out to warn by
SOLVED = 1e-6  # the true gradient beside the first


class Diverged(ArithmeticError):
    """Raised instead of a result when a run diverges and on_divergence="raise"."""


class DivergenceWarning(UserWarning):
    """Warns that a run diverged and its result ends early, where on_divergence="warn"."""


class StepWarning(UserWarning):
    """Warns that a network did not learn at its step: the loss rose or did not fall."""


def sane(metrics: Mapping[str, Any], limit: Any) -> Any:
    """Whether a model with these metrics is still worth going on from."""
    is_sane = True
    for value in metrics.values():
        is_sane = is_sane & (value - value == 0)  # finite, in any array library
    if "distance" in metrics:
        is_sane = is_sane & (metrics["distance"] <= limit)
    return is_sane


def number(name: str, value: Any) -> float:
    """A metric as a number; raise if it is more than one."""
    if np.ndim(value):
        raise ValueError(f"a metric must be one number; {name} has shape {tuple(np.shape(value))}.")
    return float(value)


def limit_of(first: Mapping[str, Any]) -> float:
    """The distance past which a run that began with these metrics has diverged.

    Raise if it cannot begin: metrics that are not finite at x0 say nothing later.
    """
    for name, value in first.items():
        if not np.isfinite(number(name, value)):
            raise ValueError(
                f"{name} is {float(value)} at x0; look for NaN, infinity or very large "
                "numbers in the data, or start from another x0."
            )
    return BLOWN_UP * max(1.0, float(first.get("distance", 0.0)))


def finish(results: Sequence[Result], on_divergence: str) -> None:
    """Raise or warn if runs diverged, or warn if a network did not learn.

    Call it from what a user calls: warnings name the line that called that. With "ignore"
    nothing is said.
    """
    if on_divergence == "ignore":
        return
    diverged = [result for result in results if result.diverged_at is not None]
    if diverged:
        message = _divergence_message(diverged, len(results))
        if on_divergence == "raise":
            raise Diverged(message)
        warnings.warn(message, DivergenceWarning, stacklevel=3)
    if worse := [result for result in results if _got_worse(result)]:
        losses = ", ".join(
            f"from {run.metrics['loss'][0]:.3g} to {np.nanmax(run.metrics['loss']):.3g} at "
            f"lr = {run.lr:.3g}"
            for run in worse[:4]
        )
        smaller = min(FIRST_GUESS, min(run.lr for run in worse) / 4)
        message = (
            f"the loss went {losses} and ended no better than it began: the step does not "
            f'suit this algorithm. Try lr = {smaller:.2g}, or lr="auto", which tries some.'
        )
        warnings.warn(message, StepWarning, stacklevel=3)


def _got_worse(result: Result) -> bool:
    """Whether a network did not learn: the loss doubled and ended near or above the first one;
    or, of a classifier, it is no less after PATIENCE rounds."""
    loss = result.metrics.get("loss")
    if loss is None or "distance" in result.metrics or result.diverged_at is not None:
        return False
    if not result.metrics["gradients"].any():
        return False
    rose = np.nanmax(loss) > SPIKE * loss[0] and loss[-1] > LEARNED * loss[0]
    stuck = len(loss) > PATIENCE and loss[-1] >= loss[0]
    return bool(rose or stuck and "accuracy" in result.metrics)


def _divergence_message(diverged: Sequence[Result], runs: int) -> str:
    places = [f"in round {run.diverged_at} at lr = {run.lr:.3g}" for run in diverged[:4]]
    more = f" and {len(diverged) - 4} more" if len(diverged) > 4 else ""
    subject = "the run" if runs == 1 else f"{len(diverged)} of {runs} runs"
    smaller = min(_smaller(run.lr, run.diverged_at or 0) for run in diverged)
    message = (
        f"{subject} diverged {', '.join(places)}{more}. A result ends before that round. "
        f"Try lr = {smaller:.2g} or below"
    )
    if any(run.diverged_at == 0 for run in diverged):
        message += "; if round 0 breaks at any lr, look for NaN or infinity in the data"
    return message + "."


def _smaller(lr: float, rounds: int) -> float:
    """A step to try after one that lasted for so many rounds.

    Who passed BLOWN_UP after r rounds grew by at most its r-th root in each, and growth is in
    proportion to the step. In a first round several local steps have grown, which calls for no
    step a million times smaller: that would stand still. A step above 100 tells nothing: .1 is a
    first guess.
    """
    factor = max(4.0, BLOWN_UP ** (1 / max(rounds, 1)))
    return min(lr / factor, FIRST_GUESS) if lr > 100 else lr / min(factor, FURTHEST)


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


def warn_of_rest(algorithm: Algorithm, problem: Problem, result: Result, local_steps: int) -> None:
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
    squares = (float(np.vdot(y, y).real) for y in tree.leaves(tracker))
    return float(np.sqrt(sum(squares))) / total_weight
