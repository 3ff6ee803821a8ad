"""Clients' memory off the device: in arrays of this machine, or in files.

Nothing is written for a client until it takes part: until then it has the first row.
Files are memory-mapped and have holes where nothing was written. Large rows are read
and written past the map, through which every page of them would cost a fault.

A store that is kept by a checkpoint has two places per client. A row is never written
over while the newest checkpoint needs it: the first write after a checkpoint goes to
the client's other place. What a checkpoint must hold is thus only who is where.
"""

import os
import weakref
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryFile, gettempdir
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from focusfl.tree import Tree

NOWHERE = -1
NAME = "clients-{}.rows"  # of the file with one leaf
LARGE = 1 << 15  # bytes of a row

Ids = Int[np.ndarray, "_"]
Row = np.ndarray  # what one client has in one leaf


class Leaf:
    """One leaf of all rows there are: an array, which may be the map of a file."""

    def __init__(self, array: np.ndarray, file: Any = None):
        self.array, self._file = array, file
        self._size = array[0].nbytes
        self._past_the_map = file is not None and self._size >= LARGE
        if file is not None:
            weakref.finalize(self, file.close)

    def read(self, at: Ids, out: np.ndarray) -> None:
        """Copy some rows."""
        if not self._past_the_map:
            np.take(self.array, at, 0, out, "clip")  # any other mode copies twice
            return
        for place, row in zip(at.tolist(), out, strict=True):
            if os.preadv(self._file.fileno(), [row], place * self._size) != self._size:
                raise OSError(f"could not read all of row {place}")

    def write(self, at: Ids, rows: np.ndarray) -> None:
        """Replace some rows."""
        if not self._past_the_map:
            self.array[at] = rows
            return
        for place, row in zip(at.tolist(), rows, strict=True):
            done = os.pwrite(self._file.fileno(), row.data, place * self._size)
            if done != self._size:
                raise OSError(f"could not write all of row {place}")

    def flush(self) -> None:
        """See to it that what was written survives this machine."""
        if self._file is not None:
            self.array.flush()  # type: ignore[attr-defined]
            os.fsync(self._file.fileno())


class Rows:
    """One leaf of everybody's memory, left where it is and not to be written to.

    rows[ids] reads the rows of some clients, np.asarray(rows) those of all.
    """

    def __init__(self, kept: Leaf, at: Ids, first: Row):
        self._kept, self._at, self._first = kept, at, first
        self.shape, self.dtype = (len(at), *first.shape), first.dtype
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, ids: Any) -> np.ndarray:
        at = np.asarray(self._at[ids])
        out = np.empty((at.size, *self._first.shape), self.dtype)
        _read(out, self._kept, at.ravel(), self._first)
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
        self.keep(np.full(num_clients, NOWHERE))
        self._safe = named
        leaves, self._structure = jax.tree.flatten(self.first)
        shapes = [((1 + named) * num_clients, *row.shape) for row in leaves]
        if not on_disk:  # zeros cost nothing until they are written to
            pairs = zip(shapes, leaves, strict=True)
            self._kept = [Leaf(np.zeros(shape, row.dtype)) for shape, row in pairs]
            return
        folder = Path(gettempdir() if folder is None else folder).expanduser()
        need = (1 + named) * most * sum(row.nbytes for row in leaves)
        if resumed:
            need = 0  # was there when it began
        self._kept = _mapped(folder, shapes, leaves, need, named, resumed)

    def rows(self) -> Tree:
        """Everybody's memory as it is now, leaf by leaf, without reading it."""
        leaves = zip(self._kept, jax.tree.leaves(self.first), strict=True)
        at = self.at.copy()
        return jax.tree.unflatten(
            self._structure, [Rows(kept, at, row) for kept, row in leaves]
        )

    def read(self, ids: Ids, size: int | None = None) -> Tree:
        """Copy the rows of some clients into tables of so many rows."""
        at, tables = self.at[ids], []
        for kept, first in zip(self._kept, jax.tree.leaves(self.first), strict=True):
            table = np.zeros((size or len(ids), *first.shape), first.dtype)
            _read(table[: len(ids)], kept, at, first)
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
        for kept, own in zip(self._kept, jax.tree.leaves(rows), strict=True):
            kept.write(at, own)
        self.at[ids] = at

    def flush(self) -> None:
        """See to it that what was written survives this machine."""
        for kept in self._kept:
            kept.flush()

    def keep(self, at: Ids) -> None:
        """Take this for what the newest checkpoint says."""
        self.at, self._kept_at = at.copy(), at.copy()


def _read(out: np.ndarray, kept: Leaf, at: Ids, first: Row) -> None:
    here = at != NOWHERE
    if here.all():
        kept.read(at, out)
        return
    there = np.empty((here.sum(), *first.shape), first.dtype)
    kept.read(at[here], there)
    out[here], out[~here] = there, first


def _mapped(
    folder: Path,
    shapes: list[tuple],
    leaves: list[Row],
    need: int,
    named: bool,
    resumed: bool,
) -> list[Leaf]:
    """Map a file per leaf. Raise if the disk is too small for what may be written:
    a process that writes to a full one through a map is ended by the system."""
    mapped: list[Leaf] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if named and not resumed:  # what a run left that was never kept
            for old in folder.glob(NAME.format("*")):
                old.unlink()
        free = disk_usage(folder).free
        if need > free:
            raise ValueError(
                f"what clients remember may take {need / 2**30:.3g} GiB, and the disk "
                f"of {folder} has {free / 2**30:.3g} GiB left. Use a folder on another."
            )
        for number, (shape, row) in enumerate(zip(shapes, leaves, strict=True)):
            count = int(np.prod(shape)) * row.itemsize
            file = _opened(folder / NAME.format(number), count, named, resumed)
            mapped.append(Leaf(np.memmap(file, row.dtype, "r+", shape=shape), file))
    except OSError as error:
        raise ValueError(
            "clients' memory must be in a folder that can be written to; "
            f"got {folder}: {error.strerror}."
        ) from None
    return mapped


def _opened(path: Path, count: int, named: bool, resumed: bool) -> Any:
    """Open a file of so many bytes, all of them a hole if it is new."""
    if resumed:
        if not path.exists() or path.stat().st_size != count:
            raise ValueError(
                f"the checkpoint in {path.parent} needs {path.name}, which is missing "
                "or of another size; remove the folder to begin at round 0."
            )
        return open(path, "r+b")
    file = open(path, "w+b") if named else TemporaryFile(dir=path.parent)
    file.truncate(count)
    return file
