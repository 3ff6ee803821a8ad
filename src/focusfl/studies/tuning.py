"""Find the best step size of every algorithm of a study."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from focusfl.core.bracket import best_step, bracket
from focusfl.studies.runner import Store, Watch, run_group
from focusfl.studies.spec import StudySpec
from focusfl.studies.store import Run, alone
from focusfl.studies.summary import Summary

FACTOR = 2.0  # from one step size to the next
LARGEST_GRID = 20  # step sizes that are tried at most
LAST = 10  # evaluations that an accuracy is the mean of


class Tuned(NamedTuple):
    """The best step size that was found, and what was tried."""

    participation: str
    algorithm: str
    local_steps: int
    lr: float
    tried: tuple[float, ...]  # increasing


def tune(spec: StudySpec, folder: Path, watch: Watch | None = None) -> Iterator[Tuned]:
    """Bracket the best step of each algorithm, beginning at its first one, its half and its double.

    Runs are judged as tables judge them, by their median over seeds; what has ended is
    kept in the folder, and not run again.
    """
    spec = replace(spec, models="none")
    with alone(folder):
        for line in Store(folder, spec).damaged:
            print(line, file=sys.stderr)
        for scenario, name in product(spec.participation, spec.algorithms):
            for steps in spec.steps_of(name):
                start = spec.step_sizes(scenario, name)[0]
                if start != "auto":  # which is a choice already
                    yield _tuned(spec, (scenario, name, steps), float(start), folder, watch)


def _tuned(
    spec: StudySpec, where: tuple[str, str, int], start: float, folder: Path, watch: Watch | None
) -> Tuned:
    """Tune one algorithm in one scenario."""
    scenario, name, steps = where
    section = replace(spec.algorithms[name], local_steps=(steps,))

    def score(lrs: Sequence[float]) -> dict[float, tuple[float, float]]:
        runs = _runs(replace(
            spec, participation={scenario: spec.participation[scenario]},
            algorithms={name: replace(section, lrs=tuple(lrs))},
        ), folder, watch)  # fmt: skip
        # Of equally good ones the nearest to where it began.
        return {lr: (_median(runs, lr), abs(np.log(lr / start))) for lr in lrs}

    grid = [start / FACTOR, start, start * FACTOR]
    scores = bracket(score, grid, batch=1, max_steps=LARGEST_GRID)
    tried, best = tuple(scores), best_step(scores)
    if best in (tried[0], tried[-1]):
        raise ValueError(
            f"no best step size was found for {name}: of {len(tried)} from {tried[0]:.3g} "
            f"to {tried[-1]:.3g}, {best:.3g} is best. Begin elsewhere: --set "
            f"algorithms.{name}.lr={best:.3g}."
        )
    return Tuned(scenario, name, steps, best, tried)


def _runs(spec: StudySpec, folder: Path, watch: Watch | None) -> list[Run]:
    """All runs of a study; those that the folder does not have are run."""
    store = Store(folder, spec)
    for group in store.left():
        store.put(group, run_group(spec, group, watch, store.unfinished(group)))
    return store.everything()


def merit(run: Run) -> float:
    """Less is better: by accuracy, where runs cannot be told by how exact they are."""
    row, accuracy = run.row, run.curves.get("accuracy")
    if row["diverged_at"] is not None:
        return np.inf
    if accuracy is not None and row["measure"] != "relative error":
        return -float(np.mean(accuracy[1:][-LAST:]))
    summary = Summary(*(row[field] for field in Summary._fields))
    return summary.merit(row["rounds"])


def _median(runs: list[Run], lr: float) -> float:
    """Over seeds; of two in the middle, the worse: one of them may be infinite."""
    merits = sorted(merit(run) for run in runs if run.row["lr"] == lr)
    return merits[len(merits) // 2]
