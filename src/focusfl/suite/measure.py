"""Measure one algorithm in one cell: eight step sizes and three seeds side by side."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from focusfl.core import Algorithm, Round, tree
from focusfl.core.bracket import bracket
from focusfl.core.result import Result
from focusfl.problems import Problem
from focusfl.simulation.api import sweep
from focusfl.simulation.callbacks import Progress, Stop
from focusfl.simulation.spec import Options
from focusfl.studies.runner import compiling
from focusfl.studies.summary import TARGET, errors
from focusfl.suite.cells import FLOOR, IMAGES, ROUNDS, Cell
from focusfl.suite.problems import problem_of

SEEDS = (0, 1, 2)
BEYOND = 100.0  # a run is followed to a target so many times as small
PATIENCE = 3.0  # runs go on until three times the rounds of the first to get there
LAST = 5  # evaluations that a test error is the mean of
# Steps are 2^(k/2), k whole. The first eight are octaves apart; those between the best and
# its neighbours are tried where some step got to the target.
AT_ONCE = 8  # steps that are tried side by side
FIRST = range(-14, 2, 2)  # 1/128 to 1, in units of 1/L
BATCHES = 6  # of steps, at most
NEAR = 2.0  # steps that need so many times the best are near it
RULE = (SEEDS, BEYOND, PATIENCE, LAST, TARGET)

COSTS = ("rounds", "vectors", "bytes", "gradients")  # and seconds, of a batch
COMPILED = 0.1  # seconds of tracing and compiling that spoil what a batch took


class Trial(NamedTuple):
    """Results at one step size: medians over seeds. Less is better."""

    value: float  # what is measured; infinite if it did not get there
    error: float  # in the end; infinite if it diverged


Tried = dict[int, Trial]


class Search(NamedTuple):
    """The place of the best step in the grid, and the trials of all that were tried."""

    best: int
    tried: Tried

    @property
    def edge(self) -> bool:
        """Whether the best is the smallest or the largest that was tried."""
        return self.best in (min(self.tried), max(self.tried))

    @property
    def near(self) -> int:
        """How many steps of the grid, √2 apart, need at most twice the best."""
        best = self.tried[self.best].value
        values = [trial.value for trial in self.tried.values()]
        return sum(bool(value <= NEAR * best) for value in values) if np.isfinite(best) else 0


class Measured(NamedTuple):
    """Results of one algorithm at its best step size: medians over seeds."""

    search: Search
    costs: dict[str, float]  # to the target, or of all rounds where there is none
    runs: int
    seconds: float  # of a core, that all of them took

    @property
    def merit(self) -> tuple[float, float]:
        """Less is better: what is measured, then the error."""
        trial = self.search.tried[self.search.best]
        return trial.value, trial.error


def step_of(k: int) -> float:
    """The step size by its place in the grid."""
    return float(2.0 ** (k / 2))


def place_of(step: float) -> int:
    """The place of a step size in the grid."""
    return round(2 * np.log2(step))


def search(run: Callable[[list[int]], Tried], finer: bool = True, batches: int = BATCHES) -> Search:
    """Find the best step; `run` tries eight at a time, `finer` half octaves too."""
    tried: Tried = {}

    def score(steps: Sequence[float]) -> dict[float, tuple]:
        places = {step: place_of(step) for step in steps}
        tried.update(run([*places.values()]))
        return {step: _order(k, tried[k]) for step, k in places.items()}

    most = batches * AT_ONCE
    bracket(score, [step_of(k) for k in FIRST], batch=AT_ONCE, max_steps=most)
    best = best_of(tried)
    inside = min(tried) < best < max(tried)
    if finer and inside and len(tried) < most and np.isfinite(tried[best].value):
        tried |= run(list(range(best + 1 - AT_ONCE, best + AT_ONCE, 2)))
    return Search(best_of(tried), tried)


def best_of(tried: Tried) -> int:
    """The place of the best step."""
    return min(tried, key=lambda k: _order(k, tried[k]))


def _order(k: int, trial: Trial) -> tuple:
    """By what is measured, then by the error, then the larger step; if all have diverged, the
    smallest."""
    return (*trial, -k if np.isfinite(trial.error) else k)


def measured(cell: Cell, algorithm: Algorithm, local_steps: int | None) -> Measured:
    """Measure an algorithm at its best step size, searched by the same rule for all.

    Args:
        cell: problem, participation and what is measured.
        algorithm: which is measured.
        local_steps: that it takes; None: as the cell says.
    """
    problem, start, runs = problem_of(cell.about), time.process_time(), 0
    costs: dict[int, dict[str, float]] = {}
    paces: list[tuple[bool, float]] = []  # of each batch: whether it compiled; seconds per round

    def run(ks: list[int]) -> dict[int, Trial]:
        nonlocal runs
        began, compiled = time.process_time(), compiling()
        callbacks: list[Stop | Progress] = []
        if cell.measure == ROUNDS:
            callbacks = [Stop(tolerance=TARGET / BEYOND), _patient(problem)]
        results = sweep(
            algorithm, problem, cell.participation, lrs=[step_of(k) for k in ks],
            rounds=cell.rounds, local_steps=local_steps or cell.local_steps,
            seed=list(SEEDS), eval_every=cell.eval_every, options=Options(on_divergence="ignore"),
            callbacks=callbacks,
        )  # fmt: skip
        compiled = compiling() - compiled
        spent = max(0.0, time.process_time() - began - compiled)
        rounds = sum(len(result.metrics["down"]) - 1 for result in results)
        paces.append((compiled > COMPILED, spent / max(1, rounds)))
        runs += len(results)
        trials = {}
        for place, k in enumerate(ks):
            by_seed = results[place :: len(ks)]
            trials[k] = Trial(
                _middle([_value(cell, result) for result in by_seed]),
                _middle([_error(cell, result) for result in by_seed]),
            )
            each_cost = [_costs(cell, algorithm, problem, result) for result in by_seed]
            costs[k] = {name: _middle([cost[name] for cost in each_cost]) for name in COSTS}
        return trials

    steps = search(run, finer=cell.measure != IMAGES)
    best = costs[steps.best]
    least = min(compiled for compiled, _ in paces)  # batches that compiled nothing, if any
    per_round = float(np.mean([pace for compiled, pace in paces if compiled == least]))
    best["seconds"] = best["rounds"] * per_round
    return Measured(steps, best, runs, time.process_time() - start)


def _middle(values: list[float]) -> float:
    """The median; of two in the middle, the worse: one may be infinite."""
    return sorted(values)[len(values) // 2]


def arrived(result: Result) -> float:
    """Count the rounds after which the error stays below the target.

    Infinite for a run that does not get to a hundredth of the target, or whose loss is
    higher in the end: far away, gradients of losses that level off vanish too.
    """
    _, curve = errors(result)
    if result.diverged_at is not None or not curve[-1] <= TARGET / BEYOND:
        return np.inf
    loss = result.metrics.get("loss")
    if loss is not None and not loss[-1] <= loss[0]:
        return np.inf
    above = np.flatnonzero(curve > TARGET)
    return float(above[-1] + 1) if len(above) else 0.0


def _value(cell: Cell, result: Result) -> float:
    return arrived(result) if cell.measure == ROUNDS else _error(cell, result)


def _error(cell: Cell, result: Result) -> float:
    """The error at the end: the median of the last tenth, or of the last quarter for a
    floor; of images, the share that is misclassified."""
    if result.diverged_at is not None:
        return np.inf
    if cell.measure == IMAGES:
        accuracy = result.metrics["accuracy"][result.evaluated]
        return float(1 - np.mean(accuracy[1:][-LAST:]))
    _, curve = errors(result)
    share = 4 if cell.measure == FLOOR else 10
    return float(np.median(curve[-max(1, len(curve) // share) :]))


def _costs(cell: Cell, algorithm: Algorithm, problem: Problem, result: Result) -> dict[str, float]:
    """What a run cost until it arrived."""
    done = len(result.metrics["down"]) - 1
    rounds = arrived(result) if cell.measure == ROUNDS else float(done)
    if not np.isfinite(rounds):
        return dict.fromkeys(COSTS, np.inf)
    end = int(rounds) + 1
    down, up, gradients = (
        float(np.sum(result.metrics[name][:end])) for name in ("down", "up", "gradients")
    )
    sent = zip((down, up), algorithm.cost, in_messages(algorithm, problem.x0), strict=True)
    width = np.dtype(problem.dtype).itemsize
    return {
        "rounds": rounds,
        "vectors": down + up,
        "bytes": sum(vectors / plain * numbers * width for vectors, plain, numbers in sent),
        "gradients": gradients,
    }


def in_messages(algorithm: Algorithm, x0: Any) -> tuple[int, int]:
    """The numbers that a participant receives and sends in a round, all of them."""
    server, client = algorithm.init(x0)
    rd, down = Round(0, 1.0, 1, 1, 1), algorithm.broadcast(server)
    local = algorithm.step(algorithm.pull(client, down), lambda x, _: x, None, rd)
    _, up = algorithm.push(client, down, local, rd)
    return tree.size(down), tree.size(up)


def _patient(problem: Problem) -> Progress:
    """Stop runs side by side once most seeds of one step size have reached the goal, and
    the others have had three times as many rounds."""
    first = problem.objective.evaluate(problem.x0, problem.eval_data)
    name = "distance" if "distance" in first else "grad_norm"
    goal = TARGET / BEYOND * (1.0 if name == "distance" else float(first[name]))
    end = np.inf

    def watch(done: int, metrics: Mapping[str, Any]) -> bool:
        nonlocal end
        low = metrics["loss"] <= float(first["loss"])
        there = (low & (metrics[name] <= goal)).reshape(AT_ONCE, -1).mean(1)  # of seeds
        if end == np.inf and (there > 0.5).any():
            end = PATIENCE * done
        return done >= end

    return watch
