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
    shown = [one for one in bests(groups) if one.runs[0].clients]
    if not shown:
        return None
    values = [_medians(one) for one in shown]
    names = list(dict.fromkeys(name for own in values for name in own))
    kept = _kept([own[name] for own in values for name in own])
    return {
        "clients": kept.tolist(),
        "metrics": [
            {"name": name, "label": in_words(name), "rising": rises(name)}
            for name in names
        ],
        "groups": [
            {"line": lines[one.short], "name": one.name, "values": {
                name: [float(f"{v:.4e}") for v in found[kept]]
                for name, found in own.items()
            }}
            for one, own in zip(shown, values, strict=True)
        ],
    }  # fmt: skip


def section(groups: list[Group]) -> str:
    """The part of the page, with a table that needs no script; none if not asked."""
    shown = [one for one in bests(groups) if one.runs[0].clients]
    if not shown:
        return ""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in TITLES)
    body = "\n".join(line for one in shown for line in _rows(one))
    table = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    return Template((HERE / "served.html").read_text("utf-8")).substitute(table=table)


def _rows(one: Group) -> list[str]:
    found = []
    for name, values in _medians(one).items():
        order = np.argsort(values if rises(name) else -values, kind="stable")[:NAMED]
        form = column(f"{name}/{TENTH}").write
        worst = ", ".join(f"client {i}: {form(values[i])}" for i in order)
        cells = (
            one.scenario, one.short, in_words(name), worst,
            *(form(one.median(f"{name}/{what}")) for what in (TENTH, SPREAD)),
        )  # fmt: skip
        cell = "".join(
            f'<td data-title="{title}">{escape(text)}</td>'
            for title, text in zip(TITLES, cells, strict=True)
        )
        found.append(f"<tr>{cell}</tr>")
    return found


def _medians(one: Group) -> dict[str, np.ndarray]:
    """What the last models are to each client, over seeds."""
    return {
        name: np.median([run.clients[name] for run in one.runs], 0) for name in one.runs[0].clients
    }


def _kept(curves: list[np.ndarray]) -> np.ndarray:
    """Which clients are drawn."""
    many = len(curves[0])
    if many <= MOST:
        return np.arange(many)
    ranked = np.argsort(curves[0], kind="stable")
    even = ranked[np.linspace(0, many - 1, MOST - 2 * len(curves)).astype(int)]
    ends = [end(values) for values in curves for end in (np.argmin, np.argmax)]
    return np.unique([*even, *ends])
