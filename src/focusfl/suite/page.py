"""One self-contained page about the suite: it opens offline and asks for nothing."""

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from focusfl.studies.report import html, plots
from focusfl.studies.report.columns import columns_of
from focusfl.studies.report.figure import NoMatplotlib, blank, render
from focusfl.studies.report.groups import bests, grouped, study_names
from focusfl.studies.report.html import unbroken
from focusfl.studies.report.names import COLOURS, STYLES
from focusfl.studies.store import Study
from focusfl.suite import compare
from focusfl.suite.cells import ROUNDS
from focusfl.suite.store import Row
from focusfl.suite.tables import Table, every_cell, halves, sentence, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
MEANING = {
    "reporting": "Cells that nothing may be tuned on: what is to be told of a method.",
    "tuning": "Cells that ideas may be tuned on: not what is to be told of a method.",
}
PANELS = ("rounds", "bytes", "seconds")
WIDEST = 8.0  # times the best, at the right end of a panel
AXES = ("rounds", "bytes-up", "seconds")  # of a study
COLUMNS = ("participation", "algorithm", "lr", "accuracy", "error")  # of a study


def page(rows: Sequence[Row], studies: Sequence[Study] = (), more: Sequence[Table] = ()) -> str:
    """Write the page: what is reported first, then what ideas may be tuned on, then
    studies, and tables about all of it."""
    parts = [(half, _half(half, cells)) for half, cells in halves(rows).items()]
    for name, study in zip(study_names(list(studies)), studies, strict=True):
        parts.append((name, _study(name, study)))
    if about := "".join(_table(table, set()) for table in more if table.rows):
        parts.append(("about", f"<h2>About</h2>{about}"))
    links = "".join(f'<a href="#part-{k}">{escape(name)}</a>' for k, (name, _) in enumerate(parts))
    sections = [
        f'<section class="study" id="part-{k}">{text}</section>'
        for k, (_, text) in enumerate(parts)
    ]
    return Template((HERE / "page.html").read_text("utf-8")).substitute(
        style=(html.HERE / "style.css").read_text("utf-8"),
        links=f'<nav aria-label="parts">{links}</nav>' if len(parts) > 1 else "",
        sections="\n".join(sections),
    )


def _half(half: str, rows: Sequence[Row]) -> str:
    cells, names = {row.cell for row in rows}, {row.entrant for row in rows}
    ours = {row.entrant for row in rows if row.ours}
    lead = f"{len(cells)} cells · {len(names)} methods · {sum(row.runs for row in rows):,} runs"
    exact = [row for row in rows if row.measure == ROUNDS]
    parts = [
        f"<h2>{half.capitalize()}</h2>",
        f'<p class="lead">{lead}. {MEANING[half]}</p>',
        f'<p class="finding">{unbroken(sentence(rows))}</p>',
    ]
    if any(np.isfinite(row.value) for row in exact):
        parts += [
            "<h3>Performance profiles</h3>",
            _drawn(partial(_profiles, exact)),
            '<p class="note">How often a method takes at most so many times what the best '
            "takes in the same cell: at the left, how often it is the best; where a curve "
            "ends, how much it solves at all. Ours are thick.</p>",
        ]
    parts += [_table(table, ours) for table in tables(rows)]
    parts.append(
        f"<details><summary>Every cell</summary>{_table(every_cell(rows), ours)}</details>"
    )
    return "\n".join(parts)


def _study(name: str, study: Study) -> str:
    """What a study has found, against rounds and whatever else it counts."""
    groups = bests(grouped(study))
    columns = [c for c in columns_of(groups) if c.name in COLUMNS or "/" in c.name]
    lines = [tuple(column.text(column.cell(group)) for column in columns) for group in groups]
    note = "Medians over seeds in the end, each at the best step of its grid."
    table = Table(name, tuple(column.title for column in columns), lines, note)
    problem = study.manifest["problem"]
    lead = escape(f"{problem['kind']}, {problem['num_clients']:,} clients")
    curves = set.intersection(*(set(run.curves) for run in study.runs))
    metric = "accuracy" if "accuracy" in curves else None
    figures = "".join(
        _drawn(partial(plots.plot, [study], axis, metric))
        for axis in AXES
        if plots.AXES[axis] in curves
    )
    return f'<h2>{escape(name)}</h2><p class="lead">{lead}</p>{figures}{_table(table, set())}'


def _drawn(draw: "Callable[[], Figure]") -> str:
    """A figure as a part of the page; where it cannot be drawn, a note that says why."""
    try:
        svg = render(draw(), "svg").decode()
    except NoMatplotlib as error:
        return f'<p class="note">{escape(str(error))}</p>'
    return f'<figure class="profiles">{svg[svg.index("<svg") :]}</figure>'


def _profiles(rows: Sequence[Row]) -> "Figure":
    """Draw Dolan–Moré profiles, a panel for each cost; ours thick, others thin. Who
    solves nothing is left out."""
    names = compare.entrants_of(rows)
    solvers = compare.entrants_of(row for row in rows if np.isfinite(row.value))
    ours = {row.entrant for row in rows if row.ours}
    factors = np.geomspace(1, WIDEST, 200)
    figure = blank(figsize=(1.6 + 4.1 * len(PANELS), 4.4), layout="constrained")
    panels = figure.subplots(1, len(PANELS), sharey=True)
    for panel, cost in zip(panels, PANELS, strict=True):
        table = compare.complete(compare.costs(rows, cost), names)
        for place, name in enumerate(solvers):
            panel.step(
                factors, compare.profile(table, name, factors.tolist()), where="post",
                label=name, color=COLOURS[place % len(COLOURS)],
                linestyle=STYLES[place // len(COLOURS) % len(STYLES)],
                linewidth=2.4 if name in ours else 1.2,
            )  # fmt: skip
        panel.set_xscale("log", base=2)
        panel.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        panel.set(xlim=(1, WIDEST), ylim=(0, 1.01), xlabel=f"times the fewest {cost}")
        panel.grid(alpha=0.25, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("share of cells")
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside right center", frameon=False, fontsize="small")
    return figure


def _table(table: Table, ours: set[str]) -> str:
    """A table; numbers to the right, and our own methods marked."""
    kinds = [
        ' class="number"' * all(map(_is_number, cells))
        for _, *cells in zip(table.heads, *table.rows, strict=True)
    ]
    head = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>'
        for name, kind in zip(table.heads, kinds, strict=True)
    )
    body = "\n".join(
        ('<tr class="ours">' if row[0] in ours else "<tr>")
        + "".join(
            f'<td{kind} data-title="{escape(title)}">{escape(text)}</td>'
            for title, kind, text in zip(table.heads, kinds, row, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    return (
        f"<h3>{escape(table.title)}</h3>\n"
        f'<div class="wide" tabindex="0" role="region" '
        f'aria-label="{escape(table.title)}"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n"
        f'<p class="note">{escape(table.note)}</p>'
    )


def _is_number(text: str) -> bool:
    return text[:1] in "0123456789–∞≥" or text == "never"
