"""Algorithms against participation models, in one table."""

from focusfl.experiment.study import Cell
from focusfl.report.names import label

MARKS = {"falling": " ↓", "oscillating": " ~", "unclear": " ?", "absent": " –"}
KEY = (
    "E(k): exact, at 1e-8 in round k. A number: the error in the end; ↓ still falling, "
    "~ up and down, ? cannot be told, – nobody took part. ∞: diverged."
)


def matrix(cells: list[Cell]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows of algorithms against participation models, as KEY says."""
    scenes = list(dict.fromkeys(cell.participation for cell in cells))
    names = list(dict.fromkeys(cell.algorithm for cell in cells))
    found = {(cell.algorithm, cell.participation): _entry(cell) for cell in cells}
    rows = [(label(name), *(found[name, scene] for scene in scenes)) for name in names]
    return ("algorithm", *scenes), rows


def _entry(cell: Cell) -> str:
    if cell.summary.verdict == "diverged":
        return "∞"
    if cell.summary.verdict == "exact":
        return f"E({cell.summary.rounds_to_target})"
    return f"{cell.summary.error:.1e}{MARKS.get(cell.summary.verdict, '')}"


def markdown(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """The same as a Markdown table."""
    lines = [headers, ("---",) * len(headers), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
