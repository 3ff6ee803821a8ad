"""Run what a study's folder does not have: groups of runs, in threads or in processes.

A group is the unit of work: runs that differ in step size and seed alone share a compiled
program. `units.run_units` runs them in threads or in processes.
"""

import hashlib
import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from focusfl import __version__
from focusfl.core import files, tree
from focusfl.core.files import Damaged
from focusfl.core.fingerprint import fingerprint, source
from focusfl.core.models import save_model
from focusfl.core.result import COSTS, Result
from focusfl.participation import Participation, schedule
from focusfl.privacy.budgets import budget_spent, budgeted
from focusfl.problems import Noisy, Problem
from focusfl.simulation.callbacks import Progress
from focusfl.simulation.divergence import tracker_norm
from focusfl.simulation.spec import Checkpoint, Options, StepSize, choose_lr
from focusfl.simulation.step_sizes import slows, tabled
from focusfl.studies import spec, store
from focusfl.studies.spec import StudySpec as Spec
from focusfl.studies.store import MODELS, RUNS, TABLE, UNFINISHED, Folder, Run, name_of
from focusfl.studies.summary import Summary, errors, summarise, tracking_gap
from focusfl.studies.units import THREADS, Message, run_units
from focusfl.studies.verdict import Expected
from focusfl.theory.prediction import Prediction, predict

Watch = Callable[[str, str], Progress]  # by scenario and what runs in it
PAIRS = 2_000_000  # of round and client that are kept for pictures of participation
SAVING = 0.5  # seconds between two notes of the time spent, each of which waits for the disk


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
        counts = {"step sizes": len(self.lrs), "seeds": len(self.seeds)}
        words = [f"{count} {what}" for what, count in counts.items() if count > 1]
        return " · ".join([self.algorithm, *words])

    @property
    def runs(self) -> list[tuple[StepSize, int]]:
        """Step size and seed of every run, in the order of results."""
        return [(lr, seed) for seed in self.seeds for lr in self.lrs]


class RunName(NamedTuple):
    """Which run of a study: with its step size, what tells it from all others."""

    participation: str
    algorithm: str
    local_steps: int
    seed: int


def run_groups(spec: Spec) -> list[RunGroup]:
    """Everything there is to run, in order."""
    return [
        RunGroup(scenario, name, steps, spec.step_sizes(scenario, name), spec.seeds)
        for scenario in spec.participation
        for name in spec.algorithms
        for steps in spec.steps_of(name)
    ]


