"""What checksums cost: files of a study, and clients' memory on disk.

Each side runs with checksums and with functions in their place that do nothing, by
turns in one process; what counts is the fastest turn. Bytes are those on disk.
Usage: python benchmarks/checksums.py [--turns N]
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import made_up
import numpy as np

import focusfl as ff
from focusfl import files
from focusfl.engines.simulator import mapped, rows
from focusfl.experiment import kept
from focusfl.models import read_model, save_model

CELLS, POINTS, SEEDS = 60, 401, 4
CLIENTS, DIM, ACTIVE, ROUNDS = 100_000, 123, 100, 2048
OFF = (
    (files, "_digest", lambda whole, at: "0" * files.DIGITS),
    (mapped, "checksums", lambda table: np.zeros(len(table), np.uint32)),
    (rows, "checksums", lambda table: np.zeros(len(table), np.uint32)),
)


def study(place: Path) -> None:
    """Write and read back so many files of runs, and a model with each."""
    curve = np.random.default_rng(0).random(POINTS)
    names = ("vectors_sent", "gradients", "seconds", "distance", "loss")
    about = {"participation": "some", "algorithm": "focus", "lr": 1e-3}
    runs = [
        kept.Run(
            {**about, "local_steps": 2, "seed": seed},
            {"round": np.arange(POINTS), **dict.fromkeys(names, curve + seed)},
        )
        for seed in range(SEEDS)
    ]
    for number in range(CELLS):
        kept.write_runs(place / f"{number}.parquet", runs)
        kept.read_runs(place / f"{number}.parquet")
        save_model(place / f"{number}.safetensors", {"w": np.ones((100, 100))})
        read_model(place / f"{number}.safetensors")


def clients(place: Path, problem: ff.problems.Problem) -> None:
    """Run FOCUS with everybody's memory on disk, kept every two seconds."""
    ff.simulate(
        ff.Focus(), problem, ff.participation.Uniform(ACTIVE), rounds=ROUNDS,
        lr=0.1 / CLIENTS, local_steps=5, every=10**9, client_state="disk",
        checkpoint=place, checkpoint_every=2,
    )  # fmt: skip


def timed(call: Callable[[Path], None], checked: bool) -> tuple[float, int]:
    """Seconds of a call, and the bytes that it leaves in its folder."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as off:
        for module, name, nothing in () if checked else OFF:
            off.enter_context(patch.object(module, name, nothing))
        start = time.perf_counter()
        call(Path(place))
        seconds = time.perf_counter() - start
        left = sum(file.stat().st_blocks * 512 for file in Path(place).iterdir())
        return seconds, left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    problem = made_up.logistic(CLIENTS, 2, DIM)
    cases: dict[str, Callable[[Path], None]] = {
        f"{CELLS} files of runs and models": study,
        f"{ROUNDS} rounds, {CLIENTS:,} clients on disk": lambda p: clients(p, problem),
    }
    for name, call in cases.items():
        timed(call, True)  # compiles
        turns = [(timed(call, False), timed(call, True)) for _ in range(options.turns)]
        (before, _), (after, size) = (min(side) for side in zip(*turns, strict=True))
        print(f"{name}: {before:.3f} s without, {after:.3f} s with, {size:,} bytes")


if __name__ == "__main__":
    main()
