"""What runs are summed up by: numbers over seeds, and how they are written."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from focusfl.core.metrics import in_words, rises
from focusfl.studies.results import LOSS, Run
from focusfl.studies.summary import TARGET

PER_ROUND = "seconds_per_round"  # what `compare` tells of time: rounds may differ
HUGE = 1e300  # stands for infinity where numbers are interpolated


class Spread(NamedTuple):
    """Quartiles over seeds; infinite for what was never reached."""

    low: float
    mid: float
    high: float


def quartiles(values: Float[np.ndarray, "runs *rounds"]) -> np.ndarray:  # noqa: F821
    """Quartiles over runs; infinity takes part."""
    bounded = np.clip(values, -HUGE, HUGE)  # infinity times 0 is not a number
    found = np.quantile(bounded, (0.25, 0.5, 0.75), axis=0)
    found[found > HUGE / 1e9] = np.inf
    found[found < -HUGE / 1e9] = -np.inf
    return found


def sci(value: float, digits: int = 1) -> str:
    """A number as in 1.4e-15."""
    return _bare(f"{value:.{digits}e}")


def short(value: float) -> str:
    """A number in three digits, as in 0.0002 or 1e9."""
    return _bare(f"{value:.3g}")


def _bare(text: str) -> str:
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if e else text


class Number(NamedTuple):
    """Something a run is summed up by: infinite if never reached, NaN if unknown."""

    title: str
    of: Callable[[Run], float]
    form: Callable[[float], str]
    rising: bool = False  # more is better
    never: str = "never"  # the word for infinity

    def text(self, value: float) -> str:
        """The number, to be read."""
        if np.isnan(value):
            return "–"
        return self.form(value) if np.isfinite(value) else self.never


def _error(run: Run) -> float:
    return np.inf if run.row["diverged_at"] is not None else run.row["error"]


def _at_end(metric: str) -> Callable[[Run], float]:
    def number(run: Run) -> float:
        return float(run.curves[metric][-1]) if metric in run.curves else np.nan

    return number


def _to_target(axis: str) -> Callable[[Run], float]:
    def number(run: Run) -> float:
        at = run.row["rounds_to_target"]
        if axis not in run.curves:
            return np.nan
        if at is None:  # of a loss there is no target
            return np.nan if run.row["measure"] == LOSS else np.inf
        return float(np.interp(at, run.curves["round"], run.curves[axis]))

    return number


def _in_row(name: str) -> Callable[[Run], float]:
    def number(run: Run) -> float:
        value = run.row.get(name)
        return np.nan if value is None else float(value)

    return number


def _per_round(run: Run) -> float:
    rounds = run.curves["round"][-1]
    return float(run.curves["seconds"][-1] / rounds) if rounds else np.nan


GOAL, _COUNT = sci(TARGET, 0), "{:,.0f}".format
NUMBERS = {
    "lr": Number("lr", _in_row("lr"), short),
    "local_steps": Number("local steps", _in_row("local_steps"), _COUNT),
    "error": Number("error", _error, sci, never="∞"),
    "accuracy": Number("accuracy", _at_end("accuracy"), "{:.4f}".format, rising=True),
    "rounds_to_target": Number(f"rounds to {GOAL}", _to_target("round"), _COUNT),
    "vectors_to_target": Number(f"vectors to {GOAL}", _to_target("vectors_sent"), _COUNT),
    "bytes_to_target": Number(f"bytes up to {GOAL}", _to_target("bytes_up"), _COUNT),
    "rate": Number("rate per round", _in_row("rate"), "{:.4f}".format),
    "seconds": Number("seconds", lambda run: float(run.curves["seconds"][-1]), short),
    "grad_norm": Number("‖∇F(x)‖", _in_row("grad_norm"), sci),
    "tracker_norm": Number("‖y‖/N", _in_row("tracker_norm"), sci),
    "tracking_gap": Number("tracking gap", _in_row("tracking_gap"), sci),
}


def number(name: str) -> Number:
    """Give one of NUMBERS, PER_ROUND, or the last value of a clients' own metric."""
    if name in NUMBERS:
        return NUMBERS[name]
    if name == PER_ROUND:
        return Number("seconds per round", _per_round, short)
    rising = rises(name)
    form = "{:.4f}".format if rising else short
    return Number(in_words(name), _at_end(name), form, rising)


def is_of_clients(name: str) -> bool:
    """Whether a metric is one that per_client=True adds."""
    return "/" in name
