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
