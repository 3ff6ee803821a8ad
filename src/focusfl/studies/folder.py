"""Run a study in a folder: what is finished there is not run again."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from focusfl.core import tree
from focusfl.core.files import take_lock
from focusfl.participation import Participation, schedule
from focusfl.privacy.budgets import budgeted
from focusfl.studies import results
from focusfl.studies.cache import RUNS, UNFINISHED, ResultCache
from focusfl.studies.config import Study
from focusfl.studies.environment import environment
from focusfl.studies.results import Run
from focusfl.studies.study import Watch, law_of
from focusfl.studies.workers import run_all

PAIRS = 2_000_000  # of round and client that are kept for pictures of participation

Finished = Callable[[list[Run]], None]


def begun(folder: Path) -> bool:
    """Whether a study was begun in a folder, and perhaps ended."""
    return (folder / RUNS).is_dir()


def run_in_folder(
    study: Study,
    folder: Path,
    watch: Watch | None = None,
    finished: Finished | None = None,
    workers: int = 0,
    fresh: bool = False,
) -> results.Results:
    """Run what is missing of a study, put everything together, and read it back.

    With workers, so many processes share the groups; else a few threads do. `fresh`
    forgets what was finished. `finished` is called with runs that have just ended.
    """
    with alone(folder):
        # First: what cannot be found is said before anything has been run or forgotten.
        scenarios = {
            name: _about(_law(study, name), study.problem.num_clients)
            for name in study.participation
        }
        if fresh:
            for file in (folder / RUNS).glob("*.parquet"):
                file.unlink()
            _forget_unfinished(folder)
        began, start = datetime.now(UTC), time.perf_counter()
        cache = ResultCache(folder, study)
        for line in cache.damaged:
            print(line, file=sys.stderr)
        for group, runs in run_all(study, cache.left(), watch, workers, cache.unfinished):
            kept = cache.put(group, runs)
            if finished:
                finished(kept)
        runs = cache.everything()
        about = {
            "name": study.name,
            "study": study.source,
            "parts": {kind: part._asdict() for kind, part in study.parts.items()},
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
            "scenarios": scenarios,
        }
        results.save(folder, about, runs, _participants(study))
        _forget_unfinished(folder)  # of other versions of the study: nobody goes on
        return results.read(folder)


def _forget_unfinished(folder: Path) -> None:
    shutil.rmtree(folder / RUNS / UNFINISHED, ignore_errors=True)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only one who carries a study out in a folder."""
    runs = folder / RUNS
    runs.mkdir(parents=True, exist_ok=True)
    with open(runs / ".lock", "w") as lock:
        try:
            free = take_lock(lock.fileno())
        except OSError:
            free = False
        if not free:
            raise ValueError(
                f"another focusfl is running a study in {folder}; wait for it, or name "
                "another folder with --out."
            )
        for part in runs.glob(".part-*"):  # of one that was killed while it wrote
            part.unlink(missing_ok=True)
        yield


def _law(study: Study, scenario: str) -> Participation:
    """Who takes part; by a clock, where the first of the algorithms runs."""
    first = next(iter(study.algorithms))
    return law_of(study, scenario, first, study.steps_of(first)[0])


def _about(law: Participation, num_clients: int) -> dict[str, Any]:
    found = law.marginals(num_clients)
    return {
        "kind": type(law).__name__.lower(),
        "p": np.asarray(found.p).tolist(),
        "q": np.asarray(found.q).tolist(),
    }


def _participants(study: Study) -> dict[str, results.Participants]:
    """Who took part under the first seed, as far as it is not too much to keep."""
    found, (first, spec) = {}, next(iter(study.algorithms.items()))
    steps = study.steps_of(first)[0]
    for name in study.participation:
        drawn, pairs = [], 0
        for ids in schedule(
            budgeted(_law(study, name), study.problem, spec.algorithm, steps),
            study.problem.num_clients,
            study.rounds,
            study.seeds[0],
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
    loss = problem.objective.evaluate(optimum, problem.eval_data).get("loss")
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
