"""Theorem 1 in its three regimes: what FOCUS does against what was predicted.

    python experiments/regimes/regimes.py      # 10 s on 2 cores

No study: every regime has a problem, a step and a prediction of its own.
"""

import argparse
import json
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from focusfl.algorithms.focus import Focus
from focusfl.cli.options import OUT
from focusfl.core.files import write
from focusfl.core.result import Result
from focusfl.participation import Bernoulli, Participation
from focusfl.problems import Problem, random_quadratic, robust, wavy
from focusfl.studies.report import terminal
from focusfl.studies.report.figure import blank, saved
from focusfl.studies.report.names import colour
from focusfl.theory import auto_lr, constants, step_sizes

LOCAL_STEPS = 3
STYLES = {  # what was measured has FOCUS's colour, all else is grey
    "measured": "-",
    "measured fast": (0, (5, 1)),
    "predicted": "--",
    "printed": "-.",
    "bound": ":",
}
GREY = "0.45"

Kind = Literal["measured", "measured fast", "predicted", "bound", "printed"]


class Row(NamedTuple):
    """One curve's number next to the one that was predicted for it."""

    regime: str
    what: str
    lr: float
    allowed: float  # the theorem's largest lr, as printed
    measured: float
    predicted: float
    bound: float  # what the theorem promises at this lr


class Line(NamedTuple):
    """A curve of a panel: what FOCUS did, or what was said of it."""

    x: np.ndarray
    y: np.ndarray
    kind: Kind
    label: str


class Panel(NamedTuple):
    """One regime: its numbers and curves, and what they are called."""

    title: str
    ylabel: str
    rows: list[Row]
    lines: list[Line]
    ylim: tuple[float, float] | None = None
    xscale: str = "linear"


def regimes() -> list[Panel]:
    """Run FOCUS in the three regimes."""
    return [_strongly_convex(), _pl(), _general()]


def _strongly_convex() -> Panel:
    # Curvatures in a narrow range: the theorem's step is not tiny.
    problem = random_quadratic(num_clients=4, dim=5, mu=1.0, L=1.5)
    law, rounds = Bernoulli([0.9, 0.5, 0.3, 0.6]), 1500
    known, allowed = constants(problem), _allowed(problem, law, "strongly convex")
    mu, mu_F = problem.mu, problem.mu_F
    fast = auto_lr(Focus(warm_start=True, memory="last"), problem, law, LOCAL_STEPS).lr
    rows, lines, r = [], [], np.arange(rounds + 1)
    tried: list[tuple[float, Kind, str]] = [
        (allowed, "measured", "the theorem's"),
        (fast, "measured fast", "auto_lr,"),
    ]
    for lr, kind, name in tried:
        distance = _run(problem, law, lr, rounds).metrics["distance"]
        distance = distance / distance[0]
        rows.append(
            Row(
                "strongly convex",
                "|x - x*|, factor per round",
                lr,
                allowed,
                measured=_factor(distance),
                predicted=1 - lr * known.N * mu_F,
                bound=float(np.sqrt(max(0.0, 1 - lr * mu * known.N / 2))),
            )  # fmt: skip
        )
        lines.append(Line(r, _cut(distance), kind, f"FOCUS, {name} lr = {lr:.2g}"))
    slow = rows[0]
    lines += [
        Line(r, slow.predicted**r, "predicted", r"$(1-\eta N\mu_F)^r$"),
        Line(r, slow.bound**r, "bound", r"Theorem 1: $(1-\eta N\mu/2)^{r/2}$"),
    ]
    title = "strongly convex\nlr is the theorem's, or auto_lr"
    return Panel(title, r"$\|x-x^\star\|$, relative", rows, lines, (1e-13, 3))


def _pl() -> Panel:
    problem, law = wavy(), Bernoulli(np.linspace(0.3, 0.9, 8))
    known, allowed = constants(problem), _allowed(problem, law, "PL")
    lr, rounds = (
        auto_lr(Focus(warm_start=True, memory="last"), problem, law, LOCAL_STEPS).lr,
        180,
    )
    gap = _run(problem, law, lr, rounds).metrics["loss"]
    r, step = np.arange(rounds + 1), lr * known.N
    basin = int(np.flatnonzero(gap < 1)[0])  # past the last wave F is convex
    near = (1 - step * problem.curvature[0]) ** 2
    beta = problem.beta
    printed, proved = 1 - step * beta, 1 - step * beta / 4
    start = float(gap[0])
    lines = [
        Line(r, _cut(gap), "measured", f"FOCUS, auto_lr = {lr:.2g}"),
        Line(
            r[basin:], gap[basin] * near ** (r[basin:] - basin), "predicted",
            r"near $x^\star$: $(1-\eta N\lambda_{\min}(\nabla^2 F))^{2r}$",
        ),
        Line(r, start * printed**r, "printed", r"as printed: $(1-\eta N\beta)^r$"),
        Line(r, start * proved**r, "bound", r"as proved: $(1-\eta N\beta/4)^r$"),
    ]  # fmt: skip
    title = f"PL, not convex\nlr is {lr / allowed:,.0f} times the theorem's"
    what, measured = "F - F*, factor per round", _factor(gap, 1e-22)
    rows = [Row("PL", what, lr, allowed, measured, near, printed)]
    return Panel(title, r"$F-F^\star$", rows, lines, (1e-20 * start, 3 * start))


