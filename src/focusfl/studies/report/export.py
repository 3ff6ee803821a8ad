"""Write a study for other programs: curves and table as CSV, the table as LaTeX."""

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from focusfl.core.validation import printable, unknown
from focusfl.studies.report.bands import metrics_of
from focusfl.studies.report.columns import Cell, Column, Quartiles, columns_of
from focusfl.studies.report.groups import Group, by_scenario, grouped
from focusfl.studies.report.names import label
from focusfl.studies.store import IDENTITY, Study, axes_of
from focusfl.studies.verdict import EXACT

KINDS = ("curves", "table")
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
    """What --columns can name: a column, or the mean of one."""

    column: Column
    mean: bool = False  # mean and deviation over seeds, not median and quartiles

    @property
    def name(self) -> str:
        return self.column.name + "_mean" * self.mean

    @property
    def title(self) -> str:
        return self.column.title + ", mean ± sd" * self.mean

    @property
    def csv_names(self) -> list[str]:
        """The columns of a CSV file that it takes."""
        if not self.column.numeric:
            return [self.name]
        ends = ("_mean", "_sd") if self.mean else ("", "_q1", "_q3")
        return [self.column.name + end for end in ends]

    def cell(self, group: Group) -> Cell | Mean:
        """Give what stands in the row of a group."""
        if not self.mean:
            return self.column.cell(group)
        values = group.numbers(self.column.name)
        known = values[~np.isnan(values)]
        if not len(known):
            return None
        several = len(known) > 1 and np.isfinite(known).all()
        return Mean(float(known.mean()), float(known.std(ddof=1)) if several else np.nan)


def export(study: Study, file: Path, what: str | None = None, chosen: Sequence[str] = ()) -> str:
    """Give the text of a file: by its ending CSV or LaTeX.

    Args:
        study: whose results are written.
        file: that is to be written.
        what: curves or table; None: curves in .csv, the table in .tex.
        chosen: names of columns, in order; all, or those that fit on paper, if none.

    Raises:
        ValueError: If a file has another ending, or a column is not known.
    """
    if file.suffix == ".tex" and what in (None, "table"):
        return latex(study, chosen)
    if file.suffix == ".csv" and what in (None, *KINDS):
        return (table_csv if what == "table" else curves_csv)(study, chosen)
    raise ValueError(
        f"export writes .csv (of curves, or with --what table) and .tex (of the "
        f"table); got {file}" + (f" and --what {what}." if what else ".")
    )


def curves_csv(study: Study, chosen: Sequence[str] = ()) -> str:
    """Write every curve, tidy: a row per run and round."""
    names = [*IDENTITY, *axes_of(study.runs), *metrics_of(study.runs)]
    chosen = _known(chosen, names) or names
    rows: list[Iterable[Any]] = [chosen]
    for run in study.runs:
        length = len(run.curves["round"])
        values = [
            [run.row[name]] * length if name in IDENTITY
            else run.curves[name].tolist() if name in run.curves
            else [""] * length
            for name in chosen
        ]  # fmt: skip
        rows += zip(*values, strict=True)
    return _csv(rows)


def table_csv(study: Study, chosen: Sequence[str] = ()) -> str:
    """Write a row per group of runs: medians, quartiles, means and deviations over seeds."""
    groups = grouped(study)
    fields = _fields(groups)
    varying = {column.name for column in columns_of(groups)}
    usual = [name for name, field in fields.items() if field.column.name in varying]
    table = [fields[name] for name in _known(chosen, fields) or usual]
    rows: list[list[Any]] = [[name for field in table for name in field.csv_names]]
    for group in groups:
        row: list[Any] = []
        for field in table:
            cell = field.cell(group)
            if cell is None:
                row += [""] * len(field.csv_names)
            elif isinstance(cell, str):
                row.append(cell)
            elif isinstance(cell, Mean):
                row += ["" if np.isnan(value) else value for value in cell]
            else:
                row += [cell.mid, cell.low, cell.high]
        rows.append(row)
    return _csv(rows)


