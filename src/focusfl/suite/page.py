"""One self-contained page about the suite: it opens offline and asks for nothing."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from focusfl.report import html
from focusfl.report.figure import NoMatplotlib, render
from focusfl.report.html import unbroken
from focusfl.suite.cells import ROUNDS
from focusfl.suite.figure import profiles
from focusfl.suite.store import Row
from focusfl.suite.tables import Table, halves, sentence, tables

HERE = Path(__file__).parent
MEANING = {
    "reporting": "Cells that nothing was tuned on: what is to be told of a method.",
    "tuning": "Cells that ideas may be tuned on: not what is to be told of a method.",
}


def page(rows: Sequence[Row]) -> str:
    """Write the page: what is reported first, then what ideas may be tuned on."""
    sections = [_half(half, own) for half, own in halves(rows).items()]
    return Template((HERE / "page.html").read_text("utf-8")).substitute(
        style=(html.HERE / "style.css").read_text("utf-8"),
        sections="\n".join(sections),
    )


def _half(half: str, rows: Sequence[Row]) -> str:
    cells, names = {row.cell for row in rows}, {row.entrant for row in rows}
    lead = (
        f"{len(cells)} cells · {len(names)} methods · "
        f"{sum(row.runs for row in rows):,} runs"
    )
    parts = [
        f'<section class="study" id="{half}"><h2>{half.capitalize()}</h2>',
        f'<p class="lead">{lead}. {MEANING[half]}</p>',
        f'<p class="finding">{unbroken(sentence(rows))}</p>',
        _profiles([row for row in rows if row.measure == ROUNDS]),
        *map(_table, tables(rows)),
        "</section>",
    ]
    return "\n".join(parts)


def _profiles(rows: Sequence[Row]) -> str:
    """The figure, as a part of the page; nothing where it cannot be drawn."""
    if not rows:
        return ""
    try:
        drawn = render(profiles(rows, ("rounds", "vectors")), "svg").decode()
    except NoMatplotlib as error:
        return f'<p class="note">{escape(str(error))}</p>'
    return (
        "<h3>Performance profiles</h3>"
        f'<figure class="profiles">{drawn[drawn.index("<svg") :]}</figure>'
        '<p class="note">How often a method takes at most so many times what the best '
        "takes in the same cell: at the left, how often it is the best; where a curve "
        "ends, how much it solves at all. Ours are thick.</p>"
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.heads)
    body = "\n".join(
        "<tr>"
        + "".join(
            f'<td data-title="{escape(title)}">{escape(text)}</td>'
            for title, text in zip(table.heads, row, strict=True)
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