def _general() -> Panel:
    problem, law = robust(), Bernoulli(np.linspace(0.3, 0.9, 8))
    known, allowed = constants(problem), _allowed(problem, law, "non-convex")
    lr, rounds = (
        auto_lr(Focus(warm_start=True, memory="last"), problem, law, LOCAL_STEPS).lr,
        2000,
    )
    metrics = _run(problem, law, lr, rounds).metrics
    R = np.arange(1, rounds + 1)
    total = (metrics["grad_norm"][:-1] ** 2).cumsum()
    # A round of gradient descent on F lowers it by lr N |grad F|^2.
    loss, step = metrics["loss"], lr * known.N
    predicted = float(loss[0] - loss[-1]) / step
    bound = 8 * float(loss[0]) / step  # F >= 0 is all that is known of F*
    lines = [
        Line(R, total / R, "measured", f"FOCUS, auto_lr = {lr:.2g}"),
        Line(
            R, predicted / R, "predicted",
            r"$(F(x_0)-F(x_R))\,/\,(\eta N R)$" + f" = {predicted:.2g} / R",
        ),
        Line(
            R, bound / R, "bound",
            r"Theorem 1: $8\,F(x_0)\,/\,(\eta N R)$" + f" = {bound:.2g} / R",
        ),
    ]  # fmt: skip
    title = f"general non-convex\nlr is {lr / allowed:,.0f} times the theorem's"
    what, measured = "mean |grad F|^2 times R", float(total[-1])
    rows = [Row("non-convex", what, lr, allowed, measured, predicted, bound)]
    ylabel = r"mean of $\|\nabla F\|^2$ over $R$ rounds"
    return Panel(title, ylabel, rows, lines, xscale="log")


def _allowed(problem: Problem, law: Participation, regime: str) -> float:
    known = constants(problem)
    (step,) = (
        s
        for s in step_sizes(known, law.marginals(known.N), LOCAL_STEPS)
        if (s.regime, s.reading) == (regime, "as printed")
    )
    return step.lr


def _run(problem: Problem, law: Participation, lr: float, rounds: int) -> Result:
    from focusfl.simulation.api import simulate

    # Warm: Theorem 1 speaks of no other start.
    return simulate(
        Focus(warm_start=True, memory="last"), problem, law, rounds=rounds, lr=lr,
        local_steps=LOCAL_STEPS,
    )  # fmt: skip


def _cut(curve: np.ndarray, floor: float = 1e-30) -> np.ndarray:
    return np.maximum(curve, floor)


def _factor(curve: np.ndarray, floor: float = 1e-12) -> float:
    """The factor per round by which a curve shrinks on its way to a floor."""
    low = np.flatnonzero(curve <= floor * curve[0])
    end = int(low[0]) if len(low) else len(curve) - 1
    start = end // 3  # past the transient
    return float((curve[end] / curve[start]) ** (1 / (end - start)))


def regimes_figure(found: list[Panel]):
    """Draw one panel per regime."""
    figure = blank(figsize=(13.5, 4.2), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(found)), found, strict=True):
        for line in panel.lines:
            ours = line.kind in ("measured", "measured fast")
            axes.plot(
                line.x, line.y, linestyle=STYLES[line.kind], label=line.label,
                color=colour("focus") if ours else GREY,
            )  # fmt: skip
        axes.set(yscale="log", xscale=panel.xscale, xlabel="rounds", ylim=panel.ylim)
        axes.set_ylabel(panel.ylabel)
        axes.set_title(panel.title, fontsize=11)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8.5)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    OUT.add(parser)
    folder = parser.parse_args().out or Path("runs/reproduce-regimes")
    found = regimes()
    rows = [row for panel in found for row in panel.rows]
    write(folder / "results.json", json.dumps([row._asdict() for row in rows], indent=1))
    saved(folder, {"figure": lambda: regimes_figure(found)})
    texts = [(row.regime, row.what, *(f"{value:.4g}" for value in row[2:])) for row in rows]
    terminal.print_table("FOCUS, measured and predicted", Row._fields, texts)
    print(f"written: {folder}")


if __name__ == "__main__":
    main()
