"""FedAvg in focusfl, in pfl and in Flower's simulation: client updates per second.

    python benchmarks/peers/run.py                  # all of it, about a quarter hour
    python benchmarks/peers/run.py --workloads logistic --turns 1
    python benchmarks/peers/run.py --quick --peers  # small, focusfl and NumPy alone

Each peer gets an environment of its own, made here by venv and pip. Every run is a
process of its own: it warms up, then it is timed. Sides take turns; figures are medians
over the turns. See README.md for what is compared with what.
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import workloads
from focusfl_side import quality
from watch import Watch, family

HERE = Path(__file__).resolve().parent
TORCH = "torch==2.13.0"
PEERS = {
    "pfl": [TORCH, "pfl==0.6.0"],
    "flower": [TORCH, "flwr[simulation]==1.41.0"],
}


class Run(NamedTuple):
    """One side on one workload."""

    side: str  # its name in the table
    script: str
    rounds: int
    warm: int  # 0: the whole run, once


RUNS = {
    "logistic": [
        Run("focusfl", "focusfl", 200, 20),
        Run("focusfl, long", "focusfl", 20_000, 0),
        Run("pfl", "pfl", 200, 20),
        Run("flower", "flower", 40, 5),
    ],
    "cnn": [
        Run("focusfl", "focusfl", 5, 1),
        Run("pfl", "pfl", 5, 1),
        Run("flower", "flower", 5, 1),
    ],
    "ridge": [
        Run("focusfl", "focusfl", 50_000, 0),
        Run("numpy", "numpy", 5_000, 500),
    ],
}
ON_GPU = {
    "cnn": [Run("focusfl", "focusfl", 100, 5), Run("pfl", "pfl", 100, 5)],
    "logistic": [
        Run("focusfl", "focusfl", 200, 20),
        Run("focusfl, long", "focusfl", 20_000, 0),
        Run("pfl", "pfl", 200, 20),
    ],
}
ALIKE = {"logistic": 20, "cnn-no-dropout": 1, "ridge": 20}  # rounds to compare after


class Place(NamedTuple):
    cache: Path  # environments and workloads
    device: str
    threads: int
    here: bool  # peers are there already, for this interpreter
    prefix: str  # of the workloads' files


def environment(cache: Path, name: str) -> str:
    """Make a peer's environment if it is not there; give its interpreter."""
    folder = cache / name
    python, done = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join(PEERS[name])
    if not done.exists() or done.read_text() != wanted:
        say(f"installing {', '.join(PEERS[name])} in {folder}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [python, "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *PEERS[name]], check=True)
        done.write_text(wanted)
    return str(python)


def call(place: Place, run: Run, workload: str) -> tuple[dict, dict]:
    """Run one side; give what it reports, with its memory, and the model."""
    python, launcher = sys.executable, []
    if run.script in PEERS and not place.here:
        python = environment(place.cache, run.script)
    if run.script == "pfl" and place.device == "cpu":
        # On a CPU two processes of one thread are faster than one of two threads.
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node"]
        launcher += [str(place.threads)]
    out = place.cache / "out.json"
    out.unlink(missing_ok=True)
    command = [
        python, "-W", "ignore", *launcher, HERE / f"{run.script}_side.py",
        place.cache / f"{place.prefix}{workload}.npz", out, "--rounds", run.rounds,
        "--warm", run.warm, "--threads", place.threads, "--device", place.device,
        "--began", time.time(),
    ]  # fmt: skip
    with open(place.cache / "log", "w+") as log:
        child = subprocess.Popen(
            list(map(str, command)), stdout=log, stderr=log, start_new_session=True
        )
        watch = Watch(child.pid)
        try:
            code = child.wait()
        finally:
            peak = watch.stop()
            for pid in family(child.pid):  # none may disturb the next
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if code or not out.exists():
            log.seek(0)
            raise SystemExit(f"{run.side} failed on {workload}:\n{log.read()[-3000:]}")
    with np.load(out.with_suffix(".npz")) as file:
        model = dict(file)
    return json.loads(out.read_text()) | {"peak_mib": peak}, model


def alike(place: Place, sides: list[Run], workload: str, rounds: int) -> dict:
    """How far every side's model is from focusfl's after some rounds, relative to how
    far that has come."""
    models = {}
    for run in {run.script: run for run in sides}.values():
        say(f"{workload}: {run.script}, {rounds} rounds, to compare models")
        _, found = call(place, run._replace(rounds=rounds, warm=1), workload)
        models[run.script] = flat(found)
    with np.load(place.cache / f"{place.prefix}{workload}.npz") as file:
        start = flat({k[3:]: file[k] for k in file.files if k.startswith("x0.")})
    mine = models.pop("focusfl")
    moved = np.linalg.norm(mine - start)
    return {name: float(np.linalg.norm(a - mine) / moved) for name, a in models.items()}


