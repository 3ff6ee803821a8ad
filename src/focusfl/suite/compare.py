"""What results say: performance profiles, wins and worst cells, ours against the rest.

Dolan, Moré. Benchmarking optimization software with performance profiles. 2002.
https://arxiv.org/abs/cs/0102001
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from focusfl.suite.cells import LONGEST, ROUNDS
from focusfl.suite.store import Row

TIE = 1.005  # so near to the best is the best, too

Costs = dict[str, dict[str, float]]  # by cell, then by entrant; infinite: never reached


def costs(rows: Iterable[Row], what: str = "value") -> Costs:
    """What each took in each cell, in rounds or the like, in cells that anybody has."""
    found: Costs = {}
    for row in rows:
        reached = np.isfinite(row.value)
        found.setdefault(row.cell, {})[row.entrant] = (
            float(getattr(row, what)) if reached else np.inf
        )
    return found


def complete(table: Costs, entrants: Sequence[str]) -> Costs:
    """The cells in which all of these were run, with these alone."""
    return {
        cell: {name: own[name] for name in entrants}
        for cell, own in table.items()
        if all(name in own for name in entrants)
    }


def entrants_of(rows: Iterable[Row]) -> list[str]:
    """Everybody there is, in the order of the results."""
    return list(dict.fromkeys(row.entrant for row in rows))


def ratios(table: Costs) -> Costs:
    """What each took by what the best took; cells that nobody solved are left out."""
    found: Costs = {}
    for cell, own in table.items():
        best = min(own.values(), default=np.inf)
        if np.isfinite(best):
            found[cell] = {name: _ratio(cost, best) for name, cost in own.items()}
    return found


def _ratio(cost: float, best: float) -> float:
    return cost / best if best > 0 else (1.0 if cost == best else np.inf)


def profile(table: Costs, name: str, factors: Sequence[float]) -> list[float]:
    """The share of cells in which it takes at most so many times the best's."""
    own = [cells[name] for cells in ratios(table).values()]
    return [sum(r <= factor for r in own) / max(1, len(own)) for factor in factors]


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
    relative = ratios(table)
    names = dict.fromkeys(name for own in relative.values() for name in own)
    found = []
    for name in names:
        own = {cell: entry[name] for cell, entry in relative.items() if name in entry}
        where = max(own, key=lambda cell: own[cell])
        finite = [ratio for ratio in own.values() if np.isfinite(ratio)]
        found.append(
            Standing(
                name, sum(r <= TIE for r in finite), sum(r <= 2 for r in finite),
                len(own), len(own) - len(finite), geometric(finite), own[where], where,
            )
        )  # fmt: skip
    return sorted(found, key=lambda one: (-one.wins, one.missed, one.mean))


def geometric(values: Iterable[float]) -> float:
    """The geometric mean; of nothing, not a number."""
    own = [*values]
    return float(np.exp(np.mean(np.log(own)))) if own else np.nan


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


def duel(table: Costs, who: str, ours: Iterable[str], theirs: Iterable[str]) -> Duel:
    """Compare the best of ours with the best of theirs, cell by cell."""
    sides = [_best(table, names) for names in (ours, theirs)]
    both: dict[str, float] = {}
    alone = lost = 0
    for cell, (mine, other) in {c: (sides[0][c], sides[1][c]) for c in table}.items():
        alone += bool(np.isfinite(mine) and not np.isfinite(other))
        lost += bool(np.isfinite(other) and not np.isfinite(mine))
        if np.isfinite(mine) and np.isfinite(other):
            both[cell] = _ratio(mine, other)
    where = max(both, key=lambda cell: both[cell], default="")
    return Duel(
        who, geometric(both.values()), sum(r < 1 for r in both.values()), len(both),
        both.get(where, np.nan), where, alone, lost,
    )  # fmt: skip


def _best(table: Costs, names: Iterable[str]) -> Mapping[str, float]:
    some = [*names]
    return {
        cell: min((own[name] for name in some if name in own), default=np.inf)
        for cell, own in table.items()
    }


def headline(rows: Sequence[Row], what: str = "rounds") -> list[Duel]:
    """Ours together, and each alone, against the best of all baselines."""
    ours = entrants_of(row for row in rows if row.ours)
    theirs = entrants_of(row for row in rows if not row.ours)
    if not ours or not theirs:
        return []
    everybody = complete(costs(rows, what), [*ours, *theirs])
    found = [duel(everybody, "best of the family", ours, theirs)]
    return found + [duel(everybody, name, [name], theirs) for name in ours]


def by_law(rows: Sequence[Row]) -> dict[str, dict[str, tuple[float, int]]]:
    """Geometric means of rounds by law and entrant; what never arrived counts as the
    longest run, and how many did not is said."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row.measure == ROUNDS:
            found.setdefault(row.law, {}).setdefault(row.entrant, []).append(row.value)
    return {
        law: {
            name: (
                geometric(min(value, LONGEST) or 1.0 for value in values),
                sum(not np.isfinite(value) for value in values),
            )
            for name, values in own.items()
        }
        for law, own in found.items()
    }


def sensitivity(rows: Sequence[Row]) -> dict[str, float]:
    """The steps of the grid near the best: their mean over cells that were solved."""
    found: dict[str, list[int]] = {}
    for row in rows:
        if np.isfinite(row.value):
            found.setdefault(row.entrant, []).append(row.near)
    return {name: float(np.mean(near)) for name, near in found.items()}
