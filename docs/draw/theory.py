"""Draw what theory predicts over what runs do: rates, fixed points, the noise floor."""

import argparse

import numpy as np
from svg import PICTURES

import focusfl as ff
from focusfl.core.files import renamed
from focusfl.studies.report.bands import LABELS
from focusfl.studies.report.figure import blank, render
from focusfl.studies.report.names import colour

ROUNDS, TAU, LR, NOISE = 800, 5, 5e-4, 5.0
STEPS = (1e-5, 2e-5, 4e-5)
PAPER = ff.Focus(memory="last")


def main():
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    problem = ff.problems.ridge(num_clients=16, dim=20, rows=40)
    who = ff.participation.Bernoulli(np.linspace(0.2, 0.9, 16))
    known, unit, rounds = (
        ff.theory.constants(problem),
        problem.eval_data["unit"],
        ROUNDS + 1,
    )

    def run(algorithm, problem=problem, lr=LR):
        return ff.simulate(
            algorithm, problem, who, rounds=ROUNDS, lr=lr, local_steps=TAU,
            options=ff.Options(record_models=True),
        )  # fmt: skip

    def far(x):
        return np.linalg.norm(x - problem.optimum, axis=-1) / unit

    figure = blank(figsize=(9, 3.7), layout="constrained")
    left, right = figure.subplots(1, 2)
    for shade, lr in zip((0.45, 0.7, 1.0), STEPS, strict=True):
        ours = {"color": colour("focus"), "alpha": shade}
        (rate,) = [r for r in ff.theory.rates(known, lr) if r.what == "|x - x*|"]
        r, distance = np.arange(rounds), run(PAPER, lr=lr).metrics["distance"]
        left.semilogy(r[::8], distance[::8], **ours)
        left.semilogy(r[[0, -1]], rate.factor ** r[[0, -1]], "--", **ours)
        left.annotate(f"  {lr:.0e}", (rounds, rate.factor**rounds), **ours)
    left.set_title("FOCUS, three steps", fontsize=11)
    left.set_xlim(0, rounds * 1.2)
    left.set_ylabel(LABELS["distance"])

    floor = ff.theory.noise_floor(problem, who, LR / 10, NOISE) ** 0.5 / unit
    fedavg, noisy = run(ff.FedAvg()), ff.problems.Noisy(problem, NOISE)
    scatter = fedavg.metrics["distance"]
    right.semilogy(np.arange(rounds)[::4], scatter[::4], color=colour("fedavg"), alpha=0.3)
    mean = np.cumsum(fedavg.trajectory[50:], 0) / np.arange(1, rounds - 49)[:, None]
    curves = [
        ("FedAvg, mean iterate", np.arange(50, rounds), far(mean),
         far(ff.theory.fedavg_limit(problem, who, LR, TAU))),
        ("MIFA", np.arange(rounds), run(ff.MIFA()).metrics["distance"],
         far(ff.theory.fedavg_fixed_point(problem, LR, TAU))),
        ("FOCUS, noisy gradients", np.arange(rounds),
         run(PAPER, noisy, LR / 10).metrics["distance"], floor),
    ]  # fmt: skip
    for algorithm, (name, at, measured, end) in zip(
        ("fedavg", "mifa", "focus"), curves, strict=True
    ):
        right.semilogy(at[::4], measured[::4], color=colour(algorithm), label=name)
        right.axhline(end, color=colour(algorithm), linestyle="--")
        print(f"{name}: {np.median(measured[-300:]):.4f}, predicted {end:.4f}")
    right.set_title("where others end", fontsize=11)
    right.legend(frameon=False, fontsize=9)
    for panel in (left, right):
        panel.set_xlabel("rounds")
        panel.grid(alpha=0.25, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    with renamed(PICTURES / "theory.svg") as part:
        part.write_bytes(render(figure, "svg"))


if __name__ == "__main__":
    main()