class Store(Folder):
    """The folder of a study that is being computed: which of its runs are there."""

    def __init__(self, path: Path, spec: Spec, fresh: bool = False):
        self.spec = spec
        self.damaged: list[str] = []  # what is wrong with files whose runs are run again
        try:
            super().__init__(path, {} if fresh else store.manifest_so_far(path))
        except Damaged as error:
            super().__init__(path)
            self.damaged.append(f"{error} Everything is run again.")
        self.groups: dict[str, str] = {}  # names of files, by the keys of their runs
        self._keys: dict[tuple, str] = {}
        self._problem = fingerprint(spec.problem)
        for name in [name for name in self.files if name.startswith(f"{RUNS}/")]:
            if name.endswith(TABLE) and not name.endswith(store.CLIENTS):
                self._look(name.removesuffix(TABLE))

    def _look(self, name: str) -> None:
        """Take the runs of a file into account if it is sound, and their models."""
        try:
            rows = [run.row for run in self.read_runs(name)]
            for row in rows:
                if row["model"] and self.spec.models != "none":
                    self.read(row["model"])
            self.groups |= {row["key"]: name for row in rows if row.get("key")}
        except Damaged as error:
            self.damaged.append(f"{error}. Runs of {Path(name).name} are run again.")

    def key(self, group: RunGroup, lr: Any, seed: int) -> str:
        """Name a run by everything it follows from: inputs, version and source."""
        where = *group[:3], lr, seed
        if where not in self._keys:
            spec, algorithm = self.spec, self.spec.algorithms[group.algorithm]
            schedule = spec.schedule_of(group.algorithm)
            facts = [
                __version__, source(), self._problem,
                fingerprint(spec.participation[group.participation].participation),
                fingerprint(algorithm.algorithm), algorithm.noise, spec.rounds,
                sorted(part.sha256 for part in spec.parts.values()),
                spec.eval_every, spec.per_client, spec.on_empty, asdict(spec.stop),
                spec.models, *where,
                fingerprint(tabled(schedule.at(lr), spec.rounds).steps) if schedule else None,
            ]  # fmt: skip
            self._keys[where] = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
        return self._keys[where]

    def keys(self, group: RunGroup) -> list[str]:
        """The keys of a group's runs."""
        return [self.key(group, lr, seed) for lr, seed in group.runs]

    def left(self) -> list[RunGroup]:
        """What is still to run: groups, or the parts of them that have not been run."""
        parts = []
        for group in run_groups(self.spec):
            by_lrs: dict[tuple, list[int]] = {}
            for seed in group.seeds:
                lrs = tuple(lr for lr in group.lrs if self.key(group, lr, seed) not in self.groups)
                by_lrs.setdefault(lrs, []).append(seed)
            parts += [group._replace(lrs=lrs, seeds=tuple(s)) for lrs, s in by_lrs.items() if lrs]
        return parts

    def put(self, group: RunGroup, runs: list[Run]) -> list[Run]:
        """Write the runs of a group, all or none of them; give them with their keys."""
        keys = self.keys(group)
        runs = [
            replace(run, row={"key": key, **run.row, "model": self._model(key, run)}, model=None)
            for key, run in zip(keys, runs, strict=True)
        ]
        name, models = f"{RUNS}/{name_of(keys)}", [r.row["model"] for r in runs if r.row["model"]]
        try:
            self.write_runs(name, runs)
        except BaseException:
            for model in models:
                (self.path / model).unlink(missing_ok=True)
            raise
        self.add(*models)
        self.save()
        self.groups |= dict.fromkeys(keys, name)
        shutil.rmtree(self.unfinished(group), ignore_errors=True)
        return runs

    def _model(self, key: str, run: Run) -> str | None:
        """Write the model of a run, if the study wants it; give its name."""
        if self.spec.models == "none" or run.model is None:
            return None
        plain = re.sub(r"[^\w.-]+", "_", f"{run.row['participation']}-{run.row['algorithm']}")
        name = f"{MODELS}/{plain}-seed{run.row['seed']}-{key}.safetensors"
        about = {field: str(run.row[field]) for field in store.IDENTITY}
        about |= {"key": key, "rounds": str(run.row["rounds"])}
        if self.spec.models == "all":
            about["leaves"] = "(rounds + 1, ...), the model before round 0 first"
        save_model(self.path / name, run.model, about)
        return name

    def unfinished(self, group: RunGroup) -> Path:
        """The folder in which a group keeps its checkpoints, if it does."""
        return self.path / RUNS / UNFINISHED / name_of(self.keys(group))

    def forget_unfinished(self) -> None:
        shutil.rmtree(self.path / RUNS / UNFINISHED, ignore_errors=True)

    def everything(self) -> list[Run]:
        """All runs of the study, in its order."""
        keys = [key for group in run_groups(self.spec) for key in self.keys(group)]
        runs: dict[str, Run] = {}
        for name in dict.fromkeys(self.groups[key] for key in keys):
            runs |= {run.row["key"]: run for run in self.read_runs(name)}
        return [runs[key] for key in keys]


