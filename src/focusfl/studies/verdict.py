"""What a curve of errors has shown, told apart by the curve itself and by theory.

A verdict is one word and the sentence that gives its reason. It claims no more than was
seen: a curve that still falls is "falling", one that is too short, or flat where theory
says that it must go on, is "unclear".

A tracker that rests where the gradient does not vanish is "biased" whatever its curve
says: `summary.summarise` has that from the run itself, and `runner.run_group` adds who
has spent a privacy budget to the reason.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

Word = Literal[
    "exact", "falling", "biased", "noisy", "oscillating", "unclear", "absent", "diverged"
]
MEANING: dict[str, str] = {
    "exact": "ends within rounding of the optimum",
    "falling": "was still falling when the rounds were over",
    "biased": "has settled away from the optimum",
    "noisy": "stays where the noise of its gradients keeps it",
    "oscillating": "goes up and down, and neither settles nor falls",
    "unclear": "these rounds are too few, or too noisy, to tell",
    "absent": "nobody took part, so nothing happened",
    "diverged": "grew without bound",
}

EXACT = 1e-10  # a relative error that ends below this is rounding, not bias
FEWEST = 20  # evaluations that a trend can be read from
PARTS = 12  # medians that the last part of a curve is judged by
SETTLED = 0.01  # share of its value that a settled curve would still lose in a run
SURE = 3.0  # a move counts if it is so many times the scatter of the medians
WIDE = 3.0  # a curve oscillates if its upper decile is so many times its lower one
NEAR = 3.0  # a level is the predicted one if they differ by at most this factor
SLOWING = 0.5  # a fall slows down if its last slope is below this share of the first
MOVED = 0.5  # share of its first value below which a curve has got somewhere


class Verdict(NamedTuple):
    word: Word
    reason: str


class Expected(NamedTuple):
    """What is known of a run before it is looked at."""

    bias: float | None = None  # where theory says that it ends; None: it does not say
    noisy: bool = False  # whether gradients are drawn
    rate: float | None = None  # factor per round, where theory has one
    slowed: bool = False  # whether steps became much smaller: that too ends a fall


NOTHING = Expected()


class Trend(NamedTuple):
    """How the last three fifths of a curve go, in medians of twelve parts."""

    level: float  # the median of the last four
    fall: float  # log of the first four over the last four
    slope: float  # log per round, over the last four
    earlier: float  # the same over the first four
    scatter: float  # of the medians' logs around a smooth curve
    low: float
    high: float  # deciles of the values themselves

    @property
    def falls(self) -> bool:
        return self.slope < 0 and self.fall > max(SURE * self.scatter, 1e-9)


def judge(
    rounds: Int[np.ndarray, " points"],
    errors: Float[np.ndarray, " points"],
    *,
    diverged_at: int | None = None,
    visits: int | None = None,
    expected: Expected = NOTHING,
    target: float | None = None,
) -> Verdict:
    """Give the verdict on one run from its relative errors at the rounds evaluated.

    `visits` counts all participations of the run, where known; `target` is an error at
    which the run was told to stop.
    """
    if verdict := _no_curve(rounds, diverged_at, visits):
        return verdict
    tenth = max(1, len(errors) // 10)
    error = float(np.median(errors[-tenth:]))
    if error <= EXACT:
        return Verdict("exact", f"relative error {error:.0e}: rounding")
    if target is not None and errors[-1] <= target:
        return Verdict("falling", f"stopped at its target of {target:.0e}")
    if len(errors) < FEWEST:
        return _too_few(errors)
    trend = _trend(rounds, errors)
    if trend.falls:
        return _still_falling(trend, float(errors[0]), rounds, expected)
    return _flat(trend, float(errors[0]), expected)


def judge_loss(
    rounds: Int[np.ndarray, " points"],
    losses: Float[np.ndarray, " points"],
    *,
    diverged_at: int | None = None,
    visits: int | None = None,
) -> Verdict:
    """Give the verdict on a run of which the loss alone is known: does it still fall?

    How low it can get nobody knows, so it is neither exact nor biased.
    """
    if verdict := _no_curve(rounds, diverged_at, visits):
        return verdict
    if len(losses) < FEWEST:
        return _too_few(losses)
    # Any sign, any size: a trend of logarithms is one of the values themselves.
    span = float(np.ptp(losses)) or 1.0
    trend = _trend(rounds, np.exp((losses - losses[0]) / span))
    level = losses[0] + span * np.log(trend.level)
    lost = -trend.slope * (rounds[-1] - rounds[0])  # of the span, in another such run
    if trend.falls and lost >= SETTLED:
        return Verdict("falling", f"the loss still falls: {losses[0]:.3g} to {level:.3g}")
    return Verdict(
        "unclear",
        f"the loss no longer falls at {level:.3g}, and how low it can get is not known",
    )


def _no_curve(rounds: np.ndarray, diverged_at: int | None, visits: int | None) -> Verdict | None:
    """The verdict where there is no curve to look at."""
    if diverged_at is not None:
        return Verdict("diverged", f"broke in round {diverged_at}; lower lr")
    if visits == 0:
        return Verdict("absent", f"nobody took part in any of {rounds[-1]} rounds")
    return None


def _too_few(curve: np.ndarray) -> Verdict:
    return Verdict("unclear", f"{len(curve)} evaluations are too few; {FEWEST} would do")


def _still_falling(trend: Trend, first: float, rounds: np.ndarray, expected: Expected) -> Verdict:
    lost = -np.expm1(trend.slope * (rounds[-1] - rounds[0]))  # in another such run
    if lost < SETTLED and expected.bias != 0:
        return _flat(trend, first, expected)
    factor = float(np.exp(trend.slope))
    if expected.slowed:
        end = ", with steps that become smaller: not a pace to count on"
    elif expected.bias:
        end = f"; theory puts its end at {expected.bias:.3g}"
    else:
        away = np.log(EXACT / trend.level) / trend.slope
        end = f"; at this pace {EXACT:.0e} is {_about(away)} rounds away"
        if expected.bias is None and trend.slope > SLOWING * trend.earlier:
            end = ", and slows down: it may level off"
    return Verdict("falling", f"falls by a factor {_factor(factor)} a round{end}")


def _flat(trend: Trend, first: float, expected: Expected) -> Verdict:
    level, bias = trend.level, expected.bias
    if expected.slowed:
        return Verdict(
            "unclear",
            f"stands at {level:.3g} while its steps became small: that may be the end "
            "of the schedule, not of the fall",
        )
    if trend.high > WIDE * trend.low and not expected.noisy and not bias:
        return Verdict(
            "oscillating",
            f"swings between {trend.low:.3g} and {trend.high:.3g} without a trend; "
            "a smaller lr may help",
        )
    if bias and 1 / NEAR < level / bias < NEAR:
        return Verdict("biased", f"settled at {level:.3g}; predicted {bias:.3g}")
    if expected.noisy:
        return Verdict("noisy", f"levelled off at {level:.3g} under gradient noise; lower lr")
    if bias == 0:
        rate = f" at {_factor(expected.rate)} a round" if expected.rate else ""
        return Verdict(
            "unclear",
            f"hardly moves at {level:.3g}, though it can only rest at the optimum"
            f"{rate}: too few rounds, or lr too small",
        )
    if level > 1.01 * first:
        return Verdict(
            "unclear",
            f"is farther away than it began ({level / first:.2g} times the first "
            "error): too few rounds, or lr too large",
        )
    if level > MOVED * first:
        return Verdict(
            "unclear",
            f"has hardly left where it began ({level / first:.2f} of the first error): "
            "too few rounds, or lr too small",
        )
    return Verdict("biased", f"settled at {level:.3g}")


def _trend(rounds: np.ndarray, errors: np.ndarray) -> Trend:
    late = slice(2 * len(errors) // 5, None)
    values = np.maximum(errors[late], np.finfo(float).tiny)
    when = np.array([part.mean() for part in np.array_split(rounds[late], PARTS)])
    logs = np.log([np.median(part) for part in np.array_split(values, PARTS)])
    third = PARTS // 3
    x = np.arange(PARTS)
    # A cubic leaves what neither a fall nor its slowing down explains.
    left = logs - np.polyval(np.polyfit(x, logs, 3), x)
    scatter = float(np.sqrt((left**2).sum() / (PARTS - 4)))
    slope, earlier = (
        float(np.polyfit(when[part], logs[part], 1)[0])
        for part in (slice(-third, None), slice(third))
    )
    low, high = np.quantile(values, [0.1, 0.9])
    return Trend(
        level=float(np.exp(np.median(logs[-third:]))),
        fall=float(np.median(logs[:third]) - np.median(logs[-third:])),
        slope=slope,
        earlier=earlier,
        scatter=scatter,
        low=float(low),
        high=float(high),
    )


def _factor(rate: float) -> str:
    """A factor per round, with as many digits as tell it from 1."""
    digits = max(3, int(np.ceil(-np.log10(max(abs(1 - rate), 1e-15)))) + 2)
    return f"{rate:.{min(digits, 12)}f}".lstrip("0")


def _about(count: float) -> str:
    """A whole number to two digits."""
    size = 10 ** max(0, int(np.log10(max(count, 1))) - 1)
    return f"about {round(count / size) * size:,}"
