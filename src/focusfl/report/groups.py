"""Runs that differ in their seed alone, and what they say together."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from focusfl.experiment.results import Results, Run
from focusfl.experiment.summary import TARGET
from focusfl.report.figure import looks

LINES = ("-", (0, (6, 2)), (0, (3, 1.5)), (0, (6, 1.5, 1.5, 1.5)), (0, (1.5, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HUGE = 1e300  # stands for infinity where numbers are interpolated


class Spread(NamedTuple):
    """Quartiles over seeds; infinite for what was never reached."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one algorithm in one scene, with one step size, over all seeds."""

    scene: str
    algorithm: str
    lr: float | None  # None: each run has chosen its own
    local_steps: int
    label: str  # the same in every scene
    runs: list[Run]

    @property
    def row(self) -> dict[str, Any]:
        """What the first run says of itself."""
        return self.runs[0].row

    def numbers(self, what: str) -> np.ndarray:
        """One of NUMBERS, for every run."""
        return np.array([NUMBERS[what].of(run) for run in self.runs], float)

    def spread(self, what: str) -> Spread | None:
        """Quartiles of one of NUMBERS; None where no run knows it."""
        values = self.numbers(what)
        known = values[~np.isnan(values)]
        return Spread(*quartiles(known).tolist()) if len(known) else None

    @property
    def diverged(self) -> bool:
        """Whether half of the runs have, or more."""
        return bool(np.median(np.isinf(self.numbers("error"))) > 0)

    def verdict(self) -> str:
        """What became of the runs: one word where they agree, else all words."""
        words: dict[str, list[dict]] = {}
        for run in self.runs:
            words.setdefault(run.row["verdict"], []).append(run.row)
        if len(words) == 1:
            return "".join(_told(word, rows) for word, rows in words.items())
        return ", ".join(
            f"{_told(word, rows)} ({len(rows)} of {len(self.runs)})"
            for word, rows in words.items()
        )


def _told(word: str, rows: list[dict]) -> str:
    if word == "diverged":
        return f"diverged in round {int(np.median([r['diverged_at'] for r in rows])):,}"
    if word == "biased":
        return f"biased at {sci(float(np.median([r['error'] for r in rows])), 0)}"
    return word


def grouped(found: Results) -> list[Group]:
    """Put together what differs in its seed alone, in the order of the study."""
    by_key: dict[tuple, list[Run]] = {}
    for scene in dict.fromkeys(run.row["participation"] for run in found.runs):
        for run in found.runs:
            if run.row["participation"] == scene:
                by_key.setdefault(_key(run.row), []).append(run)
    # A label says what varies within a scene: between scenes the panels do.
    steps, counts = _varying(by_key, 2), _varying(by_key, 3)
    groups = []
    for (scene, name, lr, local_steps), runs in by_key.items():
        told = []
        if name in steps:
            told.append("lr auto" if lr is None else f"lr {short(lr)}")
        if name in counts:
            told.append(f"{local_steps} step{'s' * (local_steps != 1)}")
        label = f"{name} ({', '.join(told)})" if told else name
        groups.append(Group(scene, name, lr, local_steps, label, runs))
    return groups


def _key(row: Mapping[str, Any]) -> tuple:
    lr = row["lr"] if row.get("why_lr") is None else None
    return row["participation"], row["algorithm"], lr, row["local_steps"]


def _varying(keys: Iterable[tuple], which: int) -> set[str]:
    """The algorithms of which some scene has several values in this place."""
    seen: dict[tuple, set] = {}
    for key in keys:
        seen.setdefault(key[:2], set()).add(key[which])
    return {name for (_, name), values in seen.items() if len(values) > 1}


def study_names(studies: list[Results]) -> list[str]:
    """What to call studies: their names, or folders where two have the same name."""
    names = [str(found.manifest["name"]) for found in studies]
    if len(set(names)) == len(names):
        return names
    return [str(found.folder) for found in studies]


def by_scene(groups: Iterable[Group]) -> dict[str, list[Group]]:
    """The groups of every scene."""
    found: dict[str, list[Group]] = {}
    for one in groups:
        found.setdefault(one.scene, []).append(one)
    return found


def group_looks(groups: Iterable[Group]) -> dict[str, dict[str, Any]]:
    """Colour, line and marker by label: a colour per algorithm, a line per variant."""
    labels = dict.fromkeys((one.label, one.algorithm) for one in groups)
    algorithms = list(dict.fromkeys(name for _, name in labels))
    own, found = looks(algorithms), {}
    for number, name in enumerate(algorithms):
        variants = [label for label, of in labels if of == name]
        for turn, label in enumerate(variants):
            found[label] = {**own[name], "marker": MARKERS[number % len(MARKERS)]}
            if len(variants) > 1:
                found[label]["linestyle"] = LINES[turn % len(LINES)]
    return found


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


def _accuracy(run: Run) -> float:
    return float(run.curves["accuracy"][-1]) if "accuracy" in run.curves else np.nan


def _to_target(axis: str) -> Callable[[Run], float]:
    def number(run: Run) -> float:
        at = run.row["rounds_to_target"]
        if at is None:
            return np.inf
        return float(run.curves[axis][np.searchsorted(run.curves["round"], at)])

    return number


def _in_row(name: str) -> Callable[[Run], float]:
    def number(run: Run) -> float:
        value = run.row.get(name)
        return np.nan if value is None else float(value)

    return number


_GOAL, _COUNT = sci(TARGET, 0), "{:,.0f}".format
NUMBERS = {
    "lr": Number("lr", _in_row("lr"), short),
    "local_steps": Number("local steps", _in_row("local_steps"), _COUNT),
    "error": Number("error", _error, sci, never="∞"),
    "accuracy": Number("accuracy", _accuracy, "{:.4f}".format, rising=True),
    "rounds_to_target": Number(f"rounds to {_GOAL}", _to_target("round"), _COUNT),
    "vectors_to_target": Number(
        f"vectors to {_GOAL}", _to_target("vectors_sent"), _COUNT
    ),
    "rate": Number("rate per round", _in_row("rate"), "{:.4f}".format),
    "seconds": Number("seconds", lambda run: float(run.curves["seconds"][-1]), short),
    "tracking_gap": Number("tracking gap", _in_row("tracking_gap"), sci),
}
