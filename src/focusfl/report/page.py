"""One self-contained HTML page: the figure, the table, the config, the environment."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from focusfl.experiment.study import Cell
from focusfl.report.table import HEADERS, lines

PAGE = Path(__file__).with_name("page.html")
NUMBERS = {2, 3, 4}  # columns of the table that hold numbers


def page(
    title: str,
    lead: str,
    cells: list[Cell],
    pictures: list[str],
    study: dict,
    environment: dict,
) -> str:
    """Fill the page."""

    def tag(name: str, column: int, text: str) -> str:
        kinds = ["number"] if column in NUMBERS else []
        if name == "td" and column == len(HEADERS) - 1:
            kinds.append(text.split()[0])
        mark = f' class="{" ".join(kinds)}"' if kinds else ""
        return f"<{name}{mark}>{escape(text)}</{name}>"

    def line(name: str, texts: tuple[str, ...]) -> str:
        return "".join(tag(name, i, text) for i, text in enumerate(texts))

    return Template(PAGE.read_text("utf-8")).substitute(
        title=escape(title),
        lead=escape(lead),
        figures="\n".join(f'<div class="plot">{_bare(p)}</div>' for p in pictures),
        headers=line("th", HEADERS),
        rows="\n".join(f"<tr>{line('td', texts)}</tr>" for texts in lines(cells)),
        study=_pretty(study),
        environment=_pretty(environment),
    )


def _bare(svg: str) -> str:
    return svg[svg.index("<svg") :]


def _pretty(table: Mapping[str, Any]) -> str:
    """One line per setting, in the words that --set takes."""
    return escape("\n".join(f"{key} = {json.dumps(v)}" for key, v in _flat(table)))


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
