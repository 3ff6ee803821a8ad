"""One self-contained HTML page about studies: it opens offline and asks for nothing."""

import json
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from focusfl.core.metrics import WORST
from focusfl.studies.merge import settings
from focusfl.studies.report.columns import COLUMNS, Cell, Column, columns_of, is_of_clients
from focusfl.studies.report.finding import condition, findings
from focusfl.studies.report.groups import Group, grouped
from focusfl.studies.report.html.contents import contents
from focusfl.studies.report.html.per_client import section
from focusfl.studies.report.names import conditions
from focusfl.studies.store import Study
from focusfl.studies.verdict import MEANING

HERE = Path(__file__).parent
SCRIPTS = (
    "draw.js", "curves.js", "steps.js", "served.js", "clients.js", "downloads.js",
    "page.js",
)  # fmt: skip
POWER = re.compile(r"\d(?:\.\d+)?e-\d+")
ABOUT = ("git", "started", "finished", "seconds", "compile_seconds")


def page(studies: list[Study]) -> str:
    """Write the page."""
    if not studies:
        raise ValueError("a report needs the results of at least one study; got none.")
    data = contents(studies)
    names = [study["name"] for study in data["studies"]]
    links = "".join(f'<a href="#study-{i}">{escape(name)}</a>' for i, name in enumerate(names))
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Template(_file("page.html")).substitute(
        title=escape(", ".join(names)),
        style=_file("style.css"),
        links=f'<nav aria-label="studies">{links}</nav>' if len(names) > 1 else "",
        studies="\n".join(map(_study, range(len(studies)), studies, names)),
        contents=text.replace("<", "\\u003c"),  # data must not end its element
        script="\n".join(map(_file, SCRIPTS)),
    )


def _file(name: str) -> str:
    return (HERE / name).read_text("utf-8")


def _study(index: int, study: Study, name: str) -> str:
    groups, manifest = grouped(study), study.manifest
    about = {key: manifest[key] for key in ABOUT if manifest.get(key) is not None}
    timed = any("simulated_seconds" in run.row for run in study.runs)
    return Template(_file("study.html")).substitute(
        index=index,
        name=escape(name),
        lead=escape(_lead(study, groups)),
        finding=_finding(groups),
        condition=escape(condition(groups)),
        table=_table(groups),
        served=section(groups),
        meanings=escape(_meanings(groups)),
        seconds="simulated, by the study's clock" if timed
        else "those of the rounds, without compiling",
        study=_pretty(manifest["study"]),
        environment=_pretty({**manifest["environment"], **about}),
    )  # fmt: skip


def _lead(study: Study, groups: list[Group]) -> str:
    """What was run, in a line."""
    problem = study.manifest["problem"]
    rounds = max(run.row["rounds"] for run in study.runs)
    seeds = len({run.row["seed"] for run in study.runs})
    parts = [
        f"{problem['kind']}, {problem['num_clients']:,} clients",
        f"{problem['size']:,} parameters",
        f"{rounds:,} rounds",
        f"{seeds} seed{'s' * (seeds != 1)}",
        *conditions(study.manifest["study"]),
    ]
    for what in ("lr", "local_steps"):
        values = {group.quartiles(what) for group in groups}
        if len(values) == 1 and (value := values.pop()):
            text = COLUMNS[what].write(value.mid)
            parts.append(f"lr {text}" if what == "lr" else f"{text} local steps")
    if any(run.row.get("schedule") for run in study.runs):
        parts.append("lr follows a schedule")
    return " · ".join(parts)


def _finding(groups: list[Group]) -> str:
    """Who is fastest and by how much: a sentence for every scenario."""
    sentences = [(scenario, unbroken(text)) for scenario, text in findings(groups)]
    if len(sentences) == 1:
        text = sentences[0][1]
        return f'<p class="finding">{text[0].upper() + text[1:]}</p>'
    return "\n".join(
        f'<p class="finding"><b>{escape(scenario)}</b>: {text}</p>' for scenario, text in sentences
    )


def unbroken(text: str) -> str:
    """Text whose numbers are not broken at their minus."""
    return POWER.sub(r'<span class="whole">\g<0></span>', escape(text))


def _meanings(groups: list[Group]) -> str:
    """What the verdicts in the table mean."""
    words = {word for group in groups for word in group.by_verdict}
    return " ".join(f"{word}: {MEANING[word]}." for word in MEANING if word in words)


def _table(groups: list[Group]) -> str:
    """The table, readable without a script; what to sort by goes along."""
    # What else is known of clients has a table of its own.
    columns = [
        column
        for column in columns_of(groups)
        if column.name != "reason"
        and (not is_of_clients(column.name) or column.name.endswith(f"/{WORST}"))
    ]
    head = "".join(
        f'<th{_kind(column)} scope="col">{_whole(column.title)}</th>' for column in columns
    )
    lines = []
    for group in groups:
        cells = "".join(
            _verdict(group) if column.name == "verdict" else _cell(column, column.cell(group))
            for column in columns
        )
        rest = "" if group.best else ' class="rest"'
        lines.append(f"<tr{rest}>{cells}</tr>")
    body = "\n".join(lines)
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"


def _verdict(group: Group) -> str:
    """What became of the runs, and why."""
    text, why = escape(group.verdict()), unbroken(group.reason())
    return (
        f'<td class="verdict {group.word}" data-title="verdict" '
        f'data-value="{text}"><b>{text}</b> <small>{why}</small></td>'
    )


def _cell(column: Column, cell: Cell) -> str:
    text, title = escape(column.text(cell)), f' data-title="{escape(column.title)}"'
    if isinstance(cell, str):
        return f"<td{title}>{text}</td>"
    if cell is None:
        return f"<td{_kind(column)}{title}>{text}</td>"
    low, high = (column.write(end) for end in (cell.low, cell.high))
    if low != high:
        text += f" <small>{unbroken(_range(low, high))}</small>"
    return f'<td{_kind(column)}{title} data-value="{cell.mid}">{text}</td>'


def _range(low: str, high: str) -> str:
    """Two numbers, with their power of ten said once if it is the same."""
    (a, _, power), same = low.partition("e"), high.partition("e")[2]
    return f"{a if power == same else low} to {high}"


def _whole(title: str) -> str:
    """A title that is not broken within its number."""
    words, _, last = escape(title).rpartition(" ")
    return f'{words} <span class="whole">{last}</span>'.lstrip()


def _kind(column: Column) -> str:
    return ' class="number"' if column.numeric else ""


def _pretty(table: Mapping[str, Any]) -> str:
    return escape("\n".join(f"{key} = {json.dumps(v)}" for key, v in settings(table)))
