"""Real hospitals, one of them rarely online: whom does the resulting model serve?

A study for every seed, which holds other patients out for tests. A model is judged
hospital by hospital, beside the exact optimum x* and the optimum of a federation
without the rare hospital.
"""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float

from focusfl.core.files import write
from focusfl.core.validation import check_count
from focusfl.data.hospitals import CENTERS, REGIONS
from focusfl.privacy import Private
from focusfl.problems import Cox, Logistic
from focusfl.studies.runner import Watch, run
from focusfl.studies.spec import STUDIES, StudySpec, load
from focusfl.studies.store import Run, environment

NAMES = ("hospitals", "survival")
SEEDS = 10
OPTIMUM = "x*"
TRAINING = "training_loss"

Convex = Logistic | Cox
Model = Float[np.ndarray, " dim"]


class Served(NamedTuple):
    """What one model means to one hospital."""

    participation: str
    algorithm: str
    seed: int
    hospital: str
    error: float  # of the model: relative distance to x*
    measures: dict[str, float]  # the loss in training; all else on patients held out


@dataclass(frozen=True, eq=False)
class Outcome:
    """A study over several seeds."""

    plan: StudySpec  # of the first seed
    seeds: int
    hospitals: tuple[str, ...]
    served: list[Served]
    curves: dict[tuple[str, str], Float[np.ndarray, "seeds rounds"]]  # errors

    def rows(self) -> list[dict[str, Any]]:
        """What was found, flat."""
        rows = [one._asdict() for one in self.served]
        flat = [row | row.pop("measures") for row in rows]
        # Nothing where there is nobody to compare, or no model: JSON knows no NaN.
        lost = float("inf"), float("-inf")
        return [{k: None if v != v or v in lost else v for k, v in row.items()} for row in flat]


class Split(NamedTuple):
    """One seed: the study on patients for training, and the patients held out."""

    plan: StudySpec
    test: Convex


def splits(name: str, changes: list[str], only: list[str], seeds: int) -> list[Split]:
    """Prepare hospitals or survival, a study of this package, for several seeds."""
    check_count("seeds", seeds)

    def study(seed: int, part: str) -> StudySpec:
        own = [f"seed={seed}", f"problem.seed={seed}", f'problem.part="{part}"']
        found = load(STUDIES / f"{name}.toml", [*changes, *own], only)
        if isinstance(found.problem, Private):
            raise ValueError(f"reproduce {name} has no [privacy]; run a study with it.")
        return found

    return [
        Split(study(seed, "train"), cast(Convex, study(seed, "test").problem))
        for seed in range(seeds)
    ]


def serve(splits: list[Split], watch: Watch | None = None) -> Outcome:
    """Run the studies and judge what comes out."""
    served: list[Served] = []
    curves: dict[tuple[str, str], list] = {}
    for plan, test in splits:
        train = cast(Convex, plan.problem)
        judge = _Judge(train, test, plan.seeds[0])
        for one in run(plan, watch):
            x = one.model if one.row["diverged_at"] is None else None
            where = one.row["participation"], one.row["algorithm"]
            served += judge(*where, x)
            curves.setdefault(where, []).append(_by_round(one))
        for scenario, law in plan.participation.items():
            served += judge(scenario, OPTIMUM, train.optimum)
            p = law.participation.marginals(train.num_clients).p
            rare = int(np.argmin(p))
            if p[rare] < p.max():
                called = f"{OPTIMUM} without {judge.names[rare]}"
                served += judge(scenario, called, _without(train, rare).optimum)
    stacked = {where: _stack(found) for where, found in curves.items()}
    return Outcome(splits[0].plan, len(splits), judge.names, served, stacked)


def concordance(
    scores: Float[np.ndarray, " patients"], worse: Bool[np.ndarray, "patients patients"]
) -> float:
    """The share of pairs, i worse off than j, in which i has the higher score.

    Ties count half. With worse = ill against healthy it is the area under the ROC
    curve; with worse = died before, Harrell's C.
    """
    above = scores[:, None] - scores
    right = ((above > 0) + (above == 0) / 2)[worse]
    return float(right.mean()) if right.size else float("nan")


@dataclass(frozen=True, eq=False)
class _Judge:
    """One seed's patients, and what a model means to them."""

    train: Convex
    test: Convex
    seed: int

    @property
    def names(self) -> tuple[str, ...]:
        return CENTERS if isinstance(self.train, Logistic) else REGIONS

    def __call__(self, scenario: str, name: str, x: Model | None) -> Iterator[Served]:
        """Judge a model, or none where the run has diverged."""
        best, error = self.train.optimum, float("inf")
        if x is not None:
            error = float(np.linalg.norm(x - best) / np.linalg.norm(best))
        for i, hospital in enumerate(self.names):
            y = best if x is None else x
            found = {TRAINING: measures(self.train, i, y)["loss"]}
            found |= measures(self.test, i, y)
            if x is None:
                found = dict.fromkeys(found, float("nan"))
            yield Served(scenario, name, self.seed, hospital, error, found)


def measures(problem: Convex, i: int, x: Model) -> dict[str, float]:
    """How well a model does on the patients of hospital i."""
    if isinstance(problem, Logistic):
        real = problem.b[i] != 0
        ill, scores = problem.b[i][real] > 0, problem.A[i][real] @ x
        return {
            "loss": float(np.logaddexp(0, np.where(ill, -scores, scores)).mean()),
            "accuracy": float(((scores > 0) == ill).mean()),
            "auc": concordance(scores, ill[:, None] & ~ill),
        }
    data = {name: leaf[i] for name, leaf in problem.data.items()}
    real, deaths = problem.time[i] >= 0, data["w"].sum()
    time, died = problem.time[i][real], problem.event[i][real]
    pairs = died[:, None] & (time[:, None] < time)
    return {
        "loss": float(problem.objective.loss(x, data) / deaths),
        "concordance": concordance(problem.A[i][real] @ x, pairs),
    }


def _without(problem: Convex, i: int) -> Convex:
    """The same problem if client i did not exist."""
    arrays = {f.name: getattr(problem, f.name) for f in fields(problem)}
    left = {k: np.delete(v, i, 0) for k, v in arrays.items() if np.ndim(v)}
    return replace(problem, **left)


def _by_round(one: Run) -> np.ndarray:
    """The errors of a run after every round; NaN where it was not evaluated."""
    whole = np.full(one.row["rounds"] + 1, np.nan)
    whole[one.curves["round"]] = one.errors
    return whole


def _stack(curves: list[np.ndarray]) -> np.ndarray:
    """Runs side by side; one that diverged ends in infinity."""
    longest = max(map(len, curves))
    return np.stack([np.pad(c, (0, longest - len(c)), constant_values=np.inf) for c in curves])


def save(outcome: Outcome, folder: Path) -> list[Path]:
    """Write every hospital's numbers as tidy CSV, and all about the run as JSON."""
    out, rows = io.StringIO(), outcome.rows()
    table = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    about = {
        "study": outcome.plan.source,
        "name": outcome.plan.name,
        "seeds": outcome.seeds,
        "environment": environment(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return [
        write(folder / "results.csv", out.getvalue()),
        write(folder / "manifest.json", json.dumps(about, indent=2)),
    ]
