"""The paper's image experiment: SG-FOCUS and others on CIFAR-10, dealt out by class.

32 clients, 3 local steps on batches of 128, a step of 2e-3, 10,000 rounds. As FOCUS
moves N steps a round and the others about 3, each also runs at its own tuned step.
No study: a step is first tuned over short runs, and a run of an hour goes on from its
checkpoint, which runs of a study do not keep.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from focusfl import keys
from focusfl.algorithms import ALGORITHMS
from focusfl.checks import check_count, unknown
from focusfl.engines.spec import Progress
from focusfl.experiment.environment import environment
from focusfl.experiment.summary import tracking_gap
from focusfl.files import write
from focusfl.participation import Bernoulli, Markov, Participation
from focusfl.problems import vision

NUM_CLIENTS, LOCAL_STEPS, LR, ROUNDS, SEED = 32, 3, 2e-3, 10_000, 66
NAMES = ("focus", "fedavg", "fedau", "scaffold", "mifa")
SCENARIOS = ("bernoulli", "markov")
EVERY = 100  # rounds between evaluations
LAST = 10  # evaluations that a final accuracy is the mean of
TUNE_ROUNDS = 1_000


class Setting(NamedTuple):
    """What is run: enough to know it again."""

    participation: str
    algorithm: str
    step: str  # "paper", "tuned" or, on the way there, "tuning"
    lr: float
    seed: int
    rounds: int
    compute_dtype: str | None


class Curve(NamedTuple):
    """What came out."""

    run: Setting
    at: list[int]  # rounds
    accuracy: list[float]
    loss: list[float]
    diverged_at: int | None
    tracking_gap: float | None  # of FOCUS: how far y is from the sum of gradients
    seconds: float
    compiling: float  # of these, until the first chunk was done, itself included
    rate: float | None  # rounds per second from then on
    device: str

    @property
    def final(self) -> float:
        """The mean of the last accuracies; of a diverged run, nothing."""
        if self.diverged_at is not None:
            return 0.0
        return float(np.mean(self.accuracy[1:][-LAST:]))


def chances(seed: int = SEED) -> Float[np.ndarray, " clients"]:
    """How often each client takes part: four up to .9, the others up to .3."""
    rng = keys.rng(seed, "cifar10", "chances")
    often = rng.uniform(0.1, 0.9, 4)
    return np.concatenate([rng.uniform(0.1, 0.3, NUM_CLIENTS - 4), often])


def participation(scenario: str, seed: int) -> Participation:
    """Coins, or clients that stay on and off for four times as long as coins would."""
    p = chances(seed)
    return Bernoulli(p) if scenario == "bernoulli" else Markov(p, p / 4)


class Plan(NamedTuple):
    """What to reproduce of the experiment."""

    algorithms: tuple[str, ...] = NAMES
    scenarios: tuple[str, ...] = SCENARIOS[:1]
    rounds: int = ROUNDS
    seeds: int = 1
    tune: bool = False  # run each at its own best step, too
    compute_dtype: str | None = None


def reproduce(
    folder: Path,
    plan: Plan,
    progress: Callable[[str, str], Progress] | None = None,
) -> Iterator[Curve]:
    """Run what is not yet in the folder; give every curve, as it is there."""
    check_count("seeds", plan.seeds)
    check_count("rounds", plan.rounds)
    for name in plan.algorithms:
        if name not in ALGORITHMS:
            raise ValueError(unknown("algorithm", name, ALGORITHMS))
    for scenario in plan.scenarios:
        if scenario not in SCENARIOS:
            raise ValueError(unknown("participation", scenario, SCENARIOS))
    cache, seeds = _Cache(folder, progress), range(SEED, SEED + plan.seeds)
    for seed, scenario, name in product(seeds, plan.scenarios, plan.algorithms):
        run = Setting(
            scenario, name, "paper", LR, seed, plan.rounds, plan.compute_dtype
        )
        paper = cache.get(run)
        yield paper
        if plan.tune:
            tuned = run._replace(step="tuned", lr=_tuned(cache, run))
            same = tuned.lr == run.lr
            yield paper._replace(run=tuned) if same else cache.get(tuned)


def counts(seed: int = SEED) -> Int[np.ndarray, "clients classes"]:
    """How many images of each class every client has."""
    problem = _problem(seed, None)
    own = problem.samples["y"]
    return np.stack([np.bincount(y, minlength=vision.CLASSES) for y in own])


def _tuned(cache: "_Cache", run: Setting) -> float:
    """Double the step, or halve it, as long as short runs gain by it."""
    best = LR

    def gain(lr: float) -> float:
        short = min(TUNE_ROUNDS, run.rounds)
        return cache.get(run._replace(step="tuning", lr=lr, rounds=short)).final

    for factor in (2.0, 0.5):
        while gain(best * factor) > gain(best):
            best *= factor
        if best > LR:
            break
    return best


class _Cache:
    """The runs of one folder: those that are there are not run again."""

    def __init__(self, folder: Path, progress) -> None:
        self.folder, self.progress = folder, progress
        self.file = folder / "results.json"
        self.curves: list[Curve] = load(self.file) if self.file.exists() else []

    def get(self, run: Setting) -> Curve:
        """Look a run up, or carry it out and put it there."""
        for curve in self.curves:
            if curve.run == run:
                return curve
        kept = self.folder / "unfinished" / _name(run)
        self.curves.append(_carry_out(run, kept, self.progress))
        found = [
            curve._asdict() | {"run": curve.run._asdict()} for curve in self.curves
        ]
        about = {"environment": environment(), "curves": found}
        write(self.file, json.dumps(about, indent=1))
        shutil.rmtree(kept, ignore_errors=True)
        return self.curves[-1]


def load(file: Path) -> list[Curve]:
    """Read the curves that an earlier call left."""
    try:
        rows = json.loads(file.read_text())["curves"]
        return [Curve(**row | {"run": Setting(**row["run"])}) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"cannot read {file} as results of this experiment: {error}. Name another "
            "folder or remove it."
        ) from None


@cache
def _problem(seed: int, compute_dtype: str | None):
    return vision.cifar10(NUM_CLIENTS, seed=seed, compute_dtype=compute_dtype)


def _carry_out(run: Setting, kept: Path, progress) -> Curve:
    from focusfl.engines.simulator.api import simulate

    problem = _problem(run.seed, run.compute_dtype)
    name = f"{run.algorithm} at {run.lr:g}"
    tell = progress(run.participation, name) if progress else None
    marks: list[tuple[float, int]] = []

    def watch(done: int, metrics: Mapping[str, Any]) -> None:
        marks.append((time.perf_counter(), done))
        if tell:
            tell(done, metrics)

    every = min(EVERY, max(1, run.rounds // 5))
    start = time.perf_counter()
    result = simulate(
        ALGORITHMS[run.algorithm](),
        problem,
        participation(run.participation, run.seed),
        rounds=run.rounds,
        lr=run.lr,
        local_steps=LOCAL_STEPS,
        seed=run.seed,
        every=every,
        throw=None,  # the table says it
        progress=watch,
        checkpoint=kept,
    )
    (first, done), (last, all_done) = marks[0], marks[-1]
    at = result.evaluated
    return Curve(
        run=run,
        at=at.tolist(),
        accuracy=result.metrics["accuracy"][at].tolist(),
        loss=result.metrics["loss"][at].tolist(),
        diverged_at=result.diverged_at,
        tracking_gap=tracking_gap(result),
        seconds=time.perf_counter() - start,
        compiling=first - start,
        rate=(all_done - done) / (last - first) if all_done > done else None,
        device=environment()["device"],
    )


def _name(run: Setting) -> str:
    return "-".join(str(part) for part in run if part is not None)
