"""A study for other programs: curves and table as CSV, the table as LaTeX."""

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from focusfl.core.validation import printable, unknown
from focusfl.studies.report.bands import metrics_of
from focusfl.studies.report.groups import Group, grouped
from focusfl.studies.report.names import label
from focusfl.studies.report.numbers import Spread, number
from focusfl.studies.report.rows import SETTINGS, columns
from focusfl.studies.results import IDENTITY, Results, axes_of
from focusfl.studies.verdict import EXACT

KINDS = ("curves", "table")
MEAN = "_mean"  # what the name of a column of means ends in
BEST = (
    "error", "accuracy", "accuracy/worst", "loss/worst", "rounds_to_target",
    "vectors_to_target", "bytes_to_target", "seconds",
)  # fmt: skip
LEFT_OUT = (  # of a table that fits on paper
    "reason", "bytes_to_target", "rate", "seconds", "grad_norm", "tracker_norm",
    "tracking_gap",
)  # fmt: skip
POWER = re.compile(r"\b(\d(?:\.\d+)?)e(-?\d+)\b")
SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
}  # fmt: skip


class Mean(NamedTuple):
    """Mean and standard deviation over seeds; the deviation of one seed is NaN."""

    mid: float
    deviation: float


class Field(NamedTuple):
    """A column that can be chosen."""

    name: str
    title: str
    cells: Sequence[Any]  # texts, or Spread, Mean or None
    number: str = ""  # which of NUMBERS or of clients' metrics; none of texts

    @property
    def ends(self) -> tuple[str, ...]:
        """What the names of its columns in a CSV end in."""
        if not self.number:
            return ("",)
        return ("", "_q1", "_q3") if self.name == self.number else (MEAN, "_sd")


def export(found: Results, file: Path, what: str | None = None, chosen: Sequence[str] = ()) -> str:
    """Give the text of a file: by its ending CSV or LaTeX.

    Args:
        found: the study.
        file: that is to be written.
        what: curves or table; None: curves in .csv, the table in .tex.
        chosen: names of columns, in order; all, or those that fit on paper, if none.

    Raises:
        ValueError: If a file has another ending, or a column is not known.
    """
    if file.suffix == ".tex" and what in (None, "table"):
        return latex(found, chosen)
    if file.suffix == ".csv" and what in (None, *KINDS):
        return (table_csv if what == "table" else curves_csv)(found, chosen)
    raise ValueError(
        f"export writes .csv (of curves, or with --what table) and .tex (of the "
        f"table); got {file}" + (f" and --what {what}." if what else ".")
    )


def curves_csv(found: Results, chosen: Sequence[str] = ()) -> str:
    """Every curve, tidy: a row per run and round."""
    names = [*IDENTITY, *axes_of(found.runs), *metrics_of(found.runs)]
    chosen = _known(chosen, names) or names
    rows: list[Iterable[Any]] = [chosen]
    for run in found.runs:
        length = len(run.curves["round"])
        values = [
            [run.row[name]] * length if name in IDENTITY
            else run.curves[name].tolist() if name in run.curves
            else [""] * length
            for name in chosen
        ]  # fmt: skip
        rows += zip(*values, strict=True)
    return _csv(rows)


def table_csv(found: Results, chosen: Sequence[str] = ()) -> str:
    """A row per group of runs: medians, quartiles, means and deviations over seeds."""
    groups = grouped(found)
    known = _fields(groups)
    usual = {column.name for column in columns(groups)}
    names = [k for k, own in known.items() if (own.number or k) in usual]
    table = [known[name] for name in _known(chosen, known) or names]
    rows: list[list[Any]] = [[(f.number or f.name) + end for f in table for end in f.ends]]
    for cells in zip(*(field.cells for field in table), strict=True):
        line: list[Any] = []
        for field, cell in zip(table, cells, strict=True):
            if isinstance(cell, Mean):
                line += ["" if np.isnan(value) else value for value in cell]
            elif isinstance(cell, Spread):
                line += [cell.mid, cell.low, cell.high]
            else:
                line += [cell] if not field.number else [""] * len(field.ends)
        rows.append(line)
    return _csv(rows)


