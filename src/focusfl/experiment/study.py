"""Run a study: its cells, those that can share a compiled program side by side."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from focusfl.engines.rest import at_rest_elsewhere, tracker_norm
from focusfl.engines.result import COSTS, Result
from focusfl.engines.spec import Progress, StepSize, choose_lr
from focusfl.experiment.config import Study
from focusfl.experiment.results import Run
from focusfl.experiment.summary import Summary, errors, summarise, tracking_gap
from focusfl.experiment.verdict import Expected
from focusfl.problems import Noisy, Problem
from focusfl.theory.prediction import Prediction, predict

Watch = Callable[[str, str], Progress]  # by scene and what runs in it
T = TypeVar("T")

FEW = min(4, os.cpu_count() or 1)  # threads


class Batch(NamedTuple):
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


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a study: who ran, under which participation, and what came out."""

    participation: str
    algorithm: str
    local_steps: int
    seed: int
    result: Result
    summary: Summary
    seconds: float
    compile_seconds: float
    theory: Prediction
    num_clients: int

    def run(self) -> Run:
        """What is kept of it."""
        result, metrics = self.result, self.result.metrics
        totals = {
            "vectors_sent": np.cumsum(metrics["down"] + metrics["up"]),
            "gradients": np.cumsum(metrics["gradients"]),
        }
        rounds, kept = len(metrics["down"]) - 1, result.evaluated
        running = max(self.seconds - self.compile_seconds, 0.0)
        row = {
            "participation": self.participation,
            "algorithm": self.algorithm,
            "lr": result.lr,
            "why_lr": result.why_lr,
            "local_steps": self.local_steps,
            "seed": self.seed,
            "rounds": rounds,
            "measure": errors(result)[0],
            **self.summary._asdict(),
            **{name: float(total[-1]) for name, total in totals.items()},
            "tracking_gap": tracking_gap(result),
            "grad_norm": float(metrics["grad_norm"][-1])
            if "grad_norm" in metrics
            else None,
            "tracker_norm": tracker_norm(result.server, self.num_clients),
            "seconds": round(self.seconds, 4),
            "compile_seconds": round(self.compile_seconds, 4),
            "theory": self.theory._asdict(),
        }
        own = {k: v for k, v in metrics.items() if k not in COSTS}
        seconds = np.linspace(0.0, running, rounds + 1)
        curves = {"round": np.arange(rounds + 1), **totals, "seconds": seconds, **own}
        # Axes are summed over all rounds; a point is a round that was evaluated.
        model = result.x if result.trajectory is None else result.trajectory
        return Run(row, {name: values[kept] for name, values in curves.items()}, model)


def batches(study: Study) -> list[Batch]:
    """All that is to run, in order."""
    return [
        Batch(scene, name, steps, study.step_sizes(scene, name), study.seeds)
        for scene in study.participation
        for name in study.algorithms
        for steps in study.steps_of(name)
    ]


def total_rounds(study: Study, todo: Iterable[Batch] | None = None) -> int:
    """How far a bar that shows the progress of a study has to go."""
    return study.rounds * len(batches(study) if todo is None else list(todo))


def run(study: Study, watch: Watch | None = None) -> Iterator[Cell]:
    """Run every cell, yielding as they end, in order."""

    def one(batch: Batch) -> list[Cell]:
        return carry_out(study, batch, watch)

    for cells in side_by_side(one, batches(study), threads(study)):
        yield from cells


def carry_out(study: Study, batch: Batch, watch: Watch | None = None) -> list[Cell]:
    """Run a batch, side by side if that fits: seed by seed, each at every step size."""
    from focusfl.engines.simulator.api import sweep
    from focusfl.engines.simulator.memory import DoesNotFit

    contender = study.algorithms[batch.algorithm]
    problem = problem_of(study, batch.algorithm)
    law = study.participation[batch.participation].participation
    chosen = [
        choose_lr(lr, contender.algorithm, problem, law, batch.local_steps)
        for lr in batch.lrs
    ]
    tell = watch(batch.participation, batch.title) if watch else None
    compiled, start = _compiling(), time.perf_counter()

    def together(seeds: Sequence[int], lrs: Sequence[float]) -> list[Result]:
        try:
            return sweep(
                contender.algorithm,
                problem,
                law,
                lrs=lrs,
                rounds=study.rounds,
                local_steps=batch.local_steps,
                seed=seeds,
                on_empty=study.on_empty,
                every=study.every,
                record="model" if study.models == "all" else "metrics",
                throw=None,  # a verdict says it
                progress=tell,
                stop=study.stop,
                client_state=study.client_state,
                devices=study.devices,
            )
        except DoesNotFit:
            if len(seeds) > 1:
                return [run for seed in seeds for run in together([seed], lrs)]
            if len(lrs) > 1:
                return [run for lr in lrs for run in together(seeds, [lr])]
            raise

    results = together(batch.seeds, [lr for lr, _ in chosen])
    share = len(results)
    seconds = (time.perf_counter() - start) / share
    compiled = (_compiling() - compiled) / share
    known = [
        predict(
            contender.algorithm, problem, law, lr=lr, local_steps=batch.local_steps,
            noise=contender.noise,
        )
        for lr, _ in chosen
    ]  # fmt: skip
    each = [(seed, k) for seed in batch.seeds for k in range(len(chosen))]
    cells = []
    for (seed, k), whole in zip(each, results, strict=True):
        result = replace(whole, why_lr=chosen[k][1])
        cells.append(
            Cell(
                batch.participation, batch.algorithm, batch.local_steps, seed, result,
                _summary(study, result, known[k], problem), seconds, compiled,
                known[k], problem.num_clients,
            )
        )  # fmt: skip
    return cells


def _summary(
    study: Study, result: Result, known: Prediction, problem: Problem
) -> Summary:
    """Sum a run up, and say it if its tracker rests while the gradient does not."""
    found = summarise(result, expected(known, problem), study.stop.tolerance)
    false = at_rest_elsewhere(result, problem.num_clients)
    if false and result.diverged_at is None:
        return found._replace(verdict="biased", reason=false)
    return found


def expected(known: Prediction, problem: Problem) -> Expected:
    """What a verdict may take for granted."""
    return Expected(known.bias, problem.objective.stochastic, known.rate)


def problem_of(study: Study, name: str) -> Problem:
    """The problem as an algorithm of the study sees it."""
    noise = study.algorithms[name].noise
    return Noisy(study.problem, noise) if noise > 0 else study.problem


def threads(study: Study) -> int:
    """How many batches may run at once; on several devices, which wait for each other,
    two could wait for ever."""
    return 1 if study.devices else FEW


def side_by_side(
    one: Callable[[Any], T], what: Iterable[Any], threads: int = FEW
) -> Iterator[T]:
    """Run things in a few threads, in order: compiling takes one core each."""
    pool = ThreadPoolExecutor(threads)
    try:
        waiting = [pool.submit(one, each) for each in what]
        for each in waiting:
            yield each.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_HERE = threading.local()


def _compiling() -> float:
    """The seconds that this thread has spent on tracing and compiling."""
    _listen()
    return getattr(_HERE, "seconds", 0.0)


@cache
def _listen() -> None:
    import jax

    def heard(event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            _HERE.seconds = getattr(_HERE, "seconds", 0.0) + duration_secs

    jax.monitoring.register_event_duration_secs_listener(heard)
