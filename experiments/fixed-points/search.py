"""Search for false fixed points: runs that come to rest where the gradient does not.

    python experiments/fixed-points/search.py --problems 200

Random small problems, random starting points, steps up to three times 1/L, every
algorithm that is called exact, everybody there and clients that toss coins. A run has
come to rest if its distance to x* did not change in its last 50 rounds; it rests at a
false fixed point if the gradient of F there is not 0.
"""

import argparse
import sys
import time
import warnings

import numpy as np

import focusfl as ff

STEPS = np.array([0.3, 0.6, 0.9, 0.99, 1.01, 1.2, 1.5, 1.9, 1.99, 2.1, 2.5, 3.0])
RESTS, ZERO = 1e-13, 1e-6  # change of the distance, and gradient, both relative
ROUNDS, TAIL = 3000, 50
CLIENTS, ROWS, DIM = 4, 20, 3
PENALTIES = (0.003, 0.03)  # few: each is compiled anew

SEVERAL, ONE = (2, 5), (1,)  # local steps
EXACT = {
    "FOCUS": (ff.Focus(memory="last"), SEVERAL),
    "FOCUS, warm start": (ff.Focus(warm_start=True, memory="last"), SEVERAL),
    "FOCUS, one step": (ff.Focus(), ONE),
    "SCAFFOLD I": (ff.Scaffold(option=1), SEVERAL),
    "SCAFFOLD II": (ff.Scaffold(), SEVERAL),
    "Scaffnew": (ff.Scaffnew(), SEVERAL),
    "ProxSkip": (ff.ProxSkip(p=0.3), ONE),
    "MIFA, one step": (ff.MIFA(), ONE),
    "FedVARP, one step": (ff.FedVARP(), ONE),
}


def logistic(rng: np.random.Generator) -> ff.problems.Logistic:
    """Rows around a random centre; each client has mostly one label."""
    centre, spread = rng.uniform(0, 2), rng.uniform(0.3, 2)
    A = centre + spread * rng.standard_normal((CLIENTS, ROWS, DIM))
    A *= rng.uniform(0.3, 3, (CLIENTS, 1, 1))
    side = np.where(np.arange(CLIENTS) % 2, 1.0, -1.0)[:, None]
    b = np.where(rng.random((CLIENTS, ROWS)) < rng.choice([0, 0.1, 0.4]), -side, side)
    return ff.problems.Logistic(A, b, penalty=float(rng.choice(PENALTIES)))


def quadratic(rng: np.random.Generator) -> ff.problems.Quadratic:
    Q = np.linalg.qr(rng.standard_normal((CLIENTS, DIM, DIM)))[0]
    H = Q @ (10 ** rng.uniform(-1, 1, (CLIENTS, DIM, 1)) * Q.swapaxes(1, 2))
    return ff.problems.Quadratic(H, rng.standard_normal((CLIENTS, DIM)))


FAMILIES = {"logistic": logistic, "quadratic": quadratic}
LAWS = {
    "full": ff.participation.Full(),
    "coins": ff.participation.Bernoulli([0.9, 0.7, 0.5, 0.3]),
}


def verdict(run: ff.Result) -> str:
    if run.diverged_at is not None:
        return "diverged"
    distance, slope = run.metrics["distance"], run.metrics["grad_norm"]
    if slope[-1] <= ZERO * slope[0]:
        return "optimum"
    tail = distance[-TAIL:]
    return "false" if np.ptp(tail) <= RESTS * tail[-1] else "moving"


def search(problems: int, seed: int = 0) -> dict[tuple[str, str, str], np.ndarray]:
    """Count verdicts by algorithm, family and law: an array (steps, verdicts)."""
    words = ["optimum", "false", "moving", "diverged"]
    found: dict = {}
    rng = np.random.default_rng(seed)
    for k in range(problems):
        if sys.stderr.isatty():
            print(f"\rproblem {k + 1} of {problems}", end="", file=sys.stderr)
        family = list(FAMILIES)[k % len(FAMILIES)]
        problem = FAMILIES[family](rng)
        x0 = problem.optimum + 10 ** rng.uniform(-1, 1) * rng.standard_normal(DIM)
        for name, (algorithm, steps) in EXACT.items():
            for law, who in LAWS.items():
                if isinstance(algorithm, ff.ProxSkip) and law != "full":
                    continue  # it asks for everybody
                runs = ff.sweep(
                    algorithm, problem, who, lrs=STEPS / problem.L, rounds=ROUNDS,
                    local_steps=steps[k // 2 % len(steps)], x0=x0, seed=k,
                )  # fmt: skip
                counts = found.setdefault(
                    (name, family, law), np.zeros((len(STEPS), len(words)), int)
                )
                for i, run in enumerate(runs):
                    counts[i, words.index(verdict(run))] += 1
    return found


def table(found: dict[tuple[str, str, str], np.ndarray]) -> str:
    """Count false fixed points by algorithm and step, over families and laws."""
    names = list(dict.fromkeys(name for name, _, _ in found))
    lines = [
        "| lr · L | " + " | ".join(f"{step:g}" for step in STEPS) + " | runs |",
        "| --- " * (len(STEPS) + 2) + "|",
    ]
    for name in names:
        counts = sum(own for (each, _, _), own in found.items() if each == name)
        false = " | ".join(str(count) for count in counts[:, 1])
        lines.append(f"| {name} | {false} | {counts.sum():,} |")
    return "\n".join(lines)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--problems", type=int, default=200)
    start = time.perf_counter()
    warnings.simplefilter("ignore")  # of divergence, and of what is looked for
    print(table(search(options.parse_args().problems)))
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
