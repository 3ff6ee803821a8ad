"""Summarise one run: its final error, its rate, and a verdict."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from focusfl.algorithms import compressed, focus, stale
from focusfl.core import gradient_sum, tree
from focusfl.core.result import Result
from focusfl.simulation.divergence import at_rest_elsewhere
from focusfl.studies.store import LOSS, measured
from focusfl.studies.verdict import NOTHING, Expected, Word, judge, judge_loss

TARGET = 1e-8
AT_ONCE = 1 << 24  # numbers of clients' memory that are looked at together

Curve = Float[np.ndarray, " points"]


class Summary(NamedTuple):
    """One run in one line."""

    error: float  # relative distance to the optimum, or norm of the gradient to the
    # first, or the loss: the first of these that is known; median of the last tenth
    rounds_to_target: int | None  # first round with an error of at most TARGET
    rate: float | None  # fitted factor per round on the way down
    verdict: Word
    reason: str  # for the verdict
    diverged_at: int | None

    def merit(self, rounds: int) -> float:
        """Less is better: the fewest rounds to the target, else the smallest error."""
        if self.diverged_at is not None:
            return np.inf
        if self.rounds_to_target is not None and self.error < TARGET:
            return self.rounds_to_target / rounds - 1  # always before those that fail
        return self.error


def errors(result: Result) -> tuple[str, Curve]:
    """What a run is judged by, and its name: see `measured`.

    One entry for each of `result.evaluated`.
    """
    at = result.evaluated
    return measured({name: values[at] for name, values in result.metrics.items()})


def summarise(
    result: Result,
    expected: Expected = NOTHING,
    target: float | None = None,
    total_weight: float | int | None = None,
) -> Summary:
    """Summarise one run.

    Args:
        result: of the run.
        expected: what is known before it is looked at.
        target: error at which the run was to stop.
        total_weight: sum of all clients' weights. With it, a run whose tracker is at
            rest while the gradient is not is called biased.
    """
    summary = _summed_up(result, expected, target)
    if total_weight is None or result.diverged_at is not None:
        return summary
    false = at_rest_elsewhere(result, total_weight)
    return summary._replace(verdict="biased", reason=false) if false else summary


def _summed_up(result: Result, expected: Expected, target: float | None) -> Summary:
    rounds, (measure, curve) = result.evaluated, errors(result)
    error = float(np.median(curve[-max(1, len(curve) // 10) :]))
    ended = {"diverged_at": result.diverged_at, "visits": _visits(result)}
    if measure == LOSS:
        word, reason = judge_loss(rounds, curve, **ended)
        return Summary(error, None, None, word, reason, result.diverged_at)
    reached = np.flatnonzero(curve <= TARGET)
    word, reason = judge(rounds, curve, **ended, expected=expected, target=target)
    return Summary(
        error=error,
        rounds_to_target=int(rounds[reached[0]]) if len(reached) else None,
        rate=None if word == "diverged" else fitted_rate(rounds, curve, error),
        verdict=word,
        reason=reason,
        diverged_at=result.diverged_at,
    )


def _visits(result: Result) -> int | None:
    """Count the gradients of all rounds: none if nobody ever took part in one. Those of
    a warm start, which is entry 0, are of no round."""
    done = result.metrics.get("gradients")
    return None if done is None else int(np.sum(done[1:]))


def fitted_rate(rounds: Int[np.ndarray, " points"], errors: Curve, end: float) -> float | None:
    """The factor per round of the line through log(error) until it levels off."""
    levelled = np.flatnonzero(errors <= max(3 * end, 1e-12))
    until = int(levelled[0]) if len(levelled) else len(errors)
    if until < 5:  # too few points for a line
        return None
    slope = np.polyfit(rounds[:until], np.log(errors[:until]), 1)[0]
    return float(np.exp(slope))


def tracking_gap(result: Result) -> float | None:
    """How far y is from the sum of all stored gradients, beside the sum of their norms.

    Each by its client's weight, and where gradients follow the model, of what they are
    taken for at x. Only FOCUS and those that track as it does keep both; exact
    arithmetic would give 0. Where FOCUS is coded, y is the sum of what was sent.
    """
    server, owed = result.server, None
    clients: Any = result.clients
    if isinstance(clients, stale.Client):
        clients = clients.inner
    if isinstance(clients, compressed.Client):
        if not isinstance(clients.inner, focus.Client):
            return None
        clients, owed = clients.inner, clients.unsent["y"]
    tracker = gradient_sum(server)
    if tracker is None or clients is None:
        return None
    square, norms = 0.0, np.zeros(())
    weights = None if result.weights is None else np.asarray(result.weights)

    def add(y: Any, grads: Any, x: Any = None, points: Any = None, owed: Any = None) -> None:
        nonlocal square, norms
        left, squares = np.ravel(y).astype(float), []
        at_once = max(1, AT_ONCE // left.size)
        for first in range(0, len(grads), at_once):  # there may be too many for memory
            some = np.asarray(grads[first : first + at_once], float)
            some = some.reshape(len(some), -1)
            if owed is not None:
                late = np.asarray(owed[first : first + at_once], float)
                some = some - late.reshape(some.shape)
            if x is not None:
                rho = np.asarray(clients.rho[first : first + at_once], float)
                way = np.asarray(x, float) - points[first : first + at_once]
                some = some + rho[:, None] * way.reshape(some.shape)
            if weights is not None:
                some = weights[first : first + at_once, None] * some
            left -= some.sum(0)
            squares.append((some**2).sum(1))
        square += float((left**2).sum())
        norms = norms + np.concatenate(squares)

    if owed is not None:
        tree.map(lambda y, g, e: add(y, g, owed=e), tracker, clients.grad, owed)
    else:
        follow = (server.x, clients.point) if hasattr(clients, "point") else ()
        tree.map(add, tracker, clients.grad, *follow)
    total = float(np.sqrt(norms).sum())
    return float(np.sqrt(square)) / total if total else 0.0
