"""What a round costs, as a function of |S|, d and local steps: measure, fit, compare.

    seconds = a + |S| (b + e d + g d steps)

a is what every round costs, b a participant, e a number of its model and of its data
(fetched and written back), g a number in a local step. Logistic regression with FOCUS,
N = 10,000, two rows a client, float64. The fit weighs relative errors.
Usage: python benchmarks/cost.py [--json FILE]
"""

import argparse
import json
import time
from itertools import product
from pathlib import Path

import made_up
import numpy as np

import focusfl as ff

CLIENTS, ROWS = 10_000, 2
ACTIVE, DIMS, STEPS = (10, 40, 160), (32, 128, 512), (1, 5, 20)
CHUNKS, CHUNK, REPEATS = 12, 256, 3
TERMS = {"a": "a round", "b": "a participant", "e": "a number", "g": "a step of one"}


def round_seconds(problem, active: int, steps: int, chunks: int) -> float:
    """The time of a round: of the chunks in the middle of a run, the least of some."""
    times: list[float] = []

    def run():
        times.clear()
        ff.simulate(
            ff.Focus(), problem, ff.participation.Uniform(active),
            rounds=chunks * CHUNK, lr=1e-6, local_steps=steps, eval_every=10**9,
            callbacks=lambda *_: times.append(time.perf_counter()),
        )  # fmt: skip
        return (times[-2] - times[1]) / (len(times) - 3) / CHUNK

    run()
    return min(run() for _ in range(REPEATS))


def measure(quick: bool) -> list[dict]:
    found, chunks, few = [], 4 if quick else CHUNKS, (ACTIVE[:2], STEPS[:2])
    for dim in DIMS[:2] if quick else DIMS:
        problem = made_up.logistic(CLIENTS, ROWS, dim)
        for active, steps in product(*few) if quick else product(ACTIVE, STEPS):
            seconds = round_seconds(problem, active, steps, chunks)
            found.append({"S": active, "d": dim, "steps": steps, "seconds": seconds})
    return found


def fit(found: list[dict]) -> tuple[dict[str, float], np.ndarray]:
    """The constants, none of them negative, and the times they predict."""
    rows = np.array(
        [
            [1, r["S"], r["S"] * r["d"], r["S"] * r["d"] * r["steps"]]
            for r in found
        ]
    )  # fmt: skip
    times = np.array([r["seconds"] for r in found])
    use = list(range(len(TERMS)))
    while True:  # leave out what comes out negative, and fit again
        scaled = rows[:, use] / times[:, None]
        constants = np.linalg.lstsq(scaled, np.ones(len(times)), rcond=None)[0]
        if (constants >= 0).all():
            break
        use.pop(int(constants.argmin()))
    every = dict.fromkeys(TERMS, 0.0)
    every |= {list(TERMS)[i]: float(c) for i, c in zip(use, constants, strict=True)}
    return every, rows @ np.array(list(every.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    found = measure(options.quick)
    constants, predicted = fit(found)
    for row, by_fit in zip(found, predicted.tolist(), strict=True):
        row["predicted"] = by_fit
        print(
            f"|S| {row['S']:>4}  d {row['d']:>4}  steps {row['steps']:>3}"
            f"{1e6 * row['seconds']:>10.1f} us{1e6 * row['predicted']:>10.1f} by fit"
        )
    worst = max(abs(row["predicted"] / row["seconds"] - 1) for row in found)
    for name, what in TERMS.items():
        print(f"{name} = {1e9 * constants[name]:>10.3f} ns for {what}")
    print(f"the fit is off by at most {worst:.0%}")
    if options.json:
        about = {"constants": constants, "worst": worst, "measured": found}
        options.json.write_text(json.dumps(about, indent=2))


if __name__ == "__main__":
    main()
