"""One run spread over several devices: rounds per second, and how well that scales.

The devices are virtual ones of this CPU, n of them on n cores with a thread each, so
that one device is one core. The work of a round is the same for all n. Cores share
memory and caches, and real accelerators would talk over slower wires: this measures
what the engine adds (the sum over devices in every round, participants unevenly
dealt), and nothing about GPUs. `balance` is the share of slots with somebody in them if
each round took as many as its fullest device has: no efficiency can be above it.
Usage: python benchmarks/devices.py [--json FILE]
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

CASES = {  # clients, who takes part in a round, rows of each, local steps
    "full, long rounds": (256, 256, 50, 5),
    "full, short rounds": (256, 256, 2, 1),
    "uniform, long rounds": (1024, 256, 50, 5),
}
DIM, SHORT, REPEATS = 123, 16, 3
SECONDS = 2.0  # of rounds that are timed
NEVER = 10**9  # rounds to the next evaluation, which every device does in full
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def measure(devices: int, case: str, time_for: float) -> dict:
    """Time rounds in this process, which has as many cores as devices."""
    import made_up

    import focusfl as ff

    many, active, rows, steps = CASES[case]
    problem = made_up.logistic(many, rows, DIM)
    who = ff.participation.Uniform(active)

    def seconds(rounds):
        start = time.perf_counter()
        ff.simulate(
            ff.Focus(), problem, who, rounds=rounds, lr=0.01 / many, local_steps=steps,
            eval_every=NEVER, options=ff.Options(devices=devices),
        )  # fmt: skip
        return time.perf_counter() - start

    seconds(SHORT)
    each = seconds(SHORT) / SHORT
    long = SHORT * max(4, min(512, int(time_for / each / SHORT)))
    seconds(long)
    times = [seconds(long) - seconds(SHORT) for _ in range(REPEATS)]
    drawn = ff.participation.schedule(who, many, 100, 0)
    fullest = [np.bincount(ids % devices, minlength=devices).max() for ids in drawn]
    return {
        "case": case,
        "devices": devices,
        "rounds_per_s": (long - SHORT) / min(times),
        "balance": active / (devices * float(np.mean(fullest))),
    }


def apart(devices: int, case: str, time_for: float) -> dict:
    """Measure in a process of its own, on its own cores."""
    cores = sorted(os.sched_getaffinity(0))[:devices]
    flags = f"--xla_force_host_platform_device_count={devices} {ONE_THREAD}"
    out = subprocess.run(
        [sys.executable, __file__, "--one", str(devices), case, str(time_for)],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    return json.loads(out.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        devices, case, time_for = options.one
        print(json.dumps(measure(int(devices), case, float(time_for))))
        return
    cores = len(os.sched_getaffinity(0))
    found = []
    print(f"{cores} cores")
    print(f"{'':22}{'devices':>8}{'rounds/s':>10}{'efficiency':>12}{'balance':>9}")
    for case in list(CASES)[:1] if options.quick else CASES:
        devices, one = 1, None
        while devices <= cores:
            row = apart(devices, case, 0.0 if options.quick else SECONDS)
            one = one or row["rounds_per_s"]
            row["efficiency"] = row["rounds_per_s"] / (devices * one)
            found.append(row)
            print(
                f"{case:22}{devices:8}{row['rounds_per_s']:10.1f}"
                f"{row['efficiency']:12.2f}{row['balance']:9.2f}",
                flush=True,
            )
            devices *= 2
    if options.json:
        options.json.write_text(json.dumps({"cores": cores, "rows": found}, indent=2))


if __name__ == "__main__":
    main()
