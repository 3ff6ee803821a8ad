"""A study for other programs: curves and table as CSV, the table as LaTeX."""

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from focusfl.checks import printable
from focusfl.experiment.results import IDENTITY, Results, axes_of
from focusfl.experiment.verdict import EXACT
from focusfl.report.bands import metrics_of
from focusfl.report.groups import grouped
from focusfl.report.numbers import Spread, number
from focusfl.report.rows import Column, columns

KINDS = ("curves", "table")
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


def export(found: Results, file: Path, what: str | None = None) -> str:
    """The text of a file: by its ending CSV or LaTeX."""
    if file.suffix == ".tex" and what in (None, "table"):
        return latex(found)
    if file.suffix == ".csv" and what in (None, *KINDS):
        return table_csv(found) if what == "table" else curves_csv(found)
    raise ValueError(
        f"export writes .csv (of curves, or with --what table) and .tex (of the "
        f"table); got {file}" + (f" and --what {what}." if what else ".")
    )


def curves_csv(found: Results) -> str:
    """Every curve, tidy: a row per run and round."""
    names = [*axes_of(found.runs), *metrics_of(found.runs)]
    rows: list[Iterable[Any]] = [(*IDENTITY, *names)]
    for run in found.runs:
        own = [run.row[name] for name in IDENTITY]
        length = len(run.curves["round"])
        values = [
            run.curves[name].tolist() if name in run.curves else [""] * length
            for name in names
        ]
        rows += [(*own, *line) for line in zip(*values, strict=True)]
    return _csv(rows)


def table_csv(found: Results) -> str:
    """A row per group of runs: medians and quartiles over seeds."""
    table = columns(grouped(found))
    rows: list[list[Any]] = [[]]
    for column in table:
        ends = ("", "_q1", "_q3") if column.numeric else ("",)
        rows[0] += [column.name + end for end in ends]
    for cells in zip(*(column.cells for column in table), strict=True):
        line: list[Any] = []
        for column, cell in zip(table, cells, strict=True):
            if isinstance(cell, Spread):
                line += [cell.mid, cell.low, cell.high]
            else:
                line += ["", "", ""] if column.numeric else [cell]
        rows.append(line)
    return _csv(rows)


def latex(found: Results) -> str:
    """A booktabs table: medians with quartiles, the best of each scenario in bold."""
    scenario, *table = (c for c in columns(grouped(found)) if c.name not in LEFT_OUT)
    layout = "l" + "".join("r" if column.numeric else "l" for column in table)
    best = {column.name: _best(scenario, column) for column in table}
    lines = [
        "% Needs \\usepackage{booktabs}. Medians over seeds, quartiles in brackets.",
        f"\\begin{{tabular}}{{{layout}}}",
        "\\toprule",
        _line([escaped(column.title) for column in (scenario, *table)]),
    ]
    before = None
    for index, name in enumerate(scenario.cells):
        if name != before:
            lines.append("\\midrule")
        cells = [
            _cell(column, column.cells[index], index in best[column.name])
            for column in table
        ]
        lines.append(_line([escaped(str(name)) if name != before else "", *cells]))
        before = name
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def escaped(text: str) -> str:
    """Text as LaTeX takes it, with 1.4e-15 as a product."""
    plain = "".join(SPECIAL.get(sign, sign) for sign in printable(text))
    plain = POWER.sub(r"$\1\\cdot10^{\2}$", plain).replace(r"$1\cdot10", "$10")
    return plain.replace("–", "--").replace("∞", r"$\infty$")


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _best(scenario: Column, column: Column) -> set[int]:
    """The rows that are best in their scenario; all that are exact are as good."""
    if column.name not in BEST:
        return set()
    sign = -1 if number(column.name).rising else 1
    found: dict[Any, dict[int, float]] = {}
    for index, (name, cell) in enumerate(
        zip(scenario.cells, column.cells, strict=True)
    ):
        if isinstance(cell, Spread) and abs(cell.mid) < float("inf"):
            value = max(cell.mid, EXACT) if column.name == "error" else sign * cell.mid
            found.setdefault(name, {})[index] = value
    return {
        index
        for own in found.values()
        for index, value in own.items()
        if value == min(own.values())
    }


def _cell(column: Column, cell: str | Spread | None, best: bool) -> str:
    if not isinstance(cell, Spread):
        return escaped(column.text(cell))
    low, mid, high = (number(column.name).text(value) for value in cell)
    text = f"{{\\bfseries\\boldmath {escaped(mid)}}}" if best else escaped(mid)
    if low == high:
        return text
    powers = {value.partition("e")[2] for value in (low, mid, high)}
    if len(powers) == 1:  # said once is enough
        low, high = (value.partition("e")[0] for value in (low, high))
    return f"{text} {{\\scriptsize [{escaped(low)}, {escaped(high)}]}}"


def _csv(rows: Iterable[Iterable[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        [printable(cell) if isinstance(cell, str) else cell for cell in row]
        for row in rows
    )
    return out.getvalue()
