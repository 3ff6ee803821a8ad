"""FLamby's tables beside ours: means over seeds, differences, and what differs."""

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from flamby.cells import Cell
from flamby.rare import ONLINE, Line

from focusfl.studies.report import table

KEY = (
    "A number is our mean over seeds; = says that every seed is the published number "
    "to the digit, else the difference of the means follows."
)

APART = "In brackets: how far the published seeds are apart."


class Table(NamedTuple):
    title: str
    headers: tuple[str, ...]
    rows: list[tuple[str, ...]]


def tables(cells: Sequence[Cell], spread: bool = False) -> list[Table]:
    """A table for every federation: methods by test sets; with how far the published
    seeds are apart, or without."""
    found = []
    for name in dict.fromkeys(cell.federation for cell in cells):
        mine = [cell for cell in cells if cell.federation == name]
        tests = list(dict.fromkeys(cell.test for cell in mine))
        rows = [
            (method, *(_entry(mine, method, test, spread) for test in tests))
            for method in dict.fromkeys(cell.method for cell in mine)
        ]
        title = f"{name}: {counted(mine)}"
        shown = (test.replace("client_", "").replace("_", " ").lower() for test in tests)
        found.append(Table(title, ("method", *shown), rows))
    return found


def counted(cells: Sequence[Cell]) -> str:
    """How many cells are reproduced, in a line."""
    equal, within = (sum(getattr(c, what) for c in cells) for what in ("equal", "within"))
    return (
        f"{within} of {len(cells)} cells ({within / len(cells):.1%}) within the "
        f"published spread over seeds, {equal} equal to the digit"
    )


def outside(cells: Sequence[Cell]) -> Table:
    """Every cell that is not within the published spread."""
    rows: list[tuple[str, ...]] = []
    for c in cells:
        if not c.within:
            numbers = (
                f"{c.published:.4f}",
                f"{c.ours:.4f}",
                f"{c.ours - c.published:+.4f}",
            )
            where = c.federation, str(c.seed), c.method, c.test
            rows.append((*where, *numbers, f"{c.low:.4f}–{c.high:.4f}"))
    headers = "table seed method test published ours difference spread".split()
    return Table("outside the published spread", tuple(headers), rows)


def tidy(cells: Sequence[Cell]) -> str:
    """Every cell as a line of CSV, with the difference."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    head, ends = Cell._fields[:-2], Cell._fields[-2:]
    lines.writerow([*head, "difference", *ends, "equal", "within"])
    for c in cells:
        numbers = (round(v, 6) for v in (c.published, c.ours, c.ours - c.published))
        lines.writerow([*c[:4], *numbers, *(round(v, 6) for v in c[-2:]), c.equal, c.within])
    return out.getvalue()


def markdown(cells: Sequence[Cell]) -> str:
    """All tables as Markdown."""
    shown = [*tables(cells, spread=True), outside(cells)]
    texts = [f"{t.title}\n\n{table.markdown(t.headers, t.rows)}" for t in shown]
    return "\n".join([counted(cells) + ".\n", *texts, KEY, ""])


def rare(lines: Sequence[Line]) -> Table:
    """What methods come to with a hospital that is rarely there."""
    rows: list[tuple[str, ...]] = []
    for one in lines:
        numbers = f"{one.loss:.4f}", f"{one.rare:.3f}", f"{one.pooled:.3f}"
        step = f"{one.lr:.3g}{' (edge)' * one.edge}"
        rows.append((one.federation, one.method, step, *numbers))
    headers = (
        "table",
        "method",
        "step",
        "training loss",
        "rare hospital",
        "pooled test",
    )
    title = f"one hospital online {ONLINE:.0%} of the time, each method at its best step"
    return Table(title, headers, rows)


def _entry(cells: Sequence[Cell], method: str, test: str, spread: bool) -> str:
    mine = [c for c in cells if (c.method, c.test) == (method, test)]
    ours, theirs = (np.mean([getattr(c, what) for c in mine]) for what in ("ours", "published"))
    if spread:
        apart = f" ({mine[0].high - mine[0].low:.3f})"
        difference = f" {ours - theirs:+.4f}"
    else:  # as narrow as a terminal
        apart, difference = "", f"{ours - theirs:+.3f}"
    equal = all(c.equal for c in mine)
    return f"{ours:.3f}{' =' if equal else difference}{apart}"
