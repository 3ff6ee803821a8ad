"""Find the best step size: bracket it on a geometric grid that has no edge."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from focusfl.studies.config import StudySpec
from focusfl.studies.runner import Store, Watch, run_group
from focusfl.studies.store import Run, alone
from focusfl.studies.summary import Summary

FACTOR = 2.0  # from one step size to the next
LARGEST_GRID = 20  # step sizes that are tried at most
LAST = 10  # evaluations that an accuracy is the mean of

Outcome = TypeVar("Outcome")


class Bracket(NamedTuple):
    """The best place of a grid, and what came out at all that were tried."""

    best: int
    tried: dict[int, Any]

    @property
    def edge(self) -> bool:
        """Whether the best is the first or the last that was tried."""
        return self.best in (min(self.tried), max(self.tried))


def bracket(
    run: Callable[[list[int]], dict[int, Outcome]],
    first: Iterable[int],
    order: Callable[[int, Outcome], Any],
    *,
    batches: int,
    batch: int = 1,
    stride: int = 1,
    refine: Callable[[Outcome], bool] = lambda outcome: False,
) -> Bracket:
    """Extend a grid while the best of it lies at an edge.

    Args:
        run: gives what comes out at these places of the grid.
        first: the places that are tried first, `stride` apart.
        order: of a place and its outcome; the least is the best.
        batches: calls of `run`, at most.
        batch: places that are tried side by side.
        refine: whether, at this best outcome, the places between are tried, too.
    """
    tried: dict[int, Outcome] = {}
    places = list(first)
    for _ in range(batches):
        tried |= run(places)
        best = min(tried, key=lambda k: order(k, tried[k]))
        if best == max(tried):
            places = [best + stride * k for k in range(1, batch + 1)]
        elif best == min(tried):
            places = [best - stride * k for k in range(batch, 0, -1)]
        elif refine(tried[best]) and not {best - 1, best + 1} & {*tried}:
            places = list(range(best + 1 - batch, best + batch, stride))
        else:
            break
    return Bracket(best, tried)


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
    own = replace(spec.algorithms[name], local_steps=(steps,))

    def lr_of(place: int) -> float:
        return start * FACTOR**place

    def run(places: list[int]) -> dict[int, float]:
        lrs = [lr_of(place) for place in places]
        runs = _runs(replace(
            spec, participation={scenario: spec.participation[scenario]},
            algorithms={name: replace(own, lrs=tuple(lrs))},
        ), folder, watch)  # fmt: skip
        return {place: _median(runs, lr) for place, lr in zip(places, lrs, strict=True)}

    found = bracket(
        run, (-1, 0, 1), lambda place, merit: (merit, abs(place)), batches=LARGEST_GRID - 2
    )
    tried = [lr_of(place) for place in sorted(found.tried)]
    best = lr_of(found.best)
    if found.edge:
        raise ValueError(
            f"no best step size was found for {name}: of {len(tried)} from {tried[0]:.3g} "
            f"to {tried[-1]:.3g}, {best:.3g} is best. Begin elsewhere: --set "
            f"algorithms.{name}.lr={best:.3g}."
        )
    return Tuned(scenario, name, steps, best, tuple(tried))


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
