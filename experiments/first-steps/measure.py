"""Measure algorithms at the steps that somebody would try first, on networks.

    python experiments/first-steps/measure.py digits    # 3 minutes on 2 cores

Clients come by coins from .9 to .05 and take 5 steps with batches of 16. A number is
the accuracy on held-out images after the last round, the mean over seeds.
"""

import argparse

import numpy as np

import focusfl as ff
from focusfl.problems.networks import mlp_on
from focusfl.report.table import markdown

ALGORITHMS = {
    "FedAvg": ff.FedAvg(),
    "SCAFFOLD": ff.Scaffold(),
    'FOCUS as published, `Focus(memory="last")`': ff.Focus(memory="last"),
    "FOCUS with mean memory, `Focus()`": ff.Focus(),
}
LOCAL_STEPS = 5


def digits(seed: int) -> ff.problems.LossProblem:
    return mlp_on(
        "digits", hidden=[32], num_clients=20, split="dirichlet", alpha=0.3, seed=seed
    )


STUDIES = {"digits": (digits, (0.025, 0.05, 0.1, 0.2, 0.4, 0.8), 100, 3)}


def accuracies(name: str, rounds: int, seeds: int) -> dict[str, np.ndarray]:
    """The accuracy in the end by algorithm, (seeds, steps); 0 for a run that broke."""
    problem_of, lrs, _, _ = STUDIES[name]
    found: dict[str, np.ndarray] = {}
    for seed in range(seeds):
        problem = problem_of(seed)
        coins = ff.participation.Bernoulli(np.linspace(0.9, 0.05, problem.num_clients))
        for label, algorithm in ALGORITHMS.items():
            runs = ff.sweep(
                algorithm, problem, coins, lrs=lrs, rounds=rounds, seed=seed,
                local_steps=LOCAL_STEPS, every=rounds, throw=None,
            )  # fmt: skip
            row = [
                0.0 if run.diverged_at is not None else run.metrics["accuracy"][-1]
                for run in runs
            ]
            found.setdefault(label, np.empty((seeds, len(lrs))))[seed] = row
    return found


def table(name: str, found: dict[str, np.ndarray]) -> str:
    rows = [
        (label, *(f"{mean:.3f}"[1:] for mean in values.mean(0)))
        for label, values in found.items()
    ]
    return markdown(("", *(f"{lr:g}"[1:] for lr in STUDIES[name][1])), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--rounds", type=int, help="as in the README if left out")
    parser.add_argument("--seeds", type=int, help="as in the README if left out")
    asked = parser.parse_args()
    _, _, rounds, seeds = STUDIES[asked.study]
    found = accuracies(asked.study, asked.rounds or rounds, asked.seeds or seeds)
    print(table(asked.study, found), end="")


if __name__ == "__main__":
    main()