def latex(found: Results, chosen: Sequence[str] = ()) -> str:
    """A booktabs table: medians with quartiles, means with deviations over seeds.

    The best of each scenario is bold, and what is unclear is not told.
    """
    groups = grouped(found)
    known = _fields(groups)
    told = [_told(word) for word in known["verdict"].cells]
    known["verdict"] = known["verdict"]._replace(cells=told)
    usual = [column.name for column in columns(groups) if column.name not in LEFT_OUT]
    if set(told) == {"–"}:
        usual.remove("verdict")
    if any(len(one.runs) > 1 for one in groups):
        ends = [name for name in usual if name in BEST and "_to_" not in name]
        usual = [n for name in usual for n in (name, name + MEAN)[: 1 + (name in ends)]]
    table = [known[name] for name in _known(chosen, known) or usual]
    layout = "".join("r" if field.number else "l" for field in table)
    best = {field.name: _best(groups, field) for field in table}
    lines = [
        "% Needs \\usepackage{booktabs}. Medians over seeds, quartiles in brackets; "
        "means and standard deviations (sd).",
        f"\\begin{{tabular}}{{{layout}}}",
        "\\toprule",
        _line([escaped(field.title) for field in table]),
    ]
    before = None
    for index, scenario in enumerate(one.scenario for one in groups):
        if scenario != before:
            lines.append("\\midrule")
        cells = [
            "" if field.name == "participation" and scenario == before
            else _cell(field, field.cells[index], index in best[field.name])
            for field in table
        ]  # fmt: skip
        lines.append(_line(cells))
        before = scenario
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _fields(groups: list[Group]) -> dict[str, Field]:
    """All columns that there are, by name."""
    found = []
    for column in columns(groups, constant=True):
        name, title, cells = column
        found.append(Field(name, title, cells, name if column.numeric else ""))
        if column.numeric and name not in SETTINGS:
            means = [_mean(one.numbers(name)) for one in groups]
            found.append(Field(name + MEAN, f"{title}, mean ± sd", means, name))
    return {field.name: field for field in found}


def _mean(values: np.ndarray) -> Mean | None:
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    several = len(known) > 1 and np.isfinite(known).all()
    return Mean(float(known.mean()), float(known.std(ddof=1)) if several else np.nan)


def _known(chosen: Sequence[str], names: Collection[str]) -> Sequence[str]:
    """Raise unless all these columns are known."""
    for name in chosen:
        if name not in names:
            raise ValueError(unknown("column", name, names))
    return chosen


def _told(verdict: str) -> str:
    """A verdict for a paper, in which nothing is unclear."""
    words = [word for word in verdict.split(", ") if not word.startswith("unclear")]
    return ", ".join(words) or "–"


def escaped(text: str) -> str:
    """Text as LaTeX takes it, with 1.4e-15 as a product."""
    plain = "".join(SPECIAL.get(sign, sign) for sign in printable(text))
    plain = POWER.sub(r"$\1\\cdot10^{\2}$", plain).replace(r"$1\cdot10", "$10")
    plain = plain.replace(r"\cdot10^{0}", "")
    return plain.replace("–", "--").replace("∞", r"$\infty$").replace("±", r"$\pm$")


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _best(groups: list[Group], field: Field) -> set[int]:
    """The rows that are best in their scenario; all that are exact are as good."""
    if field.number not in BEST:
        return set()
    sign = -1 if number(field.number).rising else 1
    found: dict[str, dict[int, float]] = {}
    for index, (one, cell) in enumerate(zip(groups, field.cells, strict=True)):
        if cell is not None and abs(cell.mid) < float("inf"):
            value = max(cell.mid, EXACT) if field.number == "error" else sign * cell.mid
            found.setdefault(one.scenario, {})[index] = value
    return {
        index
        for own in found.values()
        for index, value in own.items()
        if value == min(own.values())
    }


def _cell(field: Field, cell: str | Spread | Mean | None, best: bool) -> str:
    if cell is None or isinstance(cell, str):
        name = label(cell) if cell and field.name == "algorithm" else cell
        return escaped(name or "–")
    form = number(field.number).text
    mid = form(cell.mid)
    if isinstance(cell, Mean):
        plain = _with_deviation(mid, cell.deviation, form)
        return f"{{\\bfseries\\boldmath {plain}}}" if best else plain
    text = f"{{\\bfseries\\boldmath {escaped(mid)}}}" if best else escaped(mid)
    low, high = form(cell.low), form(cell.high)
    if low == high:
        return text
    powers = {value.partition("e")[2] for value in (low, mid, high)}
    if len(powers) == 1:  # said once is enough
        low, high = (value.partition("e")[0] for value in (low, high))
    return f"{text} {{\\scriptsize [{escaped(low)}, {escaped(high)}]}}"


def _with_deviation(mean: str, deviation: float, form: Callable[[float], str]) -> str:
    """A mean and its deviation, to the same power of ten."""
    if np.isnan(deviation):
        return escaped(mean)
    digits, power, exponent = mean.partition("e")
    if not power:
        return escaped(f"{mean} ± {form(deviation)}")
    both = f"{digits} \\pm {deviation / 10.0 ** int(exponent):.1f}"
    return f"${both}$" if exponent == "0" else f"$({both})\\cdot10^{{{exponent}}}$"


def _csv(rows: Iterable[Iterable[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        [printable(cell) if isinstance(cell, str) else cell for cell in row] for row in rows
    )
    return out.getvalue()