def run_in_folder(
    spec: Spec,
    folder: Path,
    watch: Watch | None = None,
    finished: Callable[[list[Run]], None] | None = None,
    workers: int = 0,
    fresh: bool = False,
) -> store.Study:
    """Run what a folder does not have of a study, and read everything back.

    Args:
        finished: called with runs that have just ended.
        workers: processes that share the groups; 0: threads of this one.
        fresh: whether to forget what was finished.
    """
    with store.alone(folder):
        # First: what cannot be found is said before anything has been run or forgotten.
        scenarios = {
            name: _about(_participation(spec, name), spec.problem.num_clients)
            for name in spec.participation
        }
        here = Store(folder, spec, fresh)
        if fresh:
            for file in (folder / RUNS).glob(f"*{TABLE}"):
                file.unlink()
            here.forget_unfinished()
            here.save()
        began, start = datetime.now(UTC), time.perf_counter()
        for line in here.damaged:
            print(line, file=sys.stderr)
        for group, runs in run_all(spec, here.left(), watch, workers, here.unfinished):
            ended = here.put(group, runs)
            if finished:
                finished(ended)
        runs = here.everything()
        about = {
            "name": spec.name,
            "study": spec.source,
            "parts": {kind: part._asdict() for kind, part in spec.parts.items()},
            "environment": store.environment(),
            "git": store.commit(),
            "started": began.isoformat(timespec="seconds"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - start, 3),
            "compile_seconds": round(sum(r.row["compile_seconds"] for r in runs), 3),
            "problem": {
                "kind": spec.source["problem"]["kind"],
                "num_clients": spec.problem.num_clients,
                "size": tree.size(spec.problem.x0),
                "optimal_loss": _optimal_loss(spec.problem),
            },
            "scenarios": scenarios,
        }
        groups = list(dict.fromkeys(here.groups[run.row["key"]] for run in runs))
        store.save(here, about, runs, _participants(spec), groups)
        here.forget_unfinished()  # of other versions of the study: nobody goes on
        return store.Study.load(folder)


def run(spec: Spec, watch: Watch | None = None) -> Iterator[Run]:
    """Run a study, yielding runs as they end, in order; nothing is kept."""
    with ThreadPoolExecutor(1 if spec.devices else THREADS) as pool:
        for runs in pool.map(partial(run_group, spec, watch=watch), run_groups(spec)):
            yield from runs


def run_all(
    spec: Spec, todo: list[RunGroup], watch: Watch | None, workers: int,
    unfinished: Callable[[RunGroup], Path],
) -> Iterator[tuple[RunGroup, list[Run]]]:  # fmt: skip
    """Run groups in so many processes, or in threads of this one, yielding them as they end.

    `unfinished` gives the folder in which a group keeps its checkpoints.
    """
    progress: dict[RunGroup, Progress] = {}

    def heard(unit: tuple[RunGroup, Path], message: tuple | None) -> bool | None:
        group = unit[0]
        if watch is None:
            return None
        if message is None:
            progress[group] = watch(group.participation, group.title)
            return None
        return progress[group](*message)

    # On several devices, which wait for each other, two groups could wait for ever.
    threads = 1 if spec.devices else THREADS
    units = [(group, unfinished(group)) for group in todo]
    prepare = partial(_parse_here, spec.source, spec.name, spec.folder)
    work = partial(_run_unit, None if workers else spec)
    for (group, _), future in run_units(work, units, workers, threads, heard, prepare):
        yield group, future.result()


_HERE: dict[str, Any] = {}  # of a process that shares the work: its study


def _parse_here(table: dict, name: str, folder: Path | None) -> None:
    _HERE["spec"] = spec.parse(table, name, folder)


def _run_unit(study: Spec | None, unit: tuple[RunGroup, Path], message: Message) -> list[Run]:
    """Run a group; without a study, of the one that this process has parsed."""

    def watch(*_: str) -> Progress:
        message(None)  # it has begun, and will compile first
        return lambda done, metrics: message((done, dict(metrics)))

    return run_group(study or _HERE["spec"], unit[0], watch, unit[1])


