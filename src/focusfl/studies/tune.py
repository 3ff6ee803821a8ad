"""Find the best step size of every algorithm of a study, by trying more and less."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from focusfl.studies.cache import ResultCache
from focusfl.studies.config import Study
from focusfl.studies.folder import alone
from focusfl.studies.results import Run
from focusfl.studies.study import Watch, run_group
from focusfl.studies.summary import Summary

FACTOR = 2.0  # from one step size to the next
MOST = 20  # step sizes that are tried at most
LAST = 10  # evaluations that an accuracy is the mean of


class Tuned(NamedTuple):
    """The best step size that was found, and what was tried."""

    participation: str
    algorithm: str
    local_steps: int
    lr: float
    tried: tuple[float, ...]  # increasing


def tune(study: Study, folder: Path, watch: Watch | None = None) -> Iterator[Tuned]:
    """Try the first step size of each algorithm, its half and its double, and go on.

    As long as the best is the smallest or the largest that was tried, the next one is
    tried too. Runs are judged as tables judge them, by their median over seeds; what
    has ended is kept in the folder, and not run again.
    """
    study = replace(study, models="none")
    with alone(folder):
        for line in ResultCache(folder, study).damaged:
            print(line, file=sys.stderr)
        for scenario, name in product(study.participation, study.algorithms):
            for steps in study.steps_of(name):
                start = study.step_sizes(scenario, name)[0]
                if start != "auto":  # which is a choice already
                    one = _only(study, scenario, name, steps)
                    yield _tuned(one, float(start), folder, watch)


def merit(run: Run) -> float:
    """Less is better: by accuracy, where runs cannot be told by how exact they are."""
    row, accuracy = run.row, run.curves.get("accuracy")
    if row["diverged_at"] is not None:
        return np.inf
    if accuracy is not None and row["measure"] != "relative error":
        return -float(np.mean(accuracy[1:][-LAST:]))
    summary = Summary(*(row[field] for field in Summary._fields))
    return summary.merit(row["rounds"])


def _only(study: Study, scenario: str, name: str, steps: int) -> Study:
    """A study of one algorithm in one scenario."""
    spec = replace(study.algorithms[name], local_steps=(steps,))
    law = study.participation[scenario]
    return replace(study, participation={scenario: law}, algorithms={name: spec})


def _tuned(study: Study, start: float, folder: Path, watch: Watch | None) -> Tuned:
    ((scenario, _),) = study.participation.items()
    ((name, spec),) = study.algorithms.items()
    lrs = [start / FACTOR, start, start * FACTOR]
    while True:
        more = replace(study, algorithms={name: replace(spec, lrs=tuple(lrs))})
        runs = _runs(more, folder, watch)
        best = min(lrs, key=lambda lr: (_median(runs, lr), abs(np.log(lr / start))))
        if lrs[0] < best < lrs[-1]:
            return Tuned(scenario, name, spec.local_steps[0], best, tuple(lrs))
        if len(lrs) == MOST:
            raise ValueError(
                f"no best step size was found for {name}: of {MOST} from {lrs[0]:.3g} "
                f"to {lrs[-1]:.3g}, {best:.3g} is best. Begin elsewhere: --set "
                f"algorithms.{name}.lr={best:.3g}."
            )
        down = best == lrs[0]
        lrs = [best / FACTOR, *lrs] if down else [*lrs, best * FACTOR]


def _runs(study: Study, folder: Path, watch: Watch | None) -> list[Run]:
    """All runs of a study; those that the folder does not have are run."""
    cache = ResultCache(folder, study)
    for group in cache.left():
        cache.put(group, run_group(study, group, watch, cache.unfinished(group)))
    return cache.everything()


def _median(runs: list[Run], lr: float) -> float:
    """Over seeds; of two in the middle, the worse: one of them may be infinite."""
    merits = sorted(merit(run) for run in runs if run.row["lr"] == lr)
    return merits[len(merits) // 2]
