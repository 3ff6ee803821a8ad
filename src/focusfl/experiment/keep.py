"""Carry a study out in a folder: what is finished there is not run again."""

import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from focusfl import __version__, tree
from focusfl.experiment import results
from focusfl.experiment.config import Study
from focusfl.experiment.environment import environment
from focusfl.experiment.results import Run
from focusfl.experiment.study import Batch, Watch, batches
from focusfl.experiment.workers import carried_out
from focusfl.fingerprint import fingerprint, package
from focusfl.models import save_model
from focusfl.participation import Participation, schedule

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

CELLS, MODELS = "cells", "models"
PAIRS = 2_000_000  # of round and client that are kept for pictures of participation

Finished = Callable[[list[Run]], None]


class Shelf:
    """The finished runs of a folder, by their content; none of them if fresh."""

    def __init__(self, folder: Path, study: Study, fresh: bool = False):
        self.folder, self.study = folder / CELLS, study
        self._problem = fingerprint(study.problem)
        self._laws = {
            name: fingerprint(scene.participation)
            for name, scene in study.participation.items()
        }
        self._files: dict[str, Path] = {}  # by key of a run
        for file in [] if fresh else sorted(self.folder.glob("*.parquet")):
            self._files |= dict.fromkeys(
                (r["key"] for r in results.read_rows(file)), file
            )

    def key(self, batch: Batch, lr: Any, seed: int) -> str:
        """A name for a run that changes with anything it follows from."""
        study, scene, name = self.study, batch.participation, batch.algorithm
        contender = study.algorithms[name]
        facts = [
            __version__, package(), self._problem, self._laws[scene],
            fingerprint(contender.algorithm), contender.noise, study.rounds,
            study.every, study.on_empty, dataclasses.asdict(study.stop),
            study.models, *(scene, name, batch.local_steps, lr, seed),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def left(self) -> list[Batch]:
        """What is still to run of the study."""
        return [part for own in batches(self.study) for part in self._missing(own)]

    def _missing(self, batch: Batch) -> list[Batch]:
        """The parts of a batch that have not been run."""
        by_rates: dict[tuple, list[int]] = {}
        for seed in batch.seeds:
            lrs = tuple(
                lr for lr in batch.lrs if self.key(batch, lr, seed) not in self._files
            )
            by_rates.setdefault(lrs, []).append(seed)
        return [
            batch._replace(lrs=lrs, seeds=tuple(seeds))
            for lrs, seeds in by_rates.items()
            if lrs
        ]

    def put(self, batch: Batch, runs: list[Run]) -> None:
        """Keep the runs of a batch, all or none of them."""
        keys = [self.key(batch, lr, seed) for seed in batch.seeds for lr in batch.lrs]
        runs = [
            Run({"key": key, **run.row, "model": self._saved(key, run)}, run.curves)
            for key, run in zip(keys, runs, strict=True)
        ]
        name = hashlib.sha256(" ".join(keys).encode()).hexdigest()[:16]
        file = self.folder / f"{name}.parquet"
        try:
            results.write_runs(file, runs)
        except BaseException:
            for run in runs:
                if run.row["model"]:
                    (self.folder.parent / run.row["model"]).unlink(missing_ok=True)
            raise
        self._files |= dict.fromkeys(keys, file)

    def _saved(self, key: str, run: Run) -> str | None:
        """Write the model of a run, if the study wants it; say under which name."""
        if self.study.models == "none" or run.model is None:
            return None
        whole = f"{run.row['participation']}-{run.row['algorithm']}"
        plain = re.sub(r"[^\w.-]+", "_", whole)
        name = f"{MODELS}/{plain}-seed{run.row['seed']}-{key}.safetensors"
        about = {field: str(run.row[field]) for field in results.IDENTITY}
        about |= {"key": key, "rounds": str(run.row["rounds"])}
        if self.study.models == "all":
            about["leaves"] = "(rounds + 1, ...), the model before round 0 first"
        save_model(self.folder.parent / name, run.model, about)
        return name

    def everything(self) -> list[Run]:
        """All runs of the study, in its order."""
        keys = [
            self.key(batch, lr, seed)
            for batch in batches(self.study)
            for seed in batch.seeds
            for lr in batch.lrs
        ]
        found: dict[str, Run] = {}
        for file in {self._files[key] for key in keys}:
            found |= {run.row["key"]: run for run in results.read_runs(file)}
        return [found[key] for key in keys]


def begun(folder: Path) -> bool:
    """Whether a study was begun in a folder, and perhaps ended."""
    return (folder / CELLS).is_dir()


def complete(
    study: Study,
    folder: Path,
    watch: Watch | None = None,
    finished: Finished | None = None,
    workers: int = 0,
    fresh: bool = False,
) -> results.Results:
    """Run what is missing of a study, put everything together, and read it back.

    With workers, so many processes share the batches; else a few threads do. `fresh`
    forgets what was finished. `finished` is called with runs that have just ended.
    """
    with _alone(folder):
        # First: what cannot be found is said before anything has been run or forgotten.
        scenes = {
            name: _about(scene.participation, study.problem.num_clients)
            for name, scene in study.participation.items()
        }
        if fresh:
            for file in (folder / CELLS).glob("*.parquet"):
                file.unlink()
        began, start = datetime.now(UTC), time.perf_counter()
        shelf = Shelf(folder, study)
        for batch, runs in carried_out(study, shelf.left(), watch, workers):
            shelf.put(batch, runs)
            if finished:
                finished(runs)
        runs = shelf.everything()
        about = {
            "name": study.name,
            "study": study.source,
            "environment": environment(),
            "git": _commit(),
            "started": began.isoformat(timespec="seconds"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - start, 3),
            "compile_seconds": round(sum(r.row["compile_seconds"] for r in runs), 3),
            "problem": {
                "kind": study.source["problem"]["kind"],
                "num_clients": study.problem.num_clients,
                "size": tree.size(study.problem.x0),
                "optimal_loss": _optimal_loss(study.problem),
            },
            "scenes": scenes,
        }
        results.save(folder, about, runs, _participants(study))
        return results.read(folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Be the only one who carries a study out in a folder."""
    cells = folder / CELLS
    cells.mkdir(parents=True, exist_ok=True)
    with open(cells / ".lock", "w") as lock:
        try:
            if fcntl:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"another focusfl is running a study in {folder}; wait for it, or name "
                "another folder with --out."
            ) from None
        for part in cells.glob(".part-*"):  # of one that was killed while it wrote
            shutil.rmtree(part, ignore_errors=True)
        yield


def _about(law: Participation, num_clients: int) -> dict[str, Any]:
    found = law.marginals(num_clients)
    return {
        "kind": type(law).__name__.lower(),
        "p": np.asarray(found.p).tolist(),
        "q": np.asarray(found.q).tolist(),
    }


def _participants(study: Study) -> dict[str, results.Participants]:
    """Who took part under the first seed, as far as it is not too much to keep."""
    found = {}
    for name, scene in study.participation.items():
        drawn, pairs = [], 0
        for ids in schedule(
            scene.participation, study.problem.num_clients, study.rounds, study.seeds[0]
        ):
            pairs += len(ids)
            if pairs > PAIRS:
                break
            drawn.append(ids)
        sizes = [len(ids) for ids in drawn]
        who = np.concatenate([np.zeros(0, int), *drawn])
        found[name] = np.repeat(np.arange(len(drawn)), sizes), who
    return found


def _optimal_loss(problem: Any) -> float | None:
    """F at the optimum, where that is known."""
    optimum = getattr(problem, "optimum", None)
    if optimum is None:
        return None
    loss = problem.objective.evaluate(optimum, problem.held).get("loss")
    return None if loss is None else float(loss)


def _commit() -> str | None:
    """The commit of the folder a study is run in, if git knows one."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() if found.returncode == 0 else None
