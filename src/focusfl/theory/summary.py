"""All that theory says of one problem under one participation, in one table."""

import textwrap
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from focusfl.algorithms import Focus, Scaffold
from focusfl.core import Algorithm
from focusfl.core.validation import check_count, check_positive
from focusfl.participation import Participation
from focusfl.problems import LeastSquares, Problem, Quadratic
from focusfl.theory import limits
from focusfl.theory.auto import auto_lr
from focusfl.theory.constants import Quadratics, check_quadratic, check_rounds, constants, exact
from focusfl.theory.steps import rates, step_sizes

PUBLISHED = Focus(memory="last")  # the one that Theorem 1 is about
SOURCE_WIDTH = 60
HEADERS = ("quantity", "value", "where it comes from")


class Row(NamedTuple):
    section: str
    name: str
    value: float | int | None  # None: it does not hold or is not known
    source: str


@dataclass(frozen=True)
class Report:
    """Rows to print with str(), or to hand to machines with as_dict()."""

    title: str
    rows: tuple[Row, ...]

    def as_dict(self) -> dict[str, Any]:
        """Give values and sources by section and name, fit for JSON."""
        sections: dict[str, dict[str, Any]] = {}
        for row in self.rows:
            entry = {"value": row.value, "source": row.source}
            sections.setdefault(row.section, {})[row.name] = entry
        return {"title": self.title, **sections}

    def __str__(self) -> str:
        texts = [(row.name, _number(row.value), row.source) for row in self.rows]
        wide = [max(len(t[k]) for t in [HEADERS, *texts]) for k in range(2)]

        def line(name: str, value: str, source: str) -> str:
            first, *more = textwrap.wrap(source, SOURCE_WIDTH)
            indent = " " * (wide[0] + wide[1] + 6)
            lines = [f"  {name:<{wide[0]}}  {value:>{wide[1]}}  {first}"]
            return "\n".join([*lines, *(indent + text for text in more)])

        lines, section = [self.title, "", line(*HEADERS)], ""
        for row, text in zip(self.rows, texts, strict=True):
            if row.section != section:
                section = row.section
                lines += ["", section]
            lines.append(line(*text))
        return "\n".join(lines)


def report(
    problem: Problem,
    participation: Participation,
    *,
    lr: float,
    local_steps: int = 1,
    scale: float = 1.0,
    cutoff: int = 50,
) -> Report:
    """Put together what theory predicts at this step size.

    Args:
        problem: what is minimised; needs L and mu.
        participation: the model of who takes part.
        lr: step size; of all that is said of a step.
        local_steps: gradients per participant and round, tau.
        scale: standard deviation of gradient noise that the noise floor is for.
        cutoff: of FedAU.
    """
    check_positive("lr", lr)
    check_count("local_steps", local_steps)
    check_rounds(participation)
    known = constants(problem)
    marginals = participation.marginals(known.N)
    of = "constants"
    rows = [
        Row(of, "L", known.L, "smoothness of every f_i"),
        Row(of, "mu", known.mu, "strong convexity of every f_i"),
        Row(of, "L_F", known.L_F, "smoothness of F"),
        Row(of, "mu_F", known.mu_F, "strong convexity of F"),
        Row(of, "beta", known.beta, "PL constant of F"),
        Row(of, "N", known.N, "clients"),
        Row(of, "min p", float(marginals.p.min()), "P(i in S), the rarest client"),
        Row(of, "min q", float(marginals.q.min()), "E[1{i in S}/|S|], the lightest client"),
    ]
    of = "largest step of Theorem 1"
    rows += [
        Row(of, f"{step.regime}, {step.reading}", step.lr, f"{step.binding}; {step.note}")
        for step in step_sizes(known, marginals, local_steps)
    ]
    choice = auto_lr(PUBLISHED, problem, participation, local_steps)
    rows.append(Row("step to use", "auto_lr", choice.lr, choice.why))
    of = "step below which rest is the optimum"
    algorithms: dict[str, Algorithm] = {
        "Focus": PUBLISHED,
        "Focus, mean memory": Focus(),
        "Scaffold": Scaffold(),
    }
    for name, algorithm in algorithms.items():
        bound = algorithm.max_exact_lr(known.L, local_steps)
        if np.isinf(bound):
            rows.append(Row(of, name, None, "any step will do"))
        else:
            source = f"lr L = {lr * known.L:.3g}; past it a run may stop elsewhere"
            rows.append(Row(of, name, bound, source))
    of = f"factor per round of FOCUS at lr = {lr:.3g}"
    rows += [Row(of, rate.what, rate.factor, rate.source) for rate in rates(known, lr)]
    if isinstance(exact(problem), Quadratic | LeastSquares):
        problem = check_quadratic(problem, "where runs end")
        rows += _ends(problem, participation, lr, local_steps, scale, cutoff)
    title = (
        f"{type(problem).__name__} with {known.N} clients under "
        f"{type(participation).__name__}, lr = {lr:.3g}, local_steps = {local_steps}"
    )
    return Report(title, tuple(rows))


def _ends(
    problem: Quadratics, participation: Participation, lr: float, local_steps: int,
    scale: float, cutoff: int,
) -> list[Row]:  # fmt: skip
    """Give where everybody ends, as |limit - x*| / |x*|."""
    unit, optimum = float(problem.eval_data["unit"]), problem.optimum

    def distance(x: np.ndarray) -> float:
        return float(np.linalg.norm(x - optimum)) / unit

    bias = limits.first_order_bias(problem, lr, local_steps)
    floor = limits.noise_floor(problem, participation, lr, scale)
    everybody = limits.fedavg_fixed_point(problem, lr, local_steps)
    sampled = limits.fedavg_limit(problem, participation, lr, local_steps)
    fedau = limits.fedau_limit(problem, participation, lr, local_steps, cutoff)
    of = "relative distance from x* in the end"
    exact_ones = Row(of, "FOCUS, SCAFFOLD", 0.0, "their fixed point is x*")
    if lr >= PUBLISHED.max_exact_lr(problem.L, local_steps):
        exact_ones = Row(of, "SCAFFOLD", 0.0, "FOCUS may stop elsewhere: lr is at 1/L or past it")
    return [
        exact_ones,
        Row(of, "MIFA, FedVARP", distance(everybody), "x° with weights 1/N"),
        Row(of, "  to first order", distance(optimum + bias),
            "lr (tau-1)/2 inv(H) mean(H_i g_i*)"),
        Row(of, "FedAvg, on average", distance(sampled), "x° with weights q / sum q"),
        Row(of, f"FedAU({cutoff}), on average", distance(fedau),
            f"x° with weights 1 - (1 - p)^{cutoff}"),
        Row(of, f"SG-FOCUS, noise {scale:.3g}", float(np.sqrt(floor)) / unit,
            "root of lr s^2/2 tr(inv(H)) mean(2/p - 1)"),
        Row(of, "  with mean memory", float(np.sqrt(floor / local_steps)) / unit,
            "the same with s^2/tau"),
    ]  # fmt: skip


def _number(value: float | int | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6f}" if 0.1 <= abs(value) <= 1 else f"{value:.3g}"
