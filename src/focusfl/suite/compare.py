"""What results say: performance profiles, wins and worst cells, ours against the rest.

Dolan, Moré. Benchmarking optimization software with performance profiles. 2002.
https://arxiv.org/abs/cs/0102001
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from focusfl.suite.cells import LONGEST, ROUNDS
from focusfl.suite.store import Row

TIE = 1.005  # so near to the best is the best, too

Costs = dict[str, dict[str, float]]  # by cell, then by entrant; infinite: never reached


def costs(rows: Iterable[Row], what: str = "value") -> Costs:
    """The cost of each entrant in each cell: rounds, or another number of a row."""
    table: Costs = {}
    for row in rows:
        cost = float(getattr(row, what)) if np.isfinite(row.value) else np.inf
        table.setdefault(row.cell, {})[row.entrant] = cost
    return table


def complete(table: Costs, entrants: Sequence[str]) -> Costs:
    """The cells in which all of these were run, with these alone."""
    return {
        cell: {name: costs[name] for name in entrants}
        for cell, costs in table.items()
        if all(name in costs for name in entrants)
    }


def entrants_of(rows: Iterable[Row]) -> list[str]:
    """The names of all entrants, in the order of the results."""
    return list(dict.fromkeys(row.entrant for row in rows))


def ratios(table: Costs) -> Costs:
    """Costs divided by those of the best; cells that nobody solved are left out."""
    relative: Costs = {}
    for cell, costs in table.items():
        best = min(costs.values(), default=np.inf)
        if np.isfinite(best):
            relative[cell] = {name: _ratio(cost, best) for name, cost in costs.items()}
    return relative


def _ratio(cost: float, best: float) -> float:
    return cost / best if best > 0 else (1.0 if cost == best else np.inf)


def profile(table: Costs, name: str, factors: Sequence[float]) -> list[float]:
    """The share of cells in which it takes at most so many times the best's."""
    relative = [costs[name] for costs in ratios(table).values()]
    return [sum(r <= factor for r in relative) / max(1, len(relative)) for factor in factors]


class Standing(NamedTuple):
    """How one entrant stands against all others."""

    entrant: str
    wins: int  # cells in which nobody is better
    within: int  # cells in which it takes at most twice the best
    cells: int
    missed: int  # cells that it did not solve and somebody did
    mean: float  # geometric, of what it takes by what the best takes, where solved
    worst: float  # the largest of these, infinite where missed
    where: str  # that cell


def standings(table: Costs) -> list[Standing]:
    """Everybody's standing, those who win most first."""
    by_name: dict[str, dict[str, float]] = {}
    for cell, costs in ratios(table).items():
        for name, ratio in costs.items():
            by_name.setdefault(name, {})[cell] = ratio
    standings = []
    for name, cells in by_name.items():
        where = max(cells, key=cells.__getitem__)
        finite = [ratio for ratio in cells.values() if np.isfinite(ratio)]
        standings.append(
            Standing(
                name, sum(r <= TIE for r in finite), sum(r <= 2 for r in finite),
                len(cells), len(cells) - len(finite), geometric(finite), cells[where], where,
            )
        )  # fmt: skip
    return sorted(standings, key=lambda each: (-each.wins, each.missed, each.mean))


def geometric(values: Iterable[float]) -> float:
    """The geometric mean; of nothing, not a number."""
    numbers = [*values]
    return float(np.exp(np.mean(np.log(numbers)))) if numbers else np.nan


class Duel(NamedTuple):
    """Some against others, each side by its best in every cell."""

    who: str
    mean: float  # geometric, of ours by theirs; below 1 is better
    better: int  # cells in which ours is
    cells: int  # that both sides solved
    worst: float
    where: str
    alone: int  # cells that only this side solved
    lost: int  # that only the other did


def duel(table: Costs, who: str, ours: Sequence[str], others: Sequence[str]) -> Duel:
    """Compare the best of ours with the best of theirs, cell by cell."""
    both: dict[str, float] = {}
    alone = lost = 0
    for cell, costs in table.items():
        mine, other = (
            min((costs[name] for name in side if name in costs), default=np.inf)
            for side in (ours, others)
        )
        if np.isfinite(mine) and np.isfinite(other):
            both[cell] = _ratio(mine, other)
        else:
            alone += bool(np.isfinite(mine))
            lost += bool(np.isfinite(other))
    where = max(both, key=lambda cell: both[cell], default="")
    return Duel(
        who, geometric(both.values()), sum(r < 1 for r in both.values()), len(both),
        both.get(where, np.nan), where, alone, lost,
    )  # fmt: skip


def headline(rows: Sequence[Row], what: str = "rounds") -> list[Duel]:
    """Ours together, and each alone, against the best of all baselines."""
    ours = entrants_of(row for row in rows if row.ours)
    others = entrants_of(row for row in rows if not row.ours)
    if not ours or not others:
        return []
    table = complete(costs(rows, what), [*ours, *others])
    family = duel(table, "best of the family", ours, others)
    return [family, *(duel(table, name, [name], others) for name in ours)]


def by_law(rows: Sequence[Row]) -> dict[str, dict[str, tuple[float, int]]]:
    """Geometric means of rounds by law and entrant; what never arrived counts as the
    longest run, and how many did not is said."""
    rounds: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row.measure == ROUNDS:
            rounds.setdefault(row.law, {}).setdefault(row.entrant, []).append(row.value)
    return {
        law: {
            name: (
                geometric(min(value, LONGEST) or 1.0 for value in values),
                sum(not np.isfinite(value) for value in values),
            )
            for name, values in by_entrant.items()
        }
        for law, by_entrant in rounds.items()
    }


def sensitivity(rows: Sequence[Row]) -> dict[str, float]:
    """The steps of the grid near the best: their mean over cells that were solved."""
    steps: dict[str, list[int]] = {}
    for row in rows:
        if np.isfinite(row.value):
            steps.setdefault(row.entrant, []).append(row.near)
    return {name: float(np.mean(near)) for name, near in steps.items()}
