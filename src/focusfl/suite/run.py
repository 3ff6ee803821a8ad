"""Run what is missing of the suite in a folder, in so many processes."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from focusfl.core.fingerprint import fingerprint, stable_repr
from focusfl.studies.store import alone
from focusfl.studies.units import Message, run_units
from focusfl.suite.cells import Cell
from focusfl.suite.entrants import Entrant
from focusfl.suite.measure import Tried, measured, step_of
from focusfl.suite.store import Row, Store, content, in_order, key_of, load

TOGETHER = 28  # cells of one unit of work, at most
# Problems that differ in their data alone: one compiled program serves all of them.
FAMILIES = {"ridge": "quadratics", "written_digits": "labels"}
# What a cell takes, in seconds of a core; where nothing is said, one or so.
SECONDS = {"written_digits": 4, "labels": 4, "outliers": 2, "noisy": 6, "images": 10}
SKLEARN = ("written_digits", "images")
KILLED = (
    "a process was killed, perhaps for its memory; what was found is kept. Run again, "
    "with fewer --workers."
)
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

Finished = Callable[[Row], bool | None]  # told of a result; true: that is enough


class Unit(NamedTuple):
    """Cells that one process runs one after the other, with what it has compiled."""

    entrant: Entrant
    cells: tuple[tuple[Cell, str], ...]  # with the keys of their results
    folder: Path
    home: Path | None  # where a user's own algorithm lies

    @property
    def seconds(self) -> int:
        """What it takes, roughly."""
        cells = sum(SECONDS.get(cell.about["kind"], 1) for cell, _ in self.cells)
        return len(self.entrant.variants) * cells


def missing_extras(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that need scikit-learn, if it is not here."""
    if find_spec("sklearn"):
        return []
    return [cell for cell in cells if cell.about["kind"] in SKLEARN]


def units(
    cells: Sequence[Cell], entrants: Sequence[Entrant], folder: Path, home: Path | None
) -> list[Unit]:
    """What is left to do, the longest first; a clear error for what cannot be run."""
    there, todo = {row.key for row in Store(folder).rows()}, []
    for entrant in entrants:
        code = fingerprint(entrant.algorithms(home))
        families: dict[tuple, list[tuple[Cell, str]]] = {}
        for cell in cells:
            key = key_of(cell, entrant, code)
            if key not in there:
                kind = cell.about["kind"]
                family = FAMILIES.get(kind, kind), cell.about.get("model"), cell.local_steps
                families.setdefault(family, []).append((cell, key))
        for family_cells in families.values():
            for start in range(0, len(family_cells), TOGETHER):
                together = family_cells[start : start + TOGETHER]
                todo.append(Unit(entrant, tuple(together), folder, home))
    return sorted(todo, key=lambda unit: -unit.seconds)


class _Enough(Exception):
    """Whoever is told of results has enough of them."""


def run(
    cells: Sequence[Cell],
    entrants: Sequence[Entrant],
    folder: Path,
    workers: int = 0,
    home: Path | None = None,
    began: Callable[[int, int], Finished] = lambda todo, all: lambda row: None,
) -> list[Row]:
    """Run what the folder does not have, and give all results that it then has.

    The name of a result's file is a fingerprint of all that it follows from: a run that
    was killed goes on, and of a method that joins only its own cells are run.

    Args:
        cells: to be measured.
        entrants: methods to be measured in each.
        folder: for results.
        workers: processes that share the work; 0: this one does it.
        home: folder of a user's own algorithms.
        began: called with how many results are missing and how many there are in all;
            it gives a function that is called with each, and may return true to stop.

    Raises:
        ValueError: If a method fails; the others are run all the same.
    """
    with alone(folder):
        todo, store = units(cells, entrants, folder, home), Store(folder)
        tell = began(sum(len(u.cells) for u in todo), len(cells) * len(entrants))

        def heard(unit: Unit, message: tuple[Row, Tried]) -> None:
            store.put(*message)
            if tell(message[0]):
                raise _Enough

        failed: list[ValueError] = []
        try:
            for _, future in run_units(_work, todo, workers, 1, heard, _prepare):
                error = future.exception()
                if isinstance(error, BrokenExecutor):
                    raise ValueError(KILLED)
                if isinstance(error, ValueError):  # the rest is run all the same
                    failed.append(error)
                elif error:
                    raise error
        except _Enough:
            pass
        finally:
            rows = store.together()
        if failed:
            more = f" ({len(failed) - 1} more like this)" if len(failed) > 1 else ""
            raise ValueError(f"{failed[0]}{more}") from failed[0]
        return rows


def compared(rows: Sequence[Row], shipped: Sequence[Row] | None = None) -> list[Row]:
    """Results with those that the library ships, of the same cells and of methods that
    are not among them."""
    measured, cells = {(row.cell, row.entrant) for row in rows}, {row.cell for row in rows}
    others = [
        row
        for row in (load() if shipped is None else shipped)
        if row.cell in cells and (row.cell, row.entrant) not in measured
    ]
    return in_order([*rows, *others])


def _work(unit: Unit, message: Message) -> None:
    """Run an entrant in the cells of a unit, with each of its constants; send the best of them."""
    import jax

    for cell, key in unit.cells:
        try:
            message(_best(unit, cell, key))
        except (_Enough, KeyboardInterrupt):
            raise
        except Exception as error:  # of somebody's algorithm: say where it was
            words = " ".join(str(error).split())
            raise ValueError(
                f"{unit.entrant.name} in {cell.name}: {type(error).__name__}: {words}"
            ) from error
    if multiprocessing.parent_process():
        jax.clear_caches()  # no other unit has the same programs


def _best(unit: Unit, cell: Cell, key: str) -> tuple[Row, Tried]:
    """Run an entrant in a cell with each of its constants; give the best, and its steps."""
    entrant, algorithms = unit.entrant, unit.entrant.algorithms(unit.home)
    tried = [measured(cell, each, entrant.local_steps) for each in algorithms]
    place = min(range(len(tried)), key=lambda place: tried[place].merit)
    best = tried[place]
    trial = best.search.tried[best.search.best]
    row = Row(
        cell.name, entrant.name, cell.split, cell.measure, entrant.ours, content(cell),
        key, stable_repr(algorithms[place]), step_of(best.search.best), trial.value,
        trial.error, best.search.near, best.search.edge, **best.costs,
        runs=sum(each.runs for each in tried), spent=sum(each.seconds for each in tried),
    )  # fmt: skip
    return row, best.search.tried


def _prepare() -> None:
    """Let processes that share the cores have one thread each, and leave a GPU alone."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
    if not os.environ.get("JAX_PLATFORMS"):
        import jax

        jax.config.update("jax_platforms", "cpu")
