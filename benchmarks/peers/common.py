"""What every side shares: its command line, the workload it reads, what it reports.

Imports numpy alone, and is read in every environment.
"""

import argparse
import json
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Task(NamedTuple):
    """One run of one side."""

    work: dict  # the arrays of the workload; see workloads.py
    rounds: int  # that are timed
    warm: int  # rounds before those, which are not
    threads: int
    device: str
    out: Path
    began: float  # when the process was started, by the wall clock

    @property
    def kind(self) -> str:
        return str(self.work["kind"])

    @property
    def cohorts(self) -> np.ndarray:
        """Who takes part: (warm-up and timed rounds, cohort)."""
        return self.work["cohorts"][: self.warm + self.rounds]

    @property
    def num_clients(self) -> int:
        return len(self.work["y" if "y" in self.work else "b"])

    @property
    def rates(self) -> tuple[float, float]:
        """How often dropout drops, after the convolutions and after the hidden."""
        first, second = self.work["dropout"].tolist()
        return first, second


def read(arguments: Sequence[str] | None = None) -> Task:
    """Parse the command line of a side."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", type=Path)
    parser.add_argument("out", type=Path, help="the report, .json; the model, .npz")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--warm", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--began", type=float, default=time.time())
    options = parser.parse_args(arguments)
    with np.load(options.workload) as file:
        work = dict(file)
    return Task(
        work, options.rounds, options.warm, options.threads, options.device,
        options.out, options.began,
    )  # fmt: skip


def params(work: dict) -> dict[str, np.ndarray]:
    """The model to start from, by name."""
    return {k[len("x0.") :]: a for k, a in work.items() if k.startswith("x0.")}


def report(
    task: Task, rounds: int, start: float, end: float, model: dict, packages: list[str]
) -> None:
    """Write what was measured: so many rounds between two readings of time.time()."""
    updates, seconds = rounds * task.cohorts.shape[1], end - start
    found = {
        "rounds": rounds,
        "updates": updates,
        "seconds": seconds,
        "updates_per_second": updates / seconds,
        "ready_s": start - task.began,  # until the first round that is timed
        "threads": task.threads,
        "device": task.device,
        "versions": {name: metadata.version(name) for name in packages},
    }
    np.savez(task.out.with_suffix(".npz"), **model)
    task.out.write_text(json.dumps(found))
