"""simulate against loop on the demo problem, and the cost of clients who stay at home.

Both sides run here, in one process; compile time is printed apart.
Usage: python benchmarks/engines.py [--json FILE]
"""

import argparse
import json
import time
from itertools import product
from pathlib import Path

import numpy as np

import focusfl as ff
from focusfl.studies import spec

DEMO = spec.STUDIES / "demo.toml"
RATES = 16
ROUNDS = 2048


def timed(call, repeats=1):
    """Best wall time of some calls, and what the last one gave."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        out = call()
        best = min(best, time.perf_counter() - start)
    return best, out


def against_loop(quick: bool) -> list[dict]:
    """Microseconds per round, for every cell of the demo."""
    study, rounds = spec.load(DEMO), 64 if quick else ROUNDS
    cells = list(product(study.participation, study.algorithms))
    return [cell(study, *names, rounds) for names in cells[: 1 if quick else None]]


def cell(study: spec.StudySpec, scenario: str, name: str, rounds: int) -> dict:
    """Time the three ways to run one cell."""
    who = study.participation[scenario].participation
    what = (study.algorithms[name].algorithm, study.problem, who)
    (lr,), (local_steps,) = study.step_sizes(scenario, name), study.steps_of(name)
    how = {"local_steps": local_steps, "rounds": rounds}
    lrs = lr * np.geomspace(0.1, 1, RATES)
    first, _ = timed(lambda: ff.simulate(*what, lr=lr, **how))
    fast, a = timed(lambda: ff.simulate(*what, lr=lr, **how), 5)
    slow, b = timed(lambda: ff.loop(*what, lr=lr, **how))
    ff.sweep(*what, lrs=lrs, **how)
    many, _ = timed(lambda: ff.sweep(*what, lrs=lrs, **how), 3)
    assert np.abs(a.x - b.x).max() < 1e-12
    return {
        "cell": f"{scenario} {name}",
        "compile_s": first - fast,
        "loop_us": 1e6 * slow / rounds,
        "simulate_us": 1e6 * fast / rounds,
        "sweep_us": 1e6 * many / rounds / RATES,
    }


def against_clients(quick: bool) -> list[dict]:
    """Microseconds per round at |S| = 8 while N doubles.

    From where the data no longer fits a cache: below, a doubling shows the cache.
    """
    rows, rounds = [], 64 if quick else 8 * ROUNDS
    for num_clients in (80, 160, 320) if quick else (8000, 16000, 32000):
        problem = ff.problems.ridge(num_clients=num_clients, dim=10, rows=10)

        def run(problem=problem):
            return ff.simulate(
                ff.Focus(), problem, ff.participation.Uniform(8), rounds=rounds,
                lr=1e-6, local_steps=5,
            )  # fmt: skip

        run()
        best = timed(run, 5)[0]
        rows.append({"clients": num_clients, "simulate_us": 1e6 * best / rounds})
    return rows


def measured(quick: bool = False) -> dict[str, list[dict]]:
    """All of it, or a little of each part."""
    return {"engines": against_loop(quick), "clients": against_clients(quick)}


def show(found: dict[str, list[dict]]) -> None:
    """Print it."""
    engines, clients = found["engines"], found["clients"]
    print("microseconds per round and run, demo problem")
    columns = ("loop", "simulate", "ratio", f"sweep of {RATES}", "ratio", "compile")
    print(" " * 18 + "".join(f"{name:>12}" for name in columns))
    for r in engines:
        loop, one, many = r["loop_us"], r["simulate_us"], r["sweep_us"]
        print(
            f"{r['cell']:<18}{loop:>12.1f}{one:>12.1f}{loop / one:>12.1f}"
            f"{many:>12.1f}{loop / many:>12.1f}{r['compile_s']:>10.2f} s"
        )
    loop, one, many = (
        sum(r[way] for r in engines) for way in ("loop_us", "simulate_us", "sweep_us")
    )
    print(
        f"whole demo: one run {loop / one:.1f} times as fast as loop, "
        f"{RATES} side by side {loop / many:.1f} times\n"
    )
    print("microseconds per round at |S| = 8")
    before = None
    for r in clients:
        now = r["simulate_us"]
        change = f"{now / before - 1:>+8.0%}" if before else ""
        print(f"{r['clients']:>6,} clients {now:>8.1f}{change}")
        before = now


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    found = measured(options.quick)
    show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
