"""The one table: who got how close, how fast, and what that means."""

from focusfl.experiment.study import Cell
from focusfl.experiment.summary import TARGET

HEADERS = (
    "participation",
    "algorithm",
    "relative error",
    f"rounds to {TARGET:.0e}".replace("e-0", "e-"),
    "rate per round",
    "verdict",
)


def lines(cells: list[Cell]) -> list[tuple[str, ...]]:
    """The table's rows as text, in the order of HEADERS."""
    return [
        (
            cell.participation,
            cell.algorithm,
            f"{cell.summary.error:.1e}",
            _or_dash(cell.summary.rounds_to_target, "{:,}"),
            _or_dash(cell.summary.rate, "{:.4f}"),
            verdict(cell),
        )
        for cell in cells
    ]


def verdict(cell: Cell) -> str:
    """The verdict, with the round of divergence where there is one."""
    word, at = cell.summary.verdict, cell.summary.diverged_at
    return word if at is None else f"{word} in round {at:,}"


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def matrix(cells: list[Cell]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows of algorithms against participation models.

    E(k): exact, at 1e-8 in round k. A number: the error it ends with. oo: diverged.
    """
    scenes = list(dict.fromkeys(cell.participation for cell in cells))
    names = list(dict.fromkeys(cell.algorithm for cell in cells))
    found = {(cell.algorithm, cell.participation): _entry(cell) for cell in cells}
    rows = [(name, *(found[name, scene] for scene in scenes)) for name in names]
    return ("algorithm", *scenes), rows


def _entry(cell: Cell) -> str:
    if cell.summary.verdict == "diverged":
        return "∞"
    if cell.summary.verdict == "exact":
        return f"E({cell.summary.rounds_to_target})"
    mark = " ↓" if cell.summary.verdict == "unfinished" else ""
    return f"{cell.summary.error:.1e}{mark}"


def markdown(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """The same as a Markdown table."""
    lines = [headers, ("---",) * len(headers), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
