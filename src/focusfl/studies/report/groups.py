"""Runs that differ in their seed alone, and what they say together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from focusfl.studies.report.columns import Quartiles, column, quartiles, sci, short
from focusfl.studies.report.names import label, looks, markers
from focusfl.studies.store import Run, Study
from focusfl.studies.verdict import MEANING

LINES = (
    "-", (0, (6, 2)), (0, (3, 1.5)), (0, (6, 1.5, 1.5, 1.5)), (0, (1.5, 1.5)),
    (0, (9, 2, 1.5, 2, 1.5, 2)), (0, (4, 4)),
)  # fmt: skip
GAP = "suboptimality"  # of the loss above that of the optimum


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one algorithm in one scenario, with one step size, over all seeds."""

    scenario: str
    algorithm: str
    lr: float | None  # None: each run has chosen its own
    local_steps: int
    name: str  # for people, with its local steps where they vary
    label: str  # with its step size, where that varies; the same in every scenario
    runs: list[Run]
    best: bool = True  # of its algorithm and local steps, in its scenario
    short: str = ""  # its label where only the best steps are shown

    @property
    def row(self) -> dict[str, Any]:
        """What the first run says of itself."""
        return self.runs[0].row

    def numbers(self, name: str) -> np.ndarray:
        """Give a column of numbers, by name, for every run."""
        number_of = column(name).number_of
        assert number_of, f"{name} is a column of text"
        return np.array([number_of(run) for run in self.runs], float)

    def quartiles(self, name: str) -> Quartiles | None:
        """Give quartiles of a column over runs; None where no run knows it."""
        values = self.numbers(name)
        known = values[~np.isnan(values)]
        return Quartiles(*quartiles(known).tolist()) if len(known) else None

    def median(self, name: str) -> float:
        """Give the median of a column over runs; infinite where no run knows it."""
        over_runs = self.quartiles(name)
        return np.inf if over_runs is None else over_runs.mid

    @property
    def diverged(self) -> bool:
        """Whether half of the runs have, or more."""
        return bool(np.median(np.isinf(self.numbers("error"))) > 0)

    @property
    def by_verdict(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of runs by their verdict, the most frequent first."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for run in self.runs:
            rows.setdefault(run.row["verdict"], []).append(run.row)
        return dict(sorted(rows.items(), key=lambda item: -len(item[1])))

    @property
    def word(self) -> str:
        """The verdict that all seeds agree on, or mixed."""
        return next(iter(self.by_verdict)) if len(self.by_verdict) == 1 else "mixed"

    def verdict(self) -> str:
        """Say what became of the runs: one verdict where all seeds agree, else shares."""
        if self.word == "mixed":
            return ", ".join(f"{word} {share}" for word, share in self._shares().items())
        rows = self.by_verdict[self.word]
        if self.word == "diverged":
            return f"diverged in round {int(np.median([row['diverged_at'] for row in rows])):,}"
        if self.word == "biased":
            return f"biased at {sci(float(np.median([row['error'] for row in rows])))}"
        return self.word

    def reason(self) -> str:
        """Say why: the reason of the run that ended in the middle of those with its verdict."""
        reasons = {word: _reason(word, rows) for word, rows in self.by_verdict.items()}
        if len(reasons) == 1:
            return reasons[self.word]
        shares = self._shares()
        return "; ".join(f"{word} {shares[word]}: {why}" for word, why in reasons.items())

    def _shares(self) -> dict[str, str]:
        many = len(self.runs)
        return {word: f"{len(rows)} of {many}" for word, rows in self.by_verdict.items()}

    @property
    def judged_by(self) -> str:
        """What tells a good run: the distance to x*, or what comes closest to it."""
        known = self.row["measure"] == "relative error"
        return "error" if known or self.quartiles("accuracy") is None else "accuracy"

    @property
    def score(self) -> tuple[float, ...]:
        """Less is better: rounds to the target, then the error; or the accuracy."""
        if self.judged_by == "accuracy":
            return float(self.diverged), -self.median("accuracy")
        lost = float(self.diverged)
        return lost, self.median("rounds_to_target"), self.median("error")


def grouped(study: Study) -> list[Group]:
    """Put together what differs in its seed alone, in the order of the study."""
    lowest = study.manifest["problem"].get("optimal_loss")
    return group_runs([_with_gap(run, lowest) for run in study.runs])


def group_runs(runs: list[Run]) -> list[Group]:
    """Put together what differs in its seed alone; find the best of each grid."""
    by_key: dict[tuple, list[Run]] = {}
    for scenario in dict.fromkeys(run.row["participation"] for run in runs):
        for run in runs:
            if run.row["participation"] == scenario:
                by_key.setdefault(_key(run.row), []).append(run)
    # A label says what varies within a scenario: between scenarios the panels do.
    steps, counts = _varying(by_key, 2), _varying(by_key, 3)
    groups = []
    for (scenario, name, lr, local_steps), members in by_key.items():
        count = [f"{local_steps} step{'s' * (local_steps != 1)}"] * (name in counts)
        step = ["lr auto" if lr is None else f"lr {short(lr)}"] * (name in steps)
        labels = _label(name, count), _label(name, step + count)
        groups.append(Group(scenario, name, lr, local_steps, *labels, members))
    return _with_best(groups)


def _reason(word: str, rows: list[dict[str, Any]]) -> str:
    middle = sorted(rows, key=lambda row: row["error"])[len(rows) // 2]
    return str(middle.get("reason") or MEANING[word]).rstrip(".")


def _with_best(groups: list[Group]) -> list[Group]:
    """Mark the best step of every grid; name it where all scenarios have the same."""
    grids: dict[tuple, dict[str, list[Group]]] = {}
    for group in groups:
        scenarios = grids.setdefault((group.algorithm, group.local_steps), {})
        scenarios.setdefault(group.scenario, []).append(group)
    marked = {}
    for scenarios in grids.values():
        bests = [min(grid, key=lambda group: group.score) for grid in scenarios.values()]
        many = max(map(len, scenarios.values()))
        name = bests[0].label  # which names the step, if there are several
        if many > 1 and len({best.lr for best in bests}) > 1:
            name = f"{bests[0].name}, best of {many} lr"
        for grid in scenarios.values():
            for group in grid:
                marked[id(group)] = replace(group, best=group in bests, short=name)
    return [marked[id(group)] for group in groups]


def _label(name: str, differences: list[str]) -> str:
    return f"{label(name)} ({', '.join(differences)})" if differences else label(name)


def _with_gap(run: Run, lowest: float | None) -> Run:
    """Add F - F*, where F* is known."""
    if lowest is None or "loss" not in run.curves:
        return run
    # Closer than the last digit of F* no difference can be told, nor its sign.
    gap = np.maximum(run.curves["loss"] - lowest, np.spacing(abs(lowest)))
    return replace(run, curves={**run.curves, GAP: gap})


def _key(row: Mapping[str, Any]) -> tuple:
    lr = row["lr"] if row.get("why_lr") is None else None
    return row["participation"], row["algorithm"], lr, row["local_steps"]


def _varying(keys: Iterable[tuple], which: int) -> set[str]:
    """The algorithms of which some scenario has several values in this place."""
    seen: dict[tuple, set] = {}
    for key in keys:
        seen.setdefault(key[:2], set()).add(key[which])
    return {name for (_, name), values in seen.items() if len(values) > 1}


def study_names(studies: list[Study]) -> list[str]:
    """What to call studies: their names, or folders where two have the same name."""
    names = [str(study.manifest["name"]) for study in studies]
    if len(set(names)) == len(names):
        return names
    return [str(study.folder) for study in studies]


def by_scenario(groups: Iterable[Group]) -> dict[str, list[Group]]:
    """The groups of every scenario."""
    scenarios: dict[str, list[Group]] = {}
    for group in groups:
        scenarios.setdefault(group.scenario, []).append(group)
    return scenarios


def bests(groups: Iterable[Group]) -> list[Group]:
    """The best step of each algorithm and number of local steps, in each scenario."""
    return [group for group in groups if group.best]


def by_step(groups: Iterable[Group]) -> dict[str, list[Group]]:
    """The groups of one scenario that form a grid of step sizes, each grid in order."""
    grids: dict[str, list[Group]] = {}
    for group in groups:
        if group.lr is not None:
            grids.setdefault(group.short, []).append(group)
    return {
        name: sorted(grid, key=lambda group: group.row["lr"])
        for name, grid in grids.items()
        if len(grid) > 1
    }


def group_looks(
    groups: Iterable[Group], *, short: bool = False, among: Iterable[str] = ()
) -> dict[str, dict[str, Any]]:
    """Colour, line and marker by label: a colour per algorithm, a line per variant.

    `among` are the algorithms of everything that is shown with them.
    """
    labels = dict.fromkeys(
        (group.short if short else group.label, group.algorithm) for group in groups
    )
    algorithms = list(dict.fromkeys(name for _, name in labels))
    everybody = list(dict.fromkeys([*among, *algorithms]))
    base, marks = looks(everybody), markers(everybody)
    by_label = {}
    for name in algorithms:
        variants = [label for label, algorithm in labels if algorithm == name]
        for turn, variant in enumerate(variants):
            by_label[variant] = {**base[name], "marker": marks[name]}
            if len(variants) > 1:
                by_label[variant]["linestyle"] = LINES[turn % len(LINES)]
    return by_label
