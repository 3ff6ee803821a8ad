"""Draw docs/dialysis.png: Cox's model over 67 centres, against the pooled fit.

    python docs/draw/dialysis.py

Five local steps. Equal budgets: FOCUS, SCAFFOLD and FedAvg have twelve steps, each half
of the one before; FedAdam has four of these with three server steps each. Drawn is the
setting that ends nearest to the pooled fit. Coins: the centre that disagrees most with
that fit takes part in one round of 20, the one that agrees most in nine of ten.
"""

import argparse
from pathlib import Path

import numpy as np

import focusfl as ff
from focusfl.core.files import write
from focusfl.studies.report.figure import blank, render
from focusfl.studies.report.names import label, looks

PICTURE = Path(__file__).parents[1] / "dialysis.png"
ROUNDS, LOCAL_STEPS, EVERY = 1500, 5, 10
STEPS = [6.4 / 2**k for k in range(12)]
ALGORITHMS = {  # variants of each, with their steps
    "focus": [(ff.Focus(), STEPS)],
    "scaffold": [(ff.Scaffold(), STEPS)],
    "fedavg": [(ff.FedAvg(), STEPS)],
    "fedadam": [(ff.FedAdam(server_lr=s), STEPS[2::3]) for s in (0.1, 0.03, 0.01)],
}


def best_runs(rounds: int = ROUNDS) -> dict[str, ff.Result]:
    """The run that ends nearest to the pooled fit, for each algorithm."""
    problem = ff.problems.dialysis()
    coins = ff.participation.Bernoulli(
        ff.participation.by_rarity(problem.disagreement, p_min=0.05, p_max=0.9)
    )
    found = {}
    for name, variants in ALGORITHMS.items():
        runs = [
            run
            for variant, steps in variants
            for run in ff.sweep(
                variant, problem, coins, lrs=steps, rounds=rounds, eval_every=EVERY,
                local_steps=LOCAL_STEPS, options=ff.Options(on_divergence="ignore"),
            )
            if run.diverged_at is None
        ]  # fmt: skip
        found[name] = min(runs, key=lambda run: run.metrics["distance"][-1])
    return found


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    found = best_runs()
    look = looks(found)
    figure = blank(figsize=(6.4, 3.4), layout="constrained")
    panel = figure.subplots()
    for name, run in found.items():
        distance = run.metrics["distance"][::EVERY]
        rounds = EVERY * np.arange(len(distance))
        panel.plot(rounds, distance, label=label(name), **look[name])
        print(f"{label(name):8} step {run.lr:g}: {distance[-1]:.1e}")
    panel.set_yscale("log")
    panel.set_xlabel("rounds")
    panel.set_ylabel("distance to the pooled fit, relative")
    panel.set_title("Cox regression over 67 dialysis centres, coins of .05 to .9")
    panel.grid(alpha=0.25, linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=9)
    write(PICTURE, render(figure, "png"))


if __name__ == "__main__":
    main()
