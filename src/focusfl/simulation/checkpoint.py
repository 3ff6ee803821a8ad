"""Checkpoints: a run's newest state in one file, which is whole at any moment.

The file is a plain .npz, without pickles: every leaf of the run under its path, and as
JSON the facts that the run follows from; it is sealed (see `files`) in the comment of
the archive. Trees are rebuilt from a run freshly begun.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from zipfile import ZipFile

import jax
import numpy as np

from focusfl import __version__
from focusfl.core.files import BLANK, check, clear_parts, parse_json, renamed, take_lock
from focusfl.core.tree import Tree
from focusfl.simulation.spec import Checkpoint

Facts = dict[str, Any]  # name -> number or words; or a digest of what is too long

NAME = "checkpoint.npz"
FACTS = "facts"
CODE = "code (algorithm, loss, metrics)"
FOLLOW = ("participation", CODE)  # from other facts: blamed when no other differs


class CheckpointFile:
    """A folder that keeps one run; with no folder, nothing is kept."""

    def __init__(self, folder: Path | None, every: float | int):
        self.folder, self.every = folder, every
        self._last = time.monotonic()

    def exists(self) -> bool:
        """Say whether there is a run to go on from."""
        return self.folder is not None and (self.folder / NAME).exists()

    def restore(self, state: Tree, log: Tree, facts: Callable[[], Facts]) -> tuple[Tree, Tree]:
        """Give state and log from the file, or as they are if there is none.

        Raise ValueError if the file is damaged, or kept a run that other facts led to.
        """
        if self.folder is None:
            return state, log
        self._facts = facts() | _here()
        if not self.exists():
            return state, log
        file = self.folder / NAME
        arrays = read_arrays(file)
        start = {"state": state, "log": log}
        try:
            _compare(dict(parse_json(str(arrays.pop(FACTS)))), self._facts, self.folder)
            run = jax.tree_util.tree_map_with_path(
                # bfloat16, say, is written as bare bytes
                lambda path, like: arrays[jax.tree_util.keystr(path)].view(like.dtype),
                start,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file} is no checkpoint of this version: {error!r}.") from None
        run = _in_place_of(start, run)
        return run["state"], run["log"]

    def due(self) -> bool:
        """Say whether it is time to write the run again."""
        return self.folder is not None and time.monotonic() - self._last >= self.every

    def write(self, state: Tree, log: Tree) -> None:
        """Put a run into the file, or leave the file as it is."""
        if self.folder is None:
            return
        arrays: dict[str, Any] = {FACTS: json.dumps(self._facts, default=int)}
        for path, leaf in jax.tree_util.tree_leaves_with_path({"state": state, "log": log}):
            arrays[jax.tree_util.keystr(path)] = leaf
        with renamed(self.folder / NAME, sealed=True) as part:
            with open(part, "wb") as file:
                np.savez(file, **arrays)
            with ZipFile(part, "a") as archive:
                archive.comment = BLANK.encode()
        self._last = time.monotonic()


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All that a checkpoint has; raise ValueError if it is damaged."""
    try:
        with open(path, "rb") as file:
            if check(path, file) is None:
                raise ValueError("it has no checksum")
            with np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
    except Exception as error:  # a damaged file can make a reader say anything
        raise ValueError(
            f"{path} cannot be read, it may be damaged ({error}); remove it to begin at round 0."
        ) from error


@contextmanager
def open_checkpoint(asked: Checkpoint | None) -> Iterator[CheckpointFile]:
    """Hold a folder for one run; no other run can have it meanwhile."""
    if asked is None:
        yield CheckpointFile(None, 0)
        return
    folder = Path(asked.folder).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ValueError(
            f"checkpoint must be a folder that can be written to; got {folder}: {error.strerror}."
        ) from None
    try:
        try:
            free = take_lock(handle)
        except OSError:
            free = True  # not every file system locks folders
        if not free:
            raise ValueError(f"another run keeps its checkpoint in {folder}; use another folder.")
        clear_parts(folder / NAME)
        yield CheckpointFile(folder, asked.every)
    finally:
        os.close(handle)


def _here() -> Facts:
    """What the bits of a result depend on, beside the run."""
    return {
        "focusfl": __version__,
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "device": jax.devices()[0].device_kind,
    }


def _compare(then: Facts, now: Facts, folder: Path) -> None:
    differ = [name for name in now if then.get(name) != now[name]]
    blamed = [name for name in differ if name not in FOLLOW] or differ[:1]
    if blamed:
        what = [f"{name} was {then.get(name)}, is {now[name]}" for name in blamed]
        raise ValueError(
            f"{folder} holds a checkpoint of another run: {'; '.join(what)}. "
            "Run it as it was, or use another folder."
        )


def _in_place_of(start: Tree, run: Tree) -> Tree:
    """Give the leaves of a run the kind of those that it started with: weakness of type, device."""
    olds, structure = jax.tree.flatten(start)
    news = jax.tree.leaves(run)
    on_device = [k for k, old in enumerate(olds) if isinstance(old, jax.Array)]
    moved = _set_all([olds[k] for k in on_device], [news[k] for k in on_device])
    for k, new in zip(on_device, moved, strict=True):
        news[k] = new
    return jax.tree.unflatten(structure, news)


@jax.jit
def _set_all(olds: list[jax.Array], news: list[Any]) -> list[jax.Array]:
    return [old.at[...].set(new) for old, new in zip(olds, news, strict=True)]
