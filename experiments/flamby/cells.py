"""Cell by cell: what was published, what comes out here, and how far seeds go apart."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flamby.federations import Federation, federations
from flamby.methods import judged, models
from flamby.published import SEEDS, Row, published

from focusfl.core.files import BLANK, Damaged, read, write
from focusfl.core.fingerprint import fingerprint, source
from focusfl.data.places import Place

EQUAL = 1e-6  # apart from rounding; the smallest step of any of these measures is 4e-4


class Cell(NamedTuple):
    """One number of a table."""

    federation: str
    seed: int
    method: str
    test: str
    published: float
    ours: float
    low: float  # the smallest that was published for it with any seed
    high: float

    @property
    def equal(self) -> bool:
        """Whether it is the published number, to the last patient or pair."""
        return abs(self.ours - self.published) < EQUAL

    @property
    def within(self) -> bool:
        """Whether it lies in the spread of the published ones over seeds."""
        return self.low - EQUAL < self.ours < self.high + EQUAL


def cells(names: Sequence[str], folder: Path, data_dir: Place = None) -> Iterator[Cell]:
    """Train all methods of these federations anew, or read what is in the folder.

    All is read and checked before anything is trained.
    """
    everything = federations(names, data_dir)
    tables = {
        (one.name, seed): published(one, seed, data_dir) for one in everything for seed in SEEDS
    }
    for one in everything:
        mine = {seed: tables[one.name, seed] for seed in SEEDS}
        ends = _ends(list(mine.values()))
        for seed, rows in mine.items():
            found = _kept(folder, one, rows, seed)
            for row in rows:
                for test, value in row.values.items():
                    ours = found[row.method][test]
                    where = one.name, seed, row.method, test
                    yield Cell(*where, value, ours, *ends[row.method, test])


def _ends(tables: list[list[Row]]) -> dict[tuple[str, str], tuple[float, float]]:
    """The smallest and the largest over seeds of what was published for a cell."""
    values: dict[tuple[str, str], list[float]] = {}
    for rows in tables:
        for row in rows:
            for test, value in row.values.items():
                values.setdefault((row.method, test), []).append(value)
    return {where: (min(some), max(some)) for where, some in values.items()}


def _kept(folder: Path, one: Federation, rows: list[Row], seed: int) -> dict[str, dict[str, float]]:
    """Every method's measures: those on disk if code, data and steps are the same."""

    def train() -> dict[str, dict[str, float]]:
        found = models(one, rows, seed)
        return {method: judged(one, x) for method, x in found.items()}

    steps = [row[:-1] for row in rows]
    return kept(folder / "cells", f"{one.name}-{seed}", one, steps, train)


def kept(folder: Path, name: str, one: Federation, settings: Any, make: Callable[[], Any]) -> Any:
    """What was made before of the same code, data and settings; else make it now."""
    parts = [*one.train, *one.test, *one.pooled]
    key = fingerprint(source(), settings, [array for part in parts for array in part])
    file = folder / f"{name}-{key}.json"
    try:
        return json.loads(read(file)[0])["found"]
    except (FileNotFoundError, Damaged):
        found = make()
    write(file, json.dumps({"found": found, "seal": BLANK}), sealed=True)
    return found
