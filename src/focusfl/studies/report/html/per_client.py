"""Who is served: what the last models are to each client, drawn and in a table."""

from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from focusfl.core.metrics import SPREAD, TENTH, in_words, rises
from focusfl.studies.report.columns import column
from focusfl.studies.report.groups import Group, bests

MOST = 400  # clients that are drawn
NAMED = 3  # that a table names
HERE = Path(__file__).parent
TITLES = (
    "participation", "algorithm", "metric", "worst served", "worst tenth", "spread",
)  # fmt: skip


def strips(groups: list[Group], lines: dict[str, int]) -> dict[str, Any] | None:
    """What one scenario's best runs are to clients, for the script; medians over seeds.

    Of many clients some are drawn: everybody's worst, and others from best to worst.
    """
    shown = [group for group in bests(groups) if group.runs[0].clients]
    if not shown:
        return None
    values = [_medians(group) for group in shown]
    names = list(dict.fromkeys(name for medians in values for name in medians))
    drawn = _drawn([medians[name] for medians in values for name in medians])
    return {
        "clients": drawn.tolist(),
        "metrics": [
            {"name": name, "label": in_words(name), "rising": rises(name)}
            for name in names
        ],
        "groups": [
            {"line": lines[group.short], "name": group.name, "values": {
                name: [float(f"{v:.4e}") for v in numbers[drawn]]
                for name, numbers in medians.items()
            }}
            for group, medians in zip(shown, values, strict=True)
        ],
    }  # fmt: skip


def section(groups: list[Group]) -> str:
    """The part of the page, with a table that needs no script; none if not asked."""
    shown = [group for group in bests(groups) if group.runs[0].clients]
    if not shown:
        return ""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in TITLES)
    body = "\n".join(line for group in shown for line in _rows(group))
    table = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    return Template((HERE / "served.html").read_text("utf-8")).substitute(table=table)


def _rows(group: Group) -> list[str]:
    rows = []
    for name, values in _medians(group).items():
        order = np.argsort(values if rises(name) else -values, kind="stable")[:NAMED]
        form = column(f"{name}/{TENTH}").write
        worst = ", ".join(f"client {i}: {form(values[i])}" for i in order)
        cells = (
            group.scenario, group.short, in_words(name), worst,
            *(form(group.median(f"{name}/{what}")) for what in (TENTH, SPREAD)),
        )  # fmt: skip
        cell = "".join(
            f'<td data-title="{title}">{escape(text)}</td>'
            for title, text in zip(TITLES, cells, strict=True)
        )
        rows.append(f"<tr>{cell}</tr>")
    return rows


def _medians(group: Group) -> dict[str, np.ndarray]:
    """What the last models are to each client, over seeds."""
    names = group.runs[0].clients
    return {name: np.median([run.clients[name] for run in group.runs], 0) for name in names}


def _drawn(curves: list[np.ndarray]) -> np.ndarray:
    """Which clients are drawn."""
    many = len(curves[0])
    if many <= MOST:
        return np.arange(many)
    ranked = np.argsort(curves[0], kind="stable")
    even = ranked[np.linspace(0, many - 1, MOST - 2 * len(curves)).astype(int)]
    ends = [end(values) for values in curves for end in (np.argmin, np.argmax)]
    return np.unique([*even, *ends])
