"""What trackers share: runs as parameters, curves and a summary."""

import abc
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl.core.extras import missing
from focusfl.studies.store import IDENTITY, Run

if TYPE_CHECKING:
    from focusfl.simulation.callbacks import Progress

POINTS = 1000  # at most, of a curve
# Of a run's row; all else in it is what came out.
PARAMETERS = (*IDENTITY, "why_lr", "schedule", "rounds", "measure", "key")

Facts = Mapping[str, bool | int | float | str]


class Record(abc.ABC):
    """One run, as a tracker keeps it."""

    @abc.abstractmethod
    def log(self, rounds: Sequence[int], curves: Mapping[str, Sequence[float]]) -> None:
        """Add points to curves: a value of each after so many rounds."""

    @abc.abstractmethod
    def end(self, summary: Facts, ok: bool = True) -> None:
        """Say what came out, and that there is no more to come."""


class Tracker(abc.ABC):
    """Keeps records of runs. Close it, or use it in a `with`, when they have ended."""

    def __init__(self) -> None:
        self._running: list[Record] = []

    @abc.abstractmethod
    def begin(self, name: str, parameters: Facts) -> Record:
        """Open the record of a run."""

    def __call__(self, run: Run) -> None:
        """Keep a finished run: its parameters, at most POINTS of its curves and what came out."""
        parameters, results = facts(run)
        name = {key: run.row[key] for key in IDENTITY} | {"lr": f"{run.row['lr']:g}"}
        record = self.begin("/".join(map(str, name.values())), parameters)
        points = thinned(len(run.curves["round"]))
        curves = {key: run.curves[key][points].astype(float).tolist() for key in run.metrics}
        record.log(run.curves["round"][points].tolist(), curves)
        record.end(results)

    def progress(self, name: str, **parameters: Any) -> "Progress":
        """Open the record of a run that is to start; give what to tell of its rounds.

        Of several runs side by side, each has its own curves: distance/0, distance/1.
        """
        record = self.begin(name, _flat(parameters))
        self._running.append(record)

        def log(done: int, metrics: Mapping[str, Any]) -> None:
            points = {
                "/".join((name, *map(str, place))): [float(value)]
                for name, values in metrics.items()
                for place, value in np.ndenumerate(np.asarray(values))
            }
            record.log([int(done)], points)

        return log

    def close(self, ok: bool = True) -> None:
        """End what `progress` has opened."""
        while self._running:
            self._running.pop().end({}, ok)

    def __enter__(self) -> "Tracker":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self.close(ok=kind is None)


def facts(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of a run and its results, without what is not known."""
    row = {k: v for k, v in _flat(run.row).items() if k not in run.metrics}
    parameters = {name: value for name, value in row.items() if name in PARAMETERS}
    return parameters, {name: value for name, value in row.items() if name not in PARAMETERS}


def thinned(length: int) -> np.ndarray:
    """The places of a curve's points that are kept: first, last, and evenly between."""
    return np.linspace(0, length - 1, min(length, POINTS)).round().astype(int)


def need(package: str) -> None:
    """Raise ValueError unless a package is installed."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:  # a folder of that name is no package
        raise ValueError(missing("this tracker needs", package, package))


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table without tables in it: theory.rate becomes theory_rate."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}_")
        elif value is not None:
            plain = value.item() if isinstance(value, np.generic) else value
            simple = isinstance(plain, bool | int | float | str)
            flat[prefix + name] = plain if simple else str(plain)
    return flat