def run_group(
    spec: Spec, group: RunGroup, watch: Watch | None = None, place: Path | None = None
) -> list[Run]:
    """Run a group, side by side if that fits: seed by seed, each at every step size.

    If the study keeps checkpoints, they are in the folder `place`.
    """
    section = spec.algorithms[group.algorithm]
    algorithm, noise = section.algorithm, section.noise
    problem = problem_of(spec, group.algorithm)
    participation = participation_of(spec, group.participation, group.algorithm, group.local_steps)
    chosen = [
        choose_lr(lr, algorithm, problem, participation, group.local_steps) for lr in group.lrs
    ]
    progress = watch(group.participation, group.title) if watch else None
    place = place if spec.checkpoint_every else None
    compiled, start = compiling(), time.perf_counter() - seconds_before(place)
    same = group._replace(lrs=tuple(lr for lr, _ in chosen))
    results = _sweep(spec, same, note_seconds(progress, place, start), place)
    share = len(results)
    seconds, compiled = (time.perf_counter() - start) / share, (compiling() - compiled) / share
    runs = []
    for (_, seed), plain, (lr, why_lr) in zip(
        group.runs, results, chosen * len(group.seeds), strict=True
    ):
        theory = Prediction()  # of one step: it says nothing of a schedule
        if not spec.schedule_of(group.algorithm):
            theory = predict(
                algorithm, problem, participation, lr=lr, local_steps=group.local_steps,
                noise=noise,
            )  # fmt: skip
        result = replace(plain, lr=lr, why_lr=why_lr)
        slowed = slows(spec.lr_of(group.algorithm, lr), spec.rounds)
        ahead = expected(theory, problem)._replace(slowed=slowed)
        summary = summarise(result, ahead, spec.stop.tolerance, problem.total_weight)
        if spent := budget_spent(problem, result):
            summary = summary._replace(reason="; ".join(filter(None, (summary.reason, spent))))
        name = RunName(group.participation, group.algorithm, group.local_steps, seed)
        runs.append(
            make_run(name, result, summary, theory, problem.total_weight, seconds, compiled)
        )
    return runs


def _sweep(
    spec: Spec, group: RunGroup, progress: Progress | None, place: Path | None
) -> list[Result]:
    """Run a group side by side; where that does not fit, one part after the other."""
    from focusfl.simulation.api import sweep
    from focusfl.simulation.devices import DoesNotFit

    try:
        return sweep(
            spec.algorithms[group.algorithm].algorithm,
            problem_of(spec, group.algorithm),
            participation_of(spec, group.participation, group.algorithm, group.local_steps),
            lrs=[spec.lr_of(group.algorithm, float(lr)) for lr in group.lrs],
            rounds=spec.rounds,
            local_steps=group.local_steps,
            seed=group.seeds,
            eval_every=spec.eval_every,
            per_client=spec.per_client,
            callbacks=[spec.stop, *([progress] if progress else [])],
            options=Options(
                record_models=spec.models == "all",
                on_empty=spec.on_empty,
                on_divergence="ignore",  # a verdict says it
                checkpoint=Checkpoint(place, spec.checkpoint_every or 0) if place else None,
                client_state=spec.client_state,
                devices=spec.devices,
            ),
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
            for run in _sweep(spec, part, progress, place and place / str(turn))
        ]


def make_run(
    name: RunName,
    result: Result,
    summary: Summary,
    theory: Prediction,
    total_weight: float | int,
    seconds: float = 0.0,
    compile_seconds: float = 0.0,
) -> Run:
    """What a study keeps of a result: a row of the table, and curves by round.

    Args:
        name: which run of a study it is.
        result: of the run.
        summary: of it, in one line.
        theory: what was predicted.
        total_weight: that of all clients: N where all are alike.
        seconds: that it took.
        compile_seconds: how many of these were compiling.
    """
    metrics = result.metrics
    totals = {
        "vectors_sent": np.cumsum(metrics["down"] + metrics["up"]),
        "gradients": np.cumsum(metrics["gradients"]),
    }
    if "bytes_up" in metrics:
        totals["bytes_up"] = np.cumsum(metrics["bytes_up"])
    rounds, evaluated = len(metrics["down"]) - 1, result.evaluated
    wall = np.linspace(0.0, max(seconds - compile_seconds, 0.0), rounds + 1)
    timed = "seconds" in metrics  # by a latency model: what a real run would have taken
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
        "seconds": round(seconds, 4),
        "compile_seconds": round(compile_seconds, 4),
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
    at_evaluations = {k: values[evaluated] for k, values in curves.items()}
    return Run(row, at_evaluations, model, result.clients_metrics)


