"""Theorem 1 in its three regimes: what FOCUS does against what was predicted."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from focusfl.algorithms.focus import Focus
from focusfl.engines.run import Result
from focusfl.participation import Bernoulli, Participation
from focusfl.problems import Problem, random_quadratic, robust, wavy
from focusfl.report.figure import COLOURS, blank
from focusfl.theory import auto_lr, constants, step_sizes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOCAL_STEPS = 3
MEASURED, PREDICTED, BOUND, FAST = COLOURS[:4]


class Row(NamedTuple):
    """One curve's number next to the one that was predicted for it."""

    regime: str
    what: str
    lr: float
    allowed: float  # the theorem's largest lr, as printed
    measured: float
    predicted: float
    bound: float  # what the theorem promises at this lr


def regimes_figure() -> tuple["Figure", list[Row]]:
    """Draw one panel per regime; give the numbers in them."""
    figure = blank(figsize=(13.5, 4.2), layout="constrained")
    panels = figure.subplots(1, 3)
    rows = [
        *_strongly_convex(panels[0]),
        *_pl(panels[1]),
        *_general(panels[2]),
    ]
    for panel in panels:
        panel.set_xlabel("rounds")
        panel.grid(alpha=0.25, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, fontsize=8.5)
    return figure, rows


def _strongly_convex(panel: "Axes") -> list[Row]:
    # Curvatures in a narrow range: the theorem's step is not tiny.
    problem = random_quadratic(num_clients=4, dim=5, mu=1.0, L=1.5)
    law, rounds = Bernoulli([0.9, 0.5, 0.3, 0.6]), 1500
    known, allowed = constants(problem), _allowed(problem, law, "strongly convex")
    mu, mu_F = problem.mu, problem.mu_F
    fast = auto_lr(Focus(warm_start=True), problem, law, LOCAL_STEPS).lr
    rows, r = [], np.arange(rounds + 1)
    for lr, colour in [(allowed, MEASURED), (fast, FAST)]:
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
        name = "the theorem's" if lr == allowed else "auto_lr,"
        panel.plot(_cut(distance), color=colour, label=f"FOCUS, {name} lr = {lr:.2g}")
    slow = rows[0]
    panel.plot(
        r, slow.predicted**r, "--", color=PREDICTED, label=r"$(1-\eta N\mu_F)^r$"
    )
    panel.plot(
        r, slow.bound**r, ":", color=BOUND,
        label=r"Theorem 1: $(1-\eta N\mu/2)^{r/2}$",
    )  # fmt: skip
    panel.set_yscale("log")
    panel.set_ylim(1e-13, 3)
    panel.set_ylabel(r"$\|x-x^\star\|$, relative")
    panel.set_title("strongly convex\nlr is the theorem's, or auto_lr", fontsize=11)
    return rows


def _pl(panel: "Axes") -> list[Row]:
    problem, law = wavy(), Bernoulli(np.linspace(0.3, 0.9, 8))
    known, allowed = constants(problem), _allowed(problem, law, "PL")
    lr, rounds = auto_lr(Focus(warm_start=True), problem, law, LOCAL_STEPS).lr, 180
    gap = _run(problem, law, lr, rounds).metrics["loss"]
    r, step = np.arange(rounds + 1), lr * known.N
    basin = int(np.flatnonzero(gap < 1)[0])  # past the last wave F is convex
    near = (1 - step * problem.curvature[0]) ** 2
    beta = problem.beta
    printed, proved = 1 - step * beta, 1 - step * beta / 4
    panel.plot(_cut(gap), color=MEASURED, label=f"FOCUS, auto_lr = {lr:.2g}")
    panel.plot(
        r[basin:], gap[basin] * near ** (r[basin:] - basin), "--", color=PREDICTED,
        label=r"near $x^\star$: $(1-\eta N\lambda_{\min}(\nabla^2 F))^{2r}$",
    )  # fmt: skip
    for factor, style, name in [
        (printed, "-.", r"as printed: $(1-\eta N\beta)^r$"),
        (proved, ":", r"as proved: $(1-\eta N\beta/4)^r$"),
    ]:
        panel.plot(r, gap[0] * factor**r, style, color=BOUND, label=name)
    panel.set_yscale("log")
    panel.set_ylim(1e-20 * gap[0], 3 * gap[0])
    panel.set_ylabel(r"$F-F^\star$")
    panel.set_title(
        f"PL, not convex\nlr is {lr / allowed:,.0f} times the theorem's", fontsize=11
    )
    measured = _factor(gap, 1e-22)
    what = "F - F*, factor per round"
    return [Row("PL", what, lr, allowed, measured, near, printed)]


def _general(panel: "Axes") -> list[Row]:
    problem, law = robust(), Bernoulli(np.linspace(0.3, 0.9, 8))
    known, allowed = constants(problem), _allowed(problem, law, "non-convex")
    lr, rounds = auto_lr(Focus(warm_start=True), problem, law, LOCAL_STEPS).lr, 2000
    metrics = _run(problem, law, lr, rounds).metrics
    R = np.arange(1, rounds + 1)
    total = (metrics["grad_norm"][:-1] ** 2).cumsum()
    panel.plot(R, total / R, color=MEASURED, label=f"FOCUS, auto_lr = {lr:.2g}")
    # A round of gradient descent on F lowers it by lr N |grad F|^2.
    loss, step = metrics["loss"], lr * known.N
    predicted = float(loss[0] - loss[-1]) / step
    panel.plot(
        R, predicted / R, "--", color=PREDICTED,
        label=r"$(F(x_0)-F(x_R))\,/\,(\eta N R)$" + f" = {predicted:.2g} / R",
    )  # fmt: skip
    # F >= 0 is all that is known of F*.
    bound = 8 * float(loss[0]) / step
    panel.plot(
        R, bound / R, ":", color=BOUND,
        label=r"Theorem 1: $8\,F(x_0)\,/\,(\eta N R)$" + f" = {bound:.2g} / R",
    )  # fmt: skip
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_ylabel(r"mean of $\|\nabla F\|^2$ over $R$ rounds")
    panel.set_title(
        f"general non-convex\nlr is {lr / allowed:,.0f} times the theorem's",
        fontsize=11,
    )
    what, measured = "mean |grad F|^2 times R", float(total[-1])
    return [Row("non-convex", what, lr, allowed, measured, predicted, bound)]


def _allowed(problem: Problem, law: Participation, regime: str) -> float:
    known = constants(problem)
    (step,) = (
        s
        for s in step_sizes(known, law.marginals(known.N), LOCAL_STEPS)
        if (s.regime, s.reading) == (regime, "as printed")
    )
    return step.lr


def _run(problem: Problem, law: Participation, lr: float, rounds: int) -> Result:
    from focusfl.engines.simulate import simulate

    # Warm: Theorem 1 speaks of no other start.
    return simulate(
        Focus(warm_start=True), problem, law, rounds=rounds, lr=lr,
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
