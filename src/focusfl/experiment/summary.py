"""What a curve says: how far it came, how fast, and whether it will get there."""

from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from focusfl import tree
from focusfl.algorithms import focus
from focusfl.engines.run import Result

EXACT = 1e-10  # a relative error that ends below this is rounding, not bias
TARGET = 1e-8
AT_ONCE = 1 << 24  # numbers of clients' memory that are looked at together
FALLING = 0.8  # the last tenth lies below this share of the tenth before: not done yet

Curve = Float[np.ndarray, " points"]


class Summary(NamedTuple):
    """One run in one line."""

    error: float  # relative distance to the optimum, or norm of the gradient to the
    # first where the optimum is not known; median of the last tenth
    rounds_to_target: int | None  # first round with an error of at most TARGET
    rate: float | None  # fitted factor per round on the way down
    verdict: Literal["exact", "biased", "diverged", "unfinished"]
    diverged_at: int | None


def errors(result: Result) -> tuple[str, Curve]:
    """What a run is judged by, and its name: the distance to x*, where x* is known.

    One entry for each of `result.evaluated`.
    """
    if "distance" in result.metrics:
        return "relative error", result.metrics["distance"][result.evaluated]
    norm = result.metrics["grad_norm"][result.evaluated]
    return "relative gradient", norm / (norm[0] or 1.0)


def summarise(result: Result) -> Summary:
    """Put one run in one line."""
    rounds, (_, distance) = result.evaluated, errors(result)
    tenth = max(1, len(distance) // 10)
    error = float(np.median(distance[-tenth:]))
    before = float(
        np.median(distance[-2 * tenth : -tenth] if len(distance) > 1 else error)
    )
    reached = np.flatnonzero(distance <= TARGET)
    verdict: Literal["exact", "biased", "diverged", "unfinished"] = "biased"
    if result.diverged_at is not None:
        verdict = "diverged"
    elif error <= EXACT:
        verdict = "exact"
    elif error < FALLING * before:
        verdict = "unfinished"
    return Summary(
        error=error,
        rounds_to_target=int(rounds[reached[0]]) if len(reached) else None,
        rate=None if verdict == "diverged" else fitted_rate(rounds, distance, error),
        verdict=verdict,
        diverged_at=result.diverged_at,
    )


def fitted_rate(rounds: np.ndarray, distance: Curve, end: float) -> float | None:
    """The factor per round of the line through log(distance) until it levels off."""
    levelled = np.flatnonzero(distance <= max(3 * end, 1e-12))
    until = int(levelled[0]) if len(levelled) else len(distance)
    if until < 5:  # too few points for a line
        return None
    slope = np.polyfit(rounds[:until], np.log(distance[:until]), 1)[0]
    return float(np.exp(slope))


def tracking_gap(result: Result) -> float | None:
    """How far y is from the sum of all stored gradients, beside the sum of their norms.

    Only FOCUS keeps both; exact arithmetic would give 0.
    """
    if not isinstance(result.server, focus.Server) or result.clients is None:
        return None
    square, norms = 0.0, np.zeros(())

    def add(y: Any, grads: Any) -> None:
        nonlocal square, norms
        left, squares = np.ravel(y).astype(float), []
        at_once = max(1, AT_ONCE // left.size)
        for first in range(0, len(grads), at_once):  # there may be too many for memory
            some = np.asarray(grads[first : first + at_once], float)
            some = some.reshape(len(some), -1)
            left -= some.sum(0)
            squares.append((some**2).sum(1))
        square += float((left**2).sum())
        norms = norms + np.concatenate(squares)

    tree.map(add, result.server.y, result.clients.grad)
    total = float(np.sqrt(norms).sum())
    return float(np.sqrt(square)) / total if total else 0.0
