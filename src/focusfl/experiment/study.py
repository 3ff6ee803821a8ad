"""Run a study and keep what came out."""

import csv
import io
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from focusfl import __version__
from focusfl.engines.run import Progress, Result
from focusfl.experiment.config import Study
from focusfl.experiment.summary import Summary, summarise
from focusfl.problems import Noisy


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a study: who ran, under which participation, and what came out."""

    participation: str
    algorithm: str
    result: Result
    summary: Summary
    seconds: float

    def row(self) -> dict[str, Any]:
        """One line of the table, for machines."""
        return {
            "participation": self.participation,
            "algorithm": self.algorithm,
            "lr": self.result.lr,
            "why_lr": self.result.why_lr,
            **self.summary._asdict(),
            "vectors_sent": int(
                sum(self.result.metrics[k].sum() for k in ("down", "up"))
            ),
            "seconds": round(self.seconds, 4),
        }


def run(
    study: Study, progress: Callable[[str, str], Progress] | None = None
) -> Iterator[Cell]:
    """Run every algorithm under every participation model, yielding as they end."""
    from focusfl.engines.simulate import simulate

    def one(scene: str, name: str) -> Cell:
        contender = study.algorithms[name]
        noisy = contender.noise > 0
        start = time.perf_counter()
        result = simulate(
            contender.algorithm,
            Noisy(study.problem, contender.noise) if noisy else study.problem,
            study.participation[scene].participation,
            rounds=study.rounds,
            lr=study.step_size(scene, name),
            local_steps=study.local_steps,
            seed=study.seed,
            on_empty=study.on_empty,  # type: ignore[arg-type]  # checked there
            progress=progress(scene, name) if progress else None,
        )
        seconds = time.perf_counter() - start
        return Cell(scene, name, result, summarise(result), seconds)

    return side_by_side(one, run_cells(study))


def side_by_side(
    one: Callable[[str, str], Cell], cells: Iterable[tuple[str, str]]
) -> Iterator[Cell]:
    """Run cells in a few threads, in order: compiling takes one core each."""
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        waiting = [pool.submit(one, *cell) for cell in cells]
        try:
            for cell in waiting:
                yield cell.result()
        finally:
            pool.shutdown(cancel_futures=True)


def run_cells(study: Study) -> Iterator[tuple[str, str]]:
    """Who runs where: the names of participation model and algorithm, in order."""
    for scene in study.participation:
        for name in study.algorithms:
            yield scene, name


def save(study: Study, cells: list[Cell], folder: Path) -> list[Path]:
    """Write the curves as tidy CSV and everything about the run as JSON."""
    return [
        write(folder / "results.csv", _curves(cells)),
        write(folder / "manifest.json", json.dumps(_manifest(study, cells), indent=2)),
    ]


def write(path: Path, content: str | bytes) -> Path:
    """Write a file under a temporary name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    if isinstance(content, str):
        content = content.encode()
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _curves(cells: list[Cell]) -> str:
    out = io.StringIO()
    names = list(cells[0].result.metrics)
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["participation", "algorithm", "round", *names])
    for cell in cells:
        columns = [cell.result.metrics[name].tolist() for name in names]
        for index, values in enumerate(zip(*columns, strict=True)):
            rows.writerow([cell.participation, cell.algorithm, index, *values])
    return out.getvalue()


def _manifest(study: Study, cells: list[Cell]) -> dict[str, Any]:
    return {
        "study": study.source,
        "name": study.name,
        "seed": study.seed,
        "cells": [cell.row() for cell in cells],
        "environment": environment(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def environment() -> dict[str, Any]:
    """Versions and hardware that a result depends on."""
    import jax

    names = ("jax", "jaxlib", "numpy")
    return {
        "focusfl": __version__,
        **{name: version(name) for name in names},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "device": jax.devices()[0].device_kind,
    }