def latex(study: Study, chosen: Sequence[str] = ()) -> str:
    """Write a booktabs table: medians with quartiles, means with deviations over seeds.

    The best of each scenario is bold, and what is unclear is left out.
    """
    groups = grouped(study)
    fields = _fields(groups)
    usual = [column.name for column in columns_of(groups, "paper")]
    if all(_clear(group.verdict()) == "–" for group in groups):
        usual.remove("verdict")
    if any(len(group.runs) > 1 for group in groups):
        means = {n for n in usual if "best" in fields[n].column.places and "_to_" not in n}
        usual = [n for name in usual for n in (name, f"{name}_mean")[: 1 + (name in means)]]
    table = [fields[name] for name in _known(chosen, fields) or usual]
    layout = "".join("r" if field.column.numeric else "l" for field in table)
    lines = [
        "% Needs \\usepackage{booktabs}. Medians over seeds, quartiles in brackets; "
        "means and standard deviations (sd).",
        f"\\begin{{tabular}}{{{layout}}}",
        "\\toprule",
        _line([escaped(field.title) for field in table]),
    ]
    for members in by_scenario(groups).values():
        best = {field.name: _best(members, field) for field in table}
        lines.append("\\midrule")
        for place, group in enumerate(members):
            cells = [
                "" if field.name == "participation" and place
                else _latex_cell(field, group, bold=group in best[field.name])
                for field in table
            ]  # fmt: skip
            lines.append(_line(cells))
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _fields(groups: list[Group]) -> dict[str, Field]:
    """Give all that can be chosen, by name."""
    fields = []
    for column in columns_of(groups, constant=True):
        measured = column.numeric and not column.setting
        fields += [Field(column), Field(column, mean=True)][: 1 + measured]
    return {field.name: field for field in fields}


def _known(chosen: Sequence[str], names: Collection[str]) -> Sequence[str]:
    """Raise unless all these columns are known."""
    for name in chosen:
        if name not in names:
            raise ValueError(unknown("column", name, names))
    return chosen


def _clear(verdict: str) -> str:
    """Give a verdict for a paper, in which nothing is unclear."""
    words = [word for word in verdict.split(", ") if not word.startswith("unclear")]
    return ", ".join(words) or "–"


def escaped(text: str) -> str:
    """Write text as LaTeX takes it, with 1.4e-15 as a product."""
    plain = "".join(SPECIAL.get(sign, sign) for sign in printable(text))
    plain = POWER.sub(r"$\1\\cdot10^{\2}$", plain).replace(r"$1\cdot10", "$10")
    plain = plain.replace(r"\cdot10^{0}", "")
    return plain.replace("–", "--").replace("∞", r"$\infty$").replace("±", r"$\pm$")


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _best(groups: list[Group], field: Field) -> list[Group]:
    """Give the best groups of one scenario; all that are exact are as good."""
    if "best" not in field.column.places:
        return []
    sign = -1 if field.column.rising else 1
    scores = []
    for group in groups:
        cell = field.cell(group)
        if isinstance(cell, Quartiles | Mean) and abs(cell.mid) < float("inf"):
            value = max(cell.mid, EXACT) if field.column.name == "error" else sign * cell.mid
            scores.append((value, group))
    return [group for value, group in scores if value == min(score for score, _ in scores)]


def _latex_cell(field: Field, group: Group, bold: bool) -> str:
    cell = field.cell(group)
    if cell is None:
        return escaped("–")
    if isinstance(cell, str):
        cell = _clear(cell) if field.name == "verdict" else cell
        return escaped((label(cell) if field.name == "algorithm" else cell) or "–")
    write = field.column.write
    mid = write(cell.mid)
    if isinstance(cell, Mean):
        return _bold(_with_deviation(mid, cell.deviation, write), bold)
    low, high = write(cell.low), write(cell.high)
    if low == high:
        return _bold(escaped(mid), bold)
    if len({value.partition("e")[2] for value in (low, mid, high)}) == 1:
        low, high = (value.partition("e")[0] for value in (low, high))  # said once is enough
    spread = f"{{\\scriptsize [{escaped(low)}, {escaped(high)}]}}"
    return f"{_bold(escaped(mid), bold)} {spread}"


def _bold(text: str, bold: bool) -> str:
    return f"{{\\bfseries\\boldmath {text}}}" if bold else text


def _with_deviation(mean: str, deviation: float, write: Callable[[float], str]) -> str:
    """Write a mean and its deviation, to the same power of ten."""
    if np.isnan(deviation):
        return escaped(mean)
    digits, power, exponent = mean.partition("e")
    if not power:
        return escaped(f"{mean} ± {write(deviation)}")
    both = f"{digits} \\pm {deviation / 10.0 ** int(exponent):.1f}"
    return f"${both}$" if exponent == "0" else f"$({both})\\cdot10^{{{exponent}}}$"


def _csv(rows: Iterable[Iterable[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        [printable(cell) if isinstance(cell, str) else cell for cell in row] for row in rows
    )
    return out.getvalue()
