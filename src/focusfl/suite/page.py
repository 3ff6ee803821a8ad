"""One self-contained page about the suite: it opens offline and asks for nothing."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

import numpy as np

from focusfl.studies.report import html, plots
from focusfl.studies.report.columns import columns_of
from focusfl.studies.report.figure import NoMatplotlib, render
from focusfl.studies.report.groups import bests, grouped, study_names
from focusfl.studies.report.html import unbroken
from focusfl.studies.store import Study
from focusfl.suite.cells import ROUNDS
from focusfl.suite.figure import profiles
from focusfl.suite.store import Row
from focusfl.suite.tables import Table, every_cell, halves, sentence, tables

HERE = Path(__file__).parent
MEANING = {
    "reporting": "Cells that nothing may be tuned on: what is to be told of a method.",
    "tuning": "Cells that ideas may be tuned on: not what is to be told of a method.",
}
PANELS = ("rounds", "bytes", "seconds")
AXES = ("rounds", "bytes-up", "seconds")  # of a study
TOLD = ("participation", "algorithm", "lr", "accuracy", "error")  # of a study


def page(rows: Sequence[Row], studies: Sequence[Study] = (), more: Sequence[Table] = ()) -> str:
    """Write the page: what is reported first, then what ideas may be tuned on, then
    studies, and tables about all of it."""
    parts = [(half, _half(half, own)) for half, own in halves(rows).items()]
    for name, study in zip(study_names(list(studies)), studies, strict=True):
        parts.append((name, _study(name, study)))
    if told := "".join(_table(table, set()) for table in more if table.rows):
        parts.append(("about", f"<h2>About</h2>{told}"))
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
    parts = [
        f"<h2>{half.capitalize()}</h2>",
        f'<p class="lead">{lead}. {MEANING[half]}</p>',
        f'<p class="finding">{unbroken(sentence(rows))}</p>',
        _profiles([row for row in rows if row.measure == ROUNDS]),
        *(_table(table, ours) for table in tables(rows)),
        f"<details><summary>Every cell</summary>{_table(every_cell(rows), ours)}</details>",
    ]
    return "\n".join(parts)


def _study(name: str, study: Study) -> str:
    """What a study has found, against rounds and whatever else it counts."""
    groups = bests(grouped(study))
    own = [c for c in columns_of(groups) if c.name in TOLD or "/" in c.name]
    lines = [tuple(column.text(column.cell(group)) for column in own) for group in groups]
    note = "Medians over seeds in the end, each at the best step of its grid."
    table = Table(name, tuple(column.title for column in own), lines, note)
    problem = study.manifest["problem"]
    lead = f"{problem['kind']}, {problem['num_clients']:,} clients"
    counted = set.intersection(*(set(run.curves) for run in study.runs))
    axes = [axis for axis in AXES if plots.AXES[axis] in counted]
    metric = "accuracy" if "accuracy" in counted else None
    drawn = "".join(_drawn(study, axis, metric) for axis in axes)
    return f'<h2>{escape(name)}</h2><p class="lead">{escape(lead)}</p>{drawn}{_table(table, set())}'


def _drawn(study: Study, axis: str, metric: str | None) -> str:
    try:
        return _figure(render(plots.plot([study], axis, metric), "svg"))
    except NoMatplotlib as error:
        return f'<p class="note">{escape(str(error))}</p>'


def _figure(drawn: bytes) -> str:
    text = drawn.decode()
    return f'<figure class="profiles">{text[text.index("<svg") :]}</figure>'


def _profiles(rows: Sequence[Row]) -> str:
    """The figure, as a part of the page; nothing where it cannot be drawn."""
    if not any(np.isfinite(row.value) for row in rows):
        return ""
    try:
        drawn = _figure(render(profiles(rows, PANELS), "svg"))
    except NoMatplotlib as error:
        return f'<p class="note">{escape(str(error))}</p>'
    return (
        "<h3>Performance profiles</h3>"
        f"{drawn}"
        '<p class="note">How often a method takes at most so many times what the best '
        "takes in the same cell: at the left, how often it is the best; where a curve "
        "ends, how much it solves at all. Ours are thick.</p>"
    )


def _table(table: Table, ours: set[str]) -> str:
    """A table; numbers to the right, and our own methods marked."""
    columns = zip(table.heads, *table.rows, strict=True)
    kinds = [' class="number"' * all(map(_is_number, own[1:])) for own in columns]
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
