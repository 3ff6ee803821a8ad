"""Run a study: runs that can share a compiled program, side by side."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from focusfl.core.result import COSTS, Result
from focusfl.participation import Participation
from focusfl.privacy.budgets import budget_spent
from focusfl.problems import Noisy, Problem
from focusfl.simulation.rest import tracker_norm
from focusfl.simulation.spec import Checkpoint, Options, Progress, StepSize, choose_lr
from focusfl.simulation.step_sizes import slows
from focusfl.studies.config import Study
from focusfl.studies.results import Run
from focusfl.studies.stopwatch import Stopwatch, compiling
from focusfl.studies.summary import Summary, errors, summarise, tracking_gap
from focusfl.studies.verdict import Expected
from focusfl.theory.prediction import Prediction, predict

Watch = Callable[[str, str], Progress]  # by scenario and what runs in it
T = TypeVar("T")

FEW = min(4, os.cpu_count() or 1)  # threads


class RunGroup(NamedTuple):
    """Runs that differ in step size and seed alone: they share a compiled program."""

    participation: str
    algorithm: str
    local_steps: int
    lrs: tuple[StepSize, ...]
    seeds: tuple[int, ...]

    @property
    def title(self) -> str:
        """What is shown while it runs."""
        several = [
            f"{len(own)} {what}"
            for own, what in ((self.lrs, "step sizes"), (self.seeds, "seeds"))
            if len(own) > 1
        ]
        return " · ".join([self.algorithm, *several])


class RunName(NamedTuple):
    """Which run of a study: with its step size, what tells it from all others."""

    participation: str
    algorithm: str
    local_steps: int
    seed: int


class Seconds(NamedTuple):
    """How long a run took, and how much of that was compiling."""

    all: float = 0.0
    compiling: float = 0.0


NO_TIME = Seconds()


def make_run(
    name: RunName,
    result: Result,
    summary: Summary,
    theory: Prediction,
    total_weight: float | int,
    seconds: Seconds = NO_TIME,
) -> Run:
    """What a study keeps of a result: a row of the table, and curves by round.

    `total_weight` is that of all clients: N where all are alike.
    """
    metrics = result.metrics
    totals = {
        "vectors_sent": np.cumsum(metrics["down"] + metrics["up"]),
        "gradients": np.cumsum(metrics["gradients"]),
    }
    if "bytes_up" in metrics:
        totals["bytes_up"] = np.cumsum(metrics["bytes_up"])
    rounds, evaluated = len(metrics["down"]) - 1, result.evaluated
    wall = np.linspace(0.0, max(seconds.all - seconds.compiling, 0.0), rounds + 1)
    timed = "seconds" in metrics  # by a clock: what a real run would have taken
    axis = np.cumsum(metrics["seconds"]) if timed else wall
    gradient = metrics.get("grad_norm")
    row = {
        "participation": name.participation,
        "algorithm": name.algorithm,
        "lr": result.lr,
        "why_lr": result.why_lr,
        "schedule": result.schedule,
        "local_steps": name.local_steps,
        "seed": name.seed,
        "rounds": rounds,
        "measure": errors(result)[0],
        **summary._asdict(),
        **{total: float(values[-1]) for total, values in totals.items()},
        "tracking_gap": tracking_gap(result),
        "grad_norm": None if gradient is None else float(gradient[-1]),
        "tracker_norm": tracker_norm(result.server, total_weight),
        "seconds": round(seconds.all, 4),
        "compile_seconds": round(seconds.compiling, 4),
        **({"simulated_seconds": float(axis[-1])} if timed else {}),
        "theory": theory._asdict(),
    }
    curves = {
        "round": np.arange(rounds + 1),
        **totals,
        "seconds": axis,
        **{k: v for k, v in metrics.items() if k not in COSTS},
    }
    model = result.x if result.trajectory is None else result.trajectory
    kept = {k: values[evaluated] for k, values in curves.items()}
    return Run(row, kept, model, result.clients_metrics)


def law_of(study: Study, scenario: str, name: str, local_steps: int) -> Participation:
    """Who takes part where an algorithm runs; by a clock that also follows from it."""
    law, algorithm = study.participation[scenario].participation, study.algorithms[name]
    return law.fitted(algorithm.algorithm, study.problem.x0, local_steps)


def run_groups(study: Study) -> list[RunGroup]:
    """All that is to run, in order."""
    return [
        RunGroup(scenario, name, steps, study.step_sizes(scenario, name), study.seeds)
        for scenario in study.participation
        for name in study.algorithms
        for steps in study.steps_of(name)
    ]


def total_rounds(study: Study, todo: Iterable[RunGroup] | None = None) -> int:
    """How far a bar that shows the progress of a study has to go."""
    return study.rounds * len(run_groups(study) if todo is None else list(todo))


def run(study: Study, watch: Watch | None = None) -> Iterator[Run]:
    """Run a study, yielding runs as they end, in order."""

    def one(group: RunGroup) -> list[Run]:
        return run_group(study, group, watch)

    for runs in side_by_side(one, run_groups(study), threads(study)):
        yield from runs


def run_group(
    study: Study, group: RunGroup, watch: Watch | None = None, kept: Path | None = None
) -> list[Run]:
    """Run a group, side by side if that fits: seed by seed, each at every step size.

    If the study keeps checkpoints, they are in the folder `kept`.
    """
    spec = study.algorithms[group.algorithm]
    problem = problem_of(study, group.algorithm)
    law = law_of(study, group.participation, group.algorithm, group.local_steps)
    chosen = [choose_lr(lr, spec.algorithm, problem, law, group.local_steps) for lr in group.lrs]
    tell = watch(group.participation, group.title) if watch else None
    kept = kept if study.checkpoint_every else None
    compiled, clock = compiling(), Stopwatch(kept)
    same = group._replace(lrs=tuple(lr for lr, _ in chosen))
    results = _sweep(study, same, clock.heard(tell), kept)
    share = len(results)
    seconds = Seconds(clock.seconds() / share, (compiling() - compiled) / share)
    known = [
        Prediction() if study.schedule_of(group.algorithm)  # theory is of one step
        else predict(
            spec.algorithm, problem, law, lr=lr, local_steps=group.local_steps,
            noise=spec.noise,
        )
        for lr, _ in chosen
    ]  # fmt: skip
    slowed = [slows(study.lr_of(group.algorithm, lr), study.rounds) for lr, _ in chosen]
    each = [(seed, k) for seed in group.seeds for k in range(len(chosen))]
    runs = []
    for (seed, k), whole in zip(each, results, strict=True):
        name = RunName(group.participation, group.algorithm, group.local_steps, seed)
        result = replace(whole, lr=chosen[k][0], why_lr=chosen[k][1])
        ahead = expected(known[k], problem)._replace(slowed=slowed[k])
        summary = summarise(result, ahead, study.stop.tolerance, problem.total_weight)
        if stopped := budget_spent(problem, result):
            why = "; ".join(filter(None, (summary.reason, stopped)))
            summary = summary._replace(reason=why)
        runs.append(make_run(name, result, summary, known[k], problem.total_weight, seconds))
    return runs


def _sweep(study: Study, group: RunGroup, tell: Progress | None, kept: Path | None) -> list[Result]:
    """Run a group side by side; where that does not fit, one part after the other."""
    from focusfl.simulation.api import sweep
    from focusfl.simulation.placement import DoesNotFit

    try:
        return sweep(
            study.algorithms[group.algorithm].algorithm,
            problem_of(study, group.algorithm),
            law_of(study, group.participation, group.algorithm, group.local_steps),
            lrs=[study.lr_of(group.algorithm, float(lr)) for lr in group.lrs],
            rounds=study.rounds,
            local_steps=group.local_steps,
            seed=group.seeds,
            on_empty=study.on_empty,
            eval_every=study.eval_every,
            per_client=study.per_client,
            options=Options(
                record_models=study.models == "all",
                on_divergence="ignore",  # a verdict says it
                checkpoint=Checkpoint(kept, study.checkpoint_every or 0) if kept else None,
                client_state=study.client_state,
                devices=study.devices,
            ),
            progress=tell,
            stop=study.stop,
        )
    except DoesNotFit:
        parts = [group._replace(seeds=(seed,)) for seed in group.seeds]
        if len(parts) == 1:
            parts = [group._replace(lrs=(lr,)) for lr in group.lrs]
        if len(parts) == 1:
            raise
        return [
            run
            for turn, part in enumerate(parts)
            for run in _sweep(study, part, tell, kept and kept / str(turn))
        ]


def expected(known: Prediction, problem: Problem) -> Expected:
    """What a verdict may take for granted."""
    return Expected(known.bias, problem.objective.stochastic, known.rate)


def problem_of(study: Study, name: str) -> Problem:
    """The problem as an algorithm of the study sees it."""
    noise = study.algorithms[name].noise
    return Noisy(study.problem, noise) if noise > 0 else study.problem


def threads(study: Study) -> int:
    """How many groups may run at once; on several devices, which wait for each other,
    two could wait for ever."""
    return 1 if study.devices else FEW


def side_by_side(one: Callable[[Any], T], what: Iterable[Any], threads: int = FEW) -> Iterator[T]:
    """Run things in a few threads, in order: compiling takes one core each."""
    pool = ThreadPoolExecutor(threads)
    try:
        waiting = [pool.submit(one, each) for each in what]
        for each in waiting:
            yield each.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
