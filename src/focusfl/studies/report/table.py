"""Algorithms against participation models, in one table."""

from typing import Any

from focusfl.core.validation import printable
from focusfl.studies.report.names import label
from focusfl.studies.results import Run

MARKS = {"falling": " ↓", "oscillating": " ~", "unclear": " ?", "absent": " –"}
KEY = (
    "E(k): exact, at 1e-8 in round k. A number: the error in the end; ↓ still falling, "
    "~ up and down, ? cannot be told, – nobody took part. ∞: diverged."
)


def matrix(runs: list[Run]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows of algorithms against participation models, as KEY says."""
    scenarios = list(dict.fromkeys(run.row["participation"] for run in runs))
    names = list(dict.fromkeys(run.row["algorithm"] for run in runs))
    found = {(run.row["algorithm"], run.row["participation"]): _entry(run.row) for run in runs}
    rows = [(label(name), *(found[name, scenario] for scenario in scenarios)) for name in names]
    return ("algorithm", *scenarios), rows


def _entry(row: dict[str, Any]) -> str:
    if row["verdict"] == "diverged":
        return "∞"
    if row["verdict"] == "exact":
        return f"E({row['rounds_to_target']})"
    return f"{row['error']:.1e}{MARKS.get(row['verdict'], '')}"


def markdown(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """The same as a Markdown table."""
    lines = [
        " | ".join(printable(cell).replace("|", r"\|") for cell in line)
        for line in [headers, ("---",) * len(headers), *rows]
    ]
    return "\n".join(f"| {line} |" for line in lines) + "\n"
