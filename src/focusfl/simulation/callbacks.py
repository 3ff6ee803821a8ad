"""What watches a run between rounds: targets that end it, and functions of the user."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from focusfl.core import Algorithm
from focusfl.core.tree import Tree, nbytes
from focusfl.core.validation import accepts, check_positive, is_number, shown, unknown

# Called with the rounds done and the metrics by then; may say that it is enough.
Progress = Callable[[int, Mapping[str, Any]], bool | None]
Number = float | int
BudgetSpent = Callable[[Any], Any]  # participants so far, in all -> whether to stop
Thresholds = Mapping[str, Any]  # numbers by metric; checked here, in words


@dataclass(frozen=True)
class Stop:
    """End a run at the first of these that it meets; what is not named does not count.

    Metrics are looked at in the rounds that are evaluated, so a run ends within one
    evaluation of its target. `seconds` are looked at between chunks of rounds, and
    count from the call.
    """

    tolerance: Number | None = None  # distance; grad_norm to the first if x* is unknown
    accuracy: Number | None = None  # at least this
    below: Thresholds = field(default_factory=dict, hash=False)  # a metric at most this
    above: Thresholds = field(default_factory=dict, hash=False)  # or at least this
    seconds: Number | None = None
    vectors: Number | None = None  # of the model's size, sent both ways in all
    bytes_up: Number | None = None  # sent by clients in all, as metrics["bytes_up"]

    def __post_init__(self):
        for name in ("tolerance", "accuracy", "seconds", "vectors", "bytes_up"):
            value = getattr(self, name)
            if value is not None:
                check_positive(name, value)
        if self.accuracy is not None and self.accuracy > 1:
            raise ValueError(f"accuracy must be a share of at most 1; got {self.accuracy}.")
        for side in ("below", "above"):
            bounds = getattr(self, side)
            if not isinstance(bounds, Mapping) or not all(
                is_number(bound) and bound == bound for bound in bounds.values()
            ):
                raise ValueError(
                    f"{side} must name metrics and a number for each, as in "
                    f'{{"loss": 0.1}}; got {bounds!r}.'
                )

    def targets(self, first: Mapping[str, Any]) -> "Targets":
        """The thresholds of a run that begins with these metrics."""
        below, above = dict(self.below), dict(self.above)
        if self.accuracy is not None:
            above["accuracy"] = min(self.accuracy, above.get("accuracy", 1.0))
        if self.tolerance is not None:
            known = "distance" in first
            name = "distance" if known else "grad_norm"
            unit = 1.0 if known else float(first.get(name, 0.0)) or 1.0
            below[name] = max(self.tolerance * unit, below.get(name, 0.0))
        for name in (*below, *above):
            if name not in first:
                raise ValueError("stop: " + unknown("metric", name, list(first)))
        return Targets(below, above)

    def budget(self, algorithm: Algorithm, num_clients: int, x: Tree) -> BudgetSpent | None:
        """Make what says whether all `vectors` or `bytes_up` are sent once so many have
        taken part, over all rounds; None if there is no such budget."""
        warm = num_clients if algorithm.starts_warm else 0
        down, up = algorithm.traffic(x)
        both = [(down + up, self.vectors), (up * nbytes(x), self.bytes_up)]
        budgets = [(each, most) for each, most in both if most is not None]

        def spent(participations: Any) -> Any:
            met: Any = False
            for each, most in budgets:
                met = met | (each * (warm + participations) >= most)
            return met

        return spent if budgets else None

    def watch(self, progress: Progress | None, began: float) -> Progress | None:
        """Wrap `progress` so that it also ends the run after `seconds`."""
        if self.seconds is None:
            return progress
        end = began + self.seconds

        def watch(done: int, metrics: Mapping[str, Any]) -> bool:
            enough = bool(progress and progress(done, metrics))
            return enough or time.monotonic() > end

        return watch


Callbacks = Stop | Progress | Sequence[Stop | Progress]


def split_callbacks(callbacks: Callbacks) -> tuple[Stop, Progress | None]:
    """Separate the `Stop` from the functions, which become one that calls them all.

    Raise ValueError on anything else, and on more than one `Stop`.
    """
    entries = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    stops = [entry for entry in entries if isinstance(entry, Stop)]
    functions: list[Any] = [entry for entry in entries if not isinstance(entry, Stop)]
    for function in functions:
        if isinstance(function, type) or not accepts(function, 0, {}):
            hint = "; call it" if function is Stop else ""
            raise ValueError(
                "callbacks must be a Stop, a function of the rounds done and the metrics, "
                f"or a list of these; got {shown(function)}{hint}."
            )
    if len(stops) > 1:
        raise ValueError(f"callbacks must hold at most one Stop; got {len(stops)}.")

    def call_all(done: int, metrics: Mapping[str, Any]) -> bool:
        # A list, not a generator: every function hears of the round that ends the run.
        return any([function(done, metrics) for function in functions])

    return stops[0] if stops else Stop(), call_all if functions else None


class Targets(NamedTuple):
    """Thresholds by metric."""

    below: dict[str, Any]
    above: dict[str, Any]

    def met(self, metrics: Mapping[str, Any]) -> Any:
        """Whether some metric has reached its threshold; of arrays, entry by entry."""
        met: Any = False
        for name, threshold in self.below.items():
            met = met | (metrics[name] <= threshold)
        for name, threshold in self.above.items():
            met = met | (metrics[name] >= threshold)
        return met