def flat(model: dict) -> np.ndarray:
    return np.concatenate([np.ravel(model[name]).astype(float) for name in sorted(model)])


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(place: Place, names: list[str], turns: int, peers: list[str]) -> dict:
    """All runs, in turns; compare models first."""
    known = {"focusfl", "numpy", *peers}
    found: dict = {}
    for name in names:
        every = RUNS if place.device == "cpu" else ON_GPU
        runs = [run for run in every[name] if run.script in known]
        plain = "cnn-no-dropout" if name == "cnn" else name
        rounds = ALIKE[plain]
        if place.prefix:
            runs, rounds = [run._replace(rounds=2, warm=1) for run in runs], 1
        gaps = alike(place, runs, plain, rounds)
        reports: dict = {run.side: [] for run in runs}
        with np.load(place.cache / f"{place.prefix}{name}.npz") as file:
            work = dict(file)
        for turn in range(turns):
            for run in runs:
                report, model = call(place, run, name)
                if turn == 0:
                    report |= quality(work, model)
                reports[run.side].append(report)
                rate = report["updates_per_second"]
                say(f"{name}: {run.side}, turn {turn + 1}: {rate:,.1f} updates/s")
        found[name] = {"model_gap": gaps, "runs": reports}
        found[name]["median"] = {
            side: {
                key: statistics.median(report[key] for report in all_)
                for key in ("updates_per_second", "peak_mib", "ready_s")
            }
            for side, all_ in reports.items()
        }
    return found


def table(found: dict) -> str:
    lines = [f"{'':24}{'updates/s':>12}{'focusfl is':>12}{'peak MiB':>10}{'ready s':>9}"]
    for name, cell in found.items():
        mine = cell["median"]["focusfl"]["updates_per_second"]
        for side, row in cell["median"].items():
            rate = row["updates_per_second"]
            ratio = "" if side == "focusfl" else f"{mine / rate:,.2f} x"
            lines.append(
                f"{name + ' ' + side:24}{rate:>12,.1f}{ratio:>12}"
                f"{row['peak_mib']:>10,.0f}{row['ready_s']:>9.1f}"
            )
        ends = ", ".join(
            f"{side} {value:.4f} after {reports[0]['rounds']}"
            for side, reports in cell["runs"].items()
            for value in [reports[0]["loss"]]
        )
        lines.append(f"    loss by rounds: {ends}")
        for side, gap in cell["model_gap"].items():
            lines.append(f"{'':4}model of {side} apart from focusfl's: {gap:.1e}")
    return "\n".join(lines)


def plot(found: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(found), figsize=(4 * len(found), 3), squeeze=False)
    for ax, (name, cell) in zip(axes[0], found.items(), strict=True):
        sides = list(cell["median"])
        rates = [cell["median"][side]["updates_per_second"] for side in sides]
        ax.barh(sides[::-1], rates[::-1], color="0.6")
        for side, reports in cell["runs"].items():
            every = [report["updates_per_second"] for report in reports]
            ax.plot(every, [side] * len(every), "k.", markersize=4)
        ax.set_title(name)
        ax.set_xlabel("client updates per second")
        if max(rates) > 20 * min(rates):
            ax.set_xscale("log")
    fig.tight_layout()
    fig.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workloads", nargs="+", choices=list(RUNS), help="all")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--here", action="store_true", help="make no environments; use this one")
    parser.add_argument("--cache", type=Path, default=Path("build/peers"))
    parser.add_argument("--json", type=Path, help="default: peers.json in the cache")
    parser.add_argument("--quick", action="store_true", help="small, without data")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and end what was started
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[: options.threads])  # every side inherits it
    cache = options.cache.resolve()
    if options.device == "gpu" and "flower" in options.peers:
        parser.error("on a GPU focusfl and pfl are compared: add --peers pfl")
    prefix, turns = ("quick-", 1) if options.quick else ("", options.turns)
    names = options.workloads or list(RUNS if options.device == "cpu" else ON_GPU)
    os.environ["JAX_PLATFORMS"] = "cpu"  # here; the side that is measured has its own
    try:
        workloads.write(cache, prefix, options.quick)
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    place = Place(cache, options.device, options.threads, options.here, prefix)
    load = os.getloadavg()[0]
    found = measure(place, names, turns, options.peers)
    machine = {"processor": platform.processor(), "cores": os.cpu_count()}
    everything = {"machine": machine, "load_before": load, "found": found}
    path = options.json or cache / "peers.json"
    path.write_text(json.dumps(everything, indent=2))
    plot(found, path.with_suffix(".svg"))
    print(table(found))
    say(f"written: {path}, {path.with_suffix('.svg')}")


if __name__ == "__main__":
    main()
