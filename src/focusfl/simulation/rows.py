"""Clients' memory off the device: in arrays of this machine, or in files.

Nothing is written for a client until it takes part: until then it has the first row.

A store that is kept by a checkpoint has two places per client. A row is never written
over while the newest checkpoint needs it: the first write after a checkpoint goes to
the client's other place. What a checkpoint must hold is thus only who is where, and
the checksum of every row: what is read from a file must have it, so that neither a
damaged row nor one of another checkpoint is taken for the client's.
"""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import jax
import numpy as np

from focusfl.core.files import Damaged
from focusfl.core.tree import Tree
from focusfl.simulation.mapped import (
    AGAIN,
    NAME,
    Ids,
    Leaf,
    Row,
    Sums,
    checksums,
    map_leaves,
)

NOWHERE = -1
AT_ONCE = 1 << 26  # bytes of rows that are looked at


class Rows:
    """One leaf of everybody's memory, left where it is and not to be written to.

    rows[ids] reads the rows of some clients, np.asarray(rows) those of all.
    """

    def __init__(self, kept: Leaf, at: Ids, first: Row, sums: Sums | None = None):
        self._kept, self._at, self._first, self._sums = kept, at, first, sums
        self.shape, self.dtype = (len(at), *first.shape), first.dtype
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, ids: Any) -> np.ndarray:
        at = np.asarray(self._at[ids])
        out = np.empty((at.size, *self._first.shape), self.dtype)
        whose = np.asarray(np.arange(len(self))[ids]).ravel()
        _read(out, self._kept, at.ravel(), self._first, self._sums, whose)
        return out.reshape(*at.shape, *self._first.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("these rows are not one array; they must be copied.")
        return np.asarray(self[:], dtype)

    def __repr__(self) -> str:
        return f"Rows(shape={self.shape}, dtype={self.dtype})"


class Store:
    """The memory of all clients, a row per leaf and client."""

    def __init__(
        self,
        first: Tree,
        num_clients: int,
        on_disk: bool,
        folder: str | Path | None = None,
        named: bool = False,
        resumed: bool = False,
        most: int = 0,
    ):
        """`first` is a client's row before it has taken part; `most` of them will.

        Files that are `named` stay in the folder, for a run that is `resumed`; others
        vanish with the last array.
        """
        self.first = jax.tree.map(np.asarray, first)
        self.at = np.full(num_clients, NOWHERE)
        self._kept_at, self._safe = self.at.copy(), named
        leaves, self._structure = jax.tree.flatten(self.first)
        self._sums = np.zeros((len(leaves) if on_disk else 0, num_clients), np.uint32)
        shapes = [((1 + named) * num_clients, *row.shape) for row in leaves]
        if not on_disk:  # zeros cost nothing until they are written to
            pairs = zip(shapes, leaves, strict=True)
            self._kept = [Leaf(np.zeros(shape, row.dtype)) for shape, row in pairs]
            return
        folder = Path(gettempdir() if folder is None else folder).expanduser()
        need = (1 + named) * most * sum(row.nbytes for row in leaves)
        if resumed:
            need = 0  # was there when it began
        self._kept = map_leaves(folder, shapes, leaves, need, named, resumed)

    def rows(self) -> Tree:
        """Everybody's memory as it is now, leaf by leaf, without reading it."""
        at, sums = self.at.copy(), self._sums.copy()
        each = zip_longest(self._kept, jax.tree.leaves(self.first), sums)
        return jax.tree.unflatten(
            self._structure, [Rows(kept, at, row, own) for kept, row, own in each]
        )

    def read(self, ids: Ids, size: int | None = None) -> Tree:
        """Copy the rows of some clients into tables of so many rows."""
        at, tables = self.at[ids], []
        first_rows = jax.tree.leaves(self.first)
        for kept, first, sums in zip_longest(self._kept, first_rows, self._sums):
            table = np.zeros((size or len(ids), *first.shape), first.dtype)
            _read(table[: len(ids)], kept, at, first, sums, ids)
            tables.append(table)
        return jax.tree.unflatten(self._structure, tables)

    def write(self, ids: Ids, rows: Tree) -> None:
        """Replace the rows of some clients."""
        at, many = self.at[ids], len(self.at)
        if self._safe:
            other = np.where(at == NOWHERE, ids, (at + many) % (2 * many))
            at = np.where(at == self._kept_at[ids], other, at)
        else:
            at = ids
        leaves = jax.tree.leaves(rows)
        for kept, own, sums in zip_longest(self._kept, leaves, self._sums):
            kept.write(at, own)
            if sums is not None:
                sums[ids] = checksums(own)
        self.at[ids] = at

    def flush(self) -> None:
        """See to it that what was written survives this machine."""
        for kept in self._kept:
            kept.flush()

    def where(self) -> Tree:
        """What a checkpoint must hold: of two places, which is whose, and checksums."""
        return (self.at // len(self.at)).astype(np.int8), self._sums

    def keep(self, where: Tree) -> None:
        """Take this for what the newest checkpoint says."""
        place, sums = where
        self.at = places(place)
        self._kept_at, self._sums = self.at.copy(), sums.copy()


def check_rows(folder: Path, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[Path, str]]:
    """Give every file of rows of a checkpoint, and what is wrong with it, if anything.

    `arrays` is what the checkpoint has: of memory on the device, no files.
    """
    place, sums = (arrays.get(f"['state'].steps[{k}]") for k in range(2))
    if place is None or sums is None:
        return
    at = places(place)
    for number, own in enumerate(sums):
        path = folder / NAME.format(number)
        if not path.is_file() or path.stat().st_size % (2 * len(at)):
            yield path, "it is missing or of another size"
            continue
        shape = 2 * len(at), path.stat().st_size // (2 * len(at))
        array = np.memmap(path, np.uint8, "r", shape=shape)
        rows = Rows(Leaf(array, None, path, AGAIN), at, array[0], own)
        some = max(1, AT_ONCE // shape[1])
        try:
            for start in range(0, len(at), some):
                rows[start : start + some]
            yield path, ""
        except Damaged as error:
            yield path, str(error)


def places(place: np.ndarray) -> Ids:
    """Where rows are, by which of their two places it is."""
    at = np.arange(len(place)) + len(place) * place.astype(int)
    return np.where(place == NOWHERE, NOWHERE, at)


def _read(out: np.ndarray, kept: Leaf, at: Ids, first: Row, sums: Sums | None, whose: Ids) -> None:
    """Read the rows of clients at their places, and check what has checksums."""
    here = at != NOWHERE
    there = out if here.all() else np.empty((here.sum(), *first.shape), first.dtype)
    kept.read(at[here], there)
    if sums is not None:
        kept.check(there, sums[whose[here]], whose[here])
    if there is not out:
        out[here], out[~here] = there, first