def participation_of(spec: Spec, scenario: str, name: str, local_steps: int) -> Participation:
    """Who takes part where an algorithm runs; by a latency model that also follows from it."""
    participation, algorithm = spec.participation[scenario].participation, spec.algorithms[name]
    return participation.with_work(algorithm.algorithm, spec.problem.x0, local_steps)


def problem_of(spec: Spec, name: str) -> Problem:
    """The problem as an algorithm of the study sees it."""
    noise = spec.algorithms[name].noise
    return Noisy(spec.problem, noise) if noise > 0 else spec.problem


def expected(theory: Prediction, problem: Problem) -> Expected:
    """Collect what is known before the run: theory's bias and rate, and gradient noise."""
    return Expected(theory.bias, problem.objective.stochastic, theory.rate)


def _participation(spec: Spec, scenario: str) -> Participation:
    """Who takes part where the first of the algorithms runs."""
    first = next(iter(spec.algorithms))
    return participation_of(spec, scenario, first, spec.steps_of(first)[0])


def _about(participation: Participation, num_clients: int) -> dict[str, Any]:
    """What a manifest says of a scenario."""
    marginals = participation.marginals(num_clients)
    return {
        "kind": type(participation).__name__.lower(),
        "p": np.asarray(marginals.p).tolist(),
        "q": np.asarray(marginals.q).tolist(),
    }


def _participants(spec: Spec) -> dict[str, store.Participants]:
    """Who took part under the first seed: rounds and clients, at most PAIRS of them."""
    first, section = next(iter(spec.algorithms.items()))
    steps, clients = spec.steps_of(first)[0], spec.problem.num_clients
    participants = {}
    for name in spec.participation:
        model = budgeted(_participation(spec, name), spec.problem, section.algorithm, steps)
        rounds, pairs = [np.zeros(0, int)], 0
        for ids in schedule(model, clients, spec.rounds, spec.seeds[0]):
            pairs += len(ids)
            if pairs > PAIRS:
                break
            rounds.append(ids)
        sizes = [len(ids) for ids in rounds[1:]]
        participants[name] = np.repeat(np.arange(len(sizes)), sizes), np.concatenate(rounds)
    return participants


def _optimal_loss(problem: Any) -> float | None:
    """F at the optimum, where that is known."""
    if getattr(problem, "optimum", None) is None:
        return None
    loss = problem.objective.evaluate(problem.optimum, problem.eval_data).get("loss")
    return None if loss is None else float(loss)


def seconds_before(place: Path | None) -> float:
    """The seconds that a group had taken when it was killed; of a damaged note, none."""
    file = place and place / "seconds"
    if not file or not file.is_file():
        return 0.0
    try:
        content, seal = files.read(file)
        if seal is not None:
            return float(content.split()[0])
    except ValueError:
        pass
    print(f"{file} is damaged: seconds are counted from now on.", file=sys.stderr)
    return 0.0


def note_seconds(progress: Progress | None, place: Path | None, start: float) -> Progress | None:
    """Note the time that a group has taken, beside its checkpoints, as rounds are done."""
    if place is None:
        return progress
    noted = -SAVING

    def both(done: int, metrics: Mapping[str, Any]) -> bool | None:
        nonlocal noted
        if (seconds := time.perf_counter() - start) - noted >= SAVING:
            files.write(place / "seconds", f"{seconds} {files.BLANK}", sealed=True)
            noted = seconds
        return progress(done, metrics) if progress else None

    return both


def compiling() -> float:
    """The seconds that this thread has spent on tracing and compiling."""
    return getattr(_compile_seconds(), "total", 0.0)


@cache
def _compile_seconds() -> threading.local:
    """Listen to jax from the first call on; give `total` of each thread."""
    import jax

    seconds = threading.local()

    def heard(event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            seconds.total = getattr(seconds, "total", 0.0) + duration_secs

    jax.monitoring.register_event_duration_secs_listener(heard)
    return seconds
