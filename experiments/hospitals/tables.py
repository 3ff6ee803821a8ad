"""Whom a model serves: tables and a figure, hospital by hospital."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from hospitals.serve import OPTIMUM, TRAINING, Outcome

from focusfl.studies.report import table
from focusfl.studies.report.bands import LABELS, SMALLEST
from focusfl.studies.report.figure import blank
from focusfl.studies.report.names import label, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = dict[tuple[str, str], np.ndarray]
SAME = 5e-3  # smaller numbers would read as 0.00
KEY = (
    "First line: the mean over seeds. Others: by how much they differ from it on the "
    "same patients, ± the deviation of that over seeds; = is 0.00±0.00."
)


class Table(NamedTuple):
    title: str
    headers: tuple[str, ...]
    rows: list[tuple[str, ...]]


def tables(outcome: Outcome) -> list[Table]:
    """All measures in the first scenario, and the loss in training in the others."""
    first, *others = outcome.plan.participation
    shown = [(first, what) for what in outcome.served[0].measures]
    shown += [(scenario, TRAINING) for scenario in others]
    return [_table(outcome, scenario, what) for scenario, what in shown]


def _table(outcome: Outcome, scenario: str, what: str) -> Table:
    served = [one for one in outcome.served if one.participation == scenario]
    names = dict.fromkeys([OPTIMUM, *(one.algorithm for one in served)])
    found = _found(outcome, scenario, what)
    rows = []
    for name in names:
        error = np.median([one.error for one in served if one.algorithm == name])
        entries = [
            _entry(found[name, hospital], found[OPTIMUM, hospital])
            for hospital in outcome.hospitals
        ]
        shown = "∞" if np.isinf(error) else f"{error:.0e}" if error else "–"
        rows.append((label(name), shown, *entries))
    title = f"{scenario}: {_called(what)}, seeds: {outcome.seeds}"
    return Table(title, ("model", "error", *outcome.hospitals), rows)


def _called(what: str) -> str:
    return "loss in training" if what == TRAINING else f"{what} on patients held out"


def _entry(values: np.ndarray, best: np.ndarray) -> str:
    known = np.isfinite(values) & np.isfinite(best)  # nobody to compare: no AUC
    if not known.any():
        return "–"
    if values is best:
        return f"{values[known].mean():.2f}"
    above = (values - best)[known]
    if max(abs(above.mean()), above.std()) < SAME:
        return "="
    return f"{above.mean():+.2f}±{above.std():.2f}"


def markdown(outcome: Outcome) -> str:
    """The tables as Markdown."""
    texts = [f"{t.title}\n\n{table.markdown(t.headers, t.rows)}" for t in tables(outcome)]
    return "\n".join([*texts, KEY, ""])


def figure(outcome: Outcome) -> "Figure":
    """Draw, for the first scenario, errors over rounds and what hospitals get."""
    scenario = next(iter(outcome.plan.participation))
    score = list(outcome.served[0].measures)[2]
    names = list(outcome.plan.algorithms)
    look = looks(names)
    drawing = blank(figsize=(12.5, 4.2), layout="constrained")
    curves, gaps, scores = drawing.subplots(1, 3, width_ratios=(1.1, 1, 1))
    for name in names:
        middle = np.median(outcome.curves[scenario, name], axis=0)
        rounds = np.flatnonzero(~np.isnan(middle))  # those that were evaluated
        height = np.clip(middle[rounds], SMALLEST, None)
        curves.plot(rounds, height, label=label(name), **look[name])
    curves.set_yscale("log")
    curves.set_xlabel("rounds")
    curves.set_ylabel(LABELS["distance"])
    curves.set_title("distance to the optimum", fontsize=11)
    found = _found(outcome, scenario, TRAINING)
    above = {who: found[who] - found[OPTIMUM, who[1]] for who in found}
    _dots(gaps, outcome, scenario, look, above)
    gaps.axvline(0, color="black", linewidth=0.8)
    gaps.set_title("loss in training, above that of x*", fontsize=11)
    found = _found(outcome, scenario, score)
    _dots(scores, outcome, scenario, look, found)
    scores.set_title(_called(score), fontsize=11)
    for place, hospital in enumerate(outcome.hospitals):
        mean = _mean(found[OPTIMUM, hospital])
        ends = [place - 0.4, place + 0.4]
        scores.plot([mean, mean], ends, color="black", linewidth=0.8, label="x*")
    for panel in (curves, gaps, scores):
        panel.grid(alpha=0.25, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    handles = {line.get_label(): line for p in (curves, scores) for line in p.lines}
    shown = [*map(label, names), "x*"]
    drawing.legend(
        [handles[name] for name in shown], shown, loc="outside right center",
        frameon=False,
    )  # fmt: skip
    return drawing


def _dots(panel: "Axes", outcome: Outcome, scenario: str, look: dict, found: Values) -> None:
    """One dot with a bar of one deviation per hospital and algorithm."""
    offsets = np.linspace(-0.3, 0.3, len(look)) if len(look) > 1 else [0.0]
    for name, offset in zip(look, offsets, strict=True):
        values = [found[name, hospital] for hospital in outcome.hospitals]
        panel.errorbar(
            [_mean(v) for v in values], np.arange(len(values)) + offset,
            xerr=[_mean((v - _mean(v)) ** 2) ** 0.5 for v in values], fmt="o",
            markersize=4.5, linewidth=1.2, color=look[name]["color"], label=f"_{name}",
        )  # fmt: skip
    law = outcome.plan.participation[scenario].participation
    online = law.marginals(len(outcome.hospitals)).p
    texts = [
        f"{hospital}\nonline {p:.0%}" for hospital, p in zip(outcome.hospitals, online, strict=True)
    ]
    panel.set_yticks(range(len(texts)), texts)
    panel.set_ylim(len(texts) - 0.5, -0.5)  # the first hospital on top


def _mean(values: np.ndarray) -> float:
    """The mean of those that are known."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def _found(outcome: Outcome, scenario: str, what: str) -> Values:
    """The values of one measure, seed by seed, for every model and hospital."""
    found: dict[tuple[str, str], list[float]] = {}
    for one in outcome.served:
        if one.participation == scenario:
            where = one.algorithm, one.hospital
            found.setdefault(where, []).append(one.measures[what])
    return {where: np.array(values) for where, values in found.items()}
