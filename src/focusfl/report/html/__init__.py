"""One self-contained HTML page about studies: it opens offline and asks for nothing."""

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from focusfl.experiment.results import Results
from focusfl.report.groups import NUMBERS, Group, Spread, by_scene, grouped
from focusfl.report.html.contents import contents
from focusfl.report.rows import Column, columns, settings

HERE = Path(__file__).parent
SCRIPTS = ("draw.js", "curves.js", "clients.js", "downloads.js", "page.js")
ABOUT = ("git", "started", "finished", "seconds", "compile_seconds")


def page(studies: list[Results]) -> str:
    """Write the page."""
    if not studies:
        raise ValueError("a report needs the results of at least one study; got none.")
    found = contents(studies)
    names = [one["name"] for one in found["studies"]]
    links = "".join(
        f'<a href="#study-{i}">{escape(name)}</a>' for i, name in enumerate(names)
    )
    data = json.dumps(found, allow_nan=False, separators=(",", ":"))
    return Template(_file("page.html")).substitute(
        title=escape(", ".join(names)),
        style=_file("style.css"),
        links=f'<nav aria-label="studies">{links}</nav>' if len(names) > 1 else "",
        studies="\n".join(map(_study, range(len(studies)), studies, names)),
        contents=data.replace("<", "\\u003c"),  # data must not end its element
        script="\n".join(map(_file, SCRIPTS)),
    )


def _file(name: str) -> str:
    return (HERE / name).read_text("utf-8")


def _study(index: int, found: Results, name: str) -> str:
    groups, manifest = grouped(found), found.manifest
    about = {key: manifest[key] for key in ABOUT if manifest.get(key) is not None}
    return Template(_file("study.html")).substitute(
        index=index,
        name=escape(name),
        lead=escape(_lead(found, groups)),
        finding=escape(_finding(groups)),
        table=_table(columns(groups)),
        study=_pretty(manifest["study"]),
        environment=_pretty({**manifest["environment"], **about}),
    )


def _lead(found: Results, groups: list[Group]) -> str:
    """What was run, in a line."""
    problem = found.manifest["problem"]
    rounds = max(run.row["rounds"] for run in found.runs)
    seeds = len({run.row["seed"] for run in found.runs})
    parts = [
        f"{problem['kind']}, {problem['num_clients']:,} clients",
        f"{problem['size']:,} parameters",
        f"{rounds:,} rounds",
        f"{seeds} seed{'s' * (seeds != 1)}",
    ]
    for what in ("lr", "local_steps"):
        values = {one.spread(what) for one in groups}
        if len(values) == 1 and (value := values.pop()):
            text = NUMBERS[what].text(value.mid)
            parts.append(f"lr {text}" if what == "lr" else f"{text} local steps")
    return " · ".join(parts)


def _finding(groups: list[Group]) -> str:
    """Who gets to the optimum in whatever scene, in a sentence."""
    exact: dict[str, dict[str, bool]] = {}  # by algorithm, for each of its settings
    for one in groups:
        own = exact.setdefault(one.algorithm, {})
        own[one.label] = own.get(one.label, True) and one.verdict() == "exact"
    found = [
        name if all(own.values()) else f"{name} at {sum(own.values())} of {len(own)}"
        for name, own in exact.items()
        if any(own.values())
    ]
    where = "every scene" if len(by_scene(groups)) > 1 else groups[0].scene
    return f"Exact in {where}: {', '.join(found) or 'none'}."


def _table(found: list[Column]) -> str:
    """The table, readable without a script; what to sort by goes along."""
    head = "".join(
        f'<th{_kind(column)} scope="col">{_whole(column.title)}</th>'
        for column in found
    )
    rows = zip(*(column.cells for column in found), strict=True)
    body = "\n".join(
        f"<tr>{''.join(_cell(*pair) for pair in zip(found, row, strict=True))}</tr>"
        for row in rows
    )
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"


def _cell(column: Column, cell: str | Spread | None) -> str:
    text = escape(column.text(cell))
    if isinstance(cell, str):
        word = f' class="{text.split()[0]}"' if column.name == "verdict" else ""
        return f"<td{word}>{text}</td>"
    if cell is None:
        return f"<td{_kind(column)}>{text}</td>"
    low, high = (NUMBERS[column.name].text(end) for end in (cell.low, cell.high))
    if low != high:
        text += f" <small>{low} to {high}</small>"
    return f'<td{_kind(column)} data-value="{cell.mid}">{text}</td>'


def _whole(title: str) -> str:
    """A title that is not broken within its number."""
    words, _, last = escape(title).rpartition(" ")
    return f'{words} <span class="whole">{last}</span>'.lstrip()


def _kind(column: Column) -> str:
    return ' class="number"' if column.numeric else ""


def _pretty(table: Mapping[str, Any]) -> str:
    return escape("\n".join(f"{key} = {json.dumps(v)}" for key, v in settings(table)))
