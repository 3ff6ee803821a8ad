"""Results on disk: a small file for each entrant in each cell, and all as one."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from focusfl.core.files import BLANK, Damaged, parse_json, read, write
from focusfl.core.fingerprint import fingerprint, source
from focusfl.studies.store import RUNS, Folder, environment, manifest_so_far
from focusfl.suite import measure
from focusfl.suite.cells import CELLS, Cell
from focusfl.suite.entrants import Entrant, place_of
from focusfl.suite.measure import RULE, Tried, step_of

RESULTS = "results.json"
SHIPPED = Path(__file__).parent / RESULTS  # what the entrants of the library came to
DIGITS = 5  # that are kept of a number


class Row(NamedTuple):
    """The result of one entrant in one cell, at its best step: medians over seeds."""

    cell: str
    entrant: str
    split: str
    measure: str
    ours: bool
    of: str  # cell and rule, by their content
    key: str  # the same with the algorithm's code and constants
    variant: str  # the algorithm, with the constants that were best
    step: float  # the best, in units of 1/L
    value: float  # what is measured: rounds, a floor or a share of images
    error: float  # in the end
    near: int  # steps of the grid that need at most twice the best
    edge: bool  # whether the search ended at an edge of the grid
    rounds: float  # to the target, or in all
    vectors: float
    bytes: float
    gradients: float
    seconds: float
    runs: int  # that the search took
    spent: float  # seconds of a core, likewise

    @property
    def law(self) -> str:
        """Of participation."""
        return self.cell.rpartition("/")[2]

    def as_dict(self) -> dict[str, Any]:
        """By name, as JSON has it: None for what is infinite."""
        return dict(zip(self._fields, _packed(self), strict=True))


def content(cell: Cell) -> str:
    """Fingerprint of a cell and of the rule of measuring."""
    rule = (RULE, measure.AT_ONCE, [*measure.FIRST], measure.BATCHES, measure.NEAR)
    return fingerprint(cell.identity, json.dumps(rule))


class Store(Folder):
    """The results in a folder: those of every run, and one file of all."""

    def __init__(self, folder: Path):
        try:
            super().__init__(folder, manifest_so_far(folder))
        except Damaged as error:
            print(error, file=sys.stderr)
            super().__init__(folder)

    def put(self, row: Row, tried: Tried) -> None:
        """Keep one result, with all steps that were tried."""
        steps = [[step_of(k), *map(_plain, tried[k])] for k in sorted(tried)]
        about = {"row": row.as_dict(), "tried": steps, "source": source()}
        words = re.sub(r"[^\w.-]+", "_", f"{row.cell}-{row.entrant}")
        name = f"{RUNS}/{words}-{row.key}.json"
        write(self.path / name, json.dumps(about))
        self.add(name)
        self.save()

    def rows(self) -> list[Row]:
        """All results that are there, in one file or in many.

        Of several versions of a method, the newest. What is damaged is named on stderr
        and left out.
        """
        rows = load(self.path / RESULTS)
        for name in [name for name in self.files if name.startswith(f"{RUNS}/")]:
            try:
                row = json.loads(self.read(name))["row"]
            except Damaged as error:
                print(f"{error}. It is run again.", file=sys.stderr)
                continue
            if [*row] == [*Row._fields]:
                rows.append(_unpacked([*row.values()]))
        return _current({(row.cell, row.entrant): row for row in rows}.values())

    def together(self) -> list[Row]:
        """Write all as one file, from which a run can go on as well; give them."""
        save(self.path / RESULTS, rows := self.rows())
        return rows


def key_of(cell: Cell, entrant: Entrant, code: str) -> str:
    """Fingerprint of a result: of the algorithm's code and constants, the cell and the rule."""
    return fingerprint(content(cell), code, entrant.local_steps)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Results by cell, then by method, as the suite lists both."""
    cells = {cell.name: place for place, cell in enumerate(CELLS)}
    return sorted(
        rows,
        key=lambda row: (
            cells.get(row.cell, len(cells)), row.cell, place_of(row.entrant),
            row.entrant,
        ),
    )  # fmt: skip


def save(file: Path, rows: Iterable[Row]) -> Path:
    """Write results as one file, as the library ships those of its own entrants."""
    about = {
        "columns": Row._fields,
        "source": source(),
        "environment": environment(),
        "seal": BLANK,
        "rows": [_packed(row) for row in rows],
    }
    lines = json.dumps(about, separators=(",", ":"))
    return write(file, lines.replace("],[", "],\n[") + "\n", sealed=True)


def load(file: Path = SHIPPED) -> list[Row]:
    """Read such a file; none if there is none."""
    if not file.is_file():
        return []
    about = _read(file)
    if about.get("columns") != [*Row._fields]:
        raise ValueError(f"{file} is of another version of focusfl; remove it, and run again.")
    try:
        return _current(map(_unpacked, about["rows"]))
    except (LookupError, TypeError, AttributeError) as error:
        raise Damaged(f"{file} is damaged ({error!r}); remove it, and run again.") from None


def _read(file: Path) -> dict[str, Any]:
    """A file of results; a clear error for one that is none, or damaged."""
    why = "holds no results of the suite"
    try:
        content, seal = read(file)
        about = parse_json(content)
        if "seal" in about and seal is None:
            why = "is damaged: its checksum is gone"
        elif about.keys() & {"row", "rows"}:
            return about
    except Damaged as error:
        raise Damaged(f"{error}. Remove it, and run again.") from None
    except (ValueError, TypeError, AttributeError):
        pass
    raise Damaged(f"{file} {why}; remove it, and run again.")


def _current(rows: Iterable[Row]) -> list[Row]:
    """Leave out results of earlier versions of a cell, or by another rule."""
    now = {cell.name: content(cell) for cell in CELLS}
    return in_order(row for row in rows if now.get(row.cell, row.of) == row.of)


def _packed(row: Row) -> list[Any]:
    return [_plain(value) for value in row]


def _plain(value: Any) -> Any:
    """As JSON has it, which knows no infinity."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
    return value


def _unpacked(values: Sequence[Any]) -> Row:
    return Row._make(np.inf if value is None else value for value in values)
