"""What a kind in a study names: one of focusfl's own, or somebody's `module:name`.

A module is looked for beside the study file, as module.py, and then among installed
packages; a plain name is in the registry, where installed packages' own are too.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from focusfl.core.validation import unknown


class Part(NamedTuple):
    """A file of a user's that a study needs: code that it runs, or data."""

    file: str  # its path; beside the study, relative to it
    sha256: str
    beside: bool  # whether it lies beside the study


class Constructor(NamedTuple):
    """What makes a part of a study."""

    make: Callable[..., Any]
    part: Part | None  # None: focusfl's own


def lookup(kind: str, ours: Mapping[str, Callable], folder: Path | None) -> Constructor:
    """What a kind names; ValueError says what is missing."""
    if kind in ours:
        make = ours[kind]
        if make.__module__.partition(".")[0] == __package__.partition(".")[0]:
            return Constructor(make, None)
        return _with_source(make, kind, None)  # of an installed package, by its entry points
    module, colon, name = kind.partition(":")
    if not colon:
        raise ValueError(
            unknown("kind", kind, ours) + ' Your own is "module:name", with module.py '
            "beside the study."
        )
    loaded = _module(module, kind, folder)
    if not name.isidentifier() or not callable(getattr(loaded, name, None)):
        known = [
            key
            for key, value in vars(loaded).items()
            if callable(value) and getattr(value, "__module__", None) == loaded.__name__
        ]
        raise ValueError(
            f"{kind!r}: {module} has no class or function {name!r}; it has "
            f"{', '.join(known) or 'none'}."
        )
    return _with_source(getattr(loaded, name), kind, folder)


def _with_source(make: Callable, kind: str, folder: Path | None) -> Constructor:
    """With the file it comes from, and a hash of that."""
    try:
        file = Path(inspect.getfile(inspect.unwrap(make)))
        return Constructor(make, part_of(file, folder))
    except (TypeError, OSError):
        raise ValueError(f"{kind!r} has no source file that could be kept.") from None


def part_of(file: Path, folder: Path | None) -> Part:
    """A file as a part of a study in a folder."""
    file = file.resolve()
    beside = folder is not None and file.is_relative_to(folder.resolve())
    path = file.relative_to(folder.resolve()) if beside and folder else file
    return Part(str(path), hashlib.sha256(file.read_bytes()).hexdigest(), beside)


def _module(name: str, kind: str, folder: Path | None) -> ModuleType:
    words = name.split(".")
    if not all(word.isidentifier() for word in words):
        raise ValueError(f"{kind!r} must be like my_module:make_problem.")
    file = folder and Path(folder, *words).with_suffix(".py").resolve()
    if not file or not file.is_file():
        if words[0] not in packages_distributions():
            where = f"there is no {file}" if file else "it lies beside no study"
            raise ValueError(
                f"{kind!r}: cannot find {name}: {where}, and no installed package has it."
            )
        return _imported(kind, lambda: importlib.import_module(name))
    # Under a name of its own: two studies may both have a models.py.
    alias = f"focusfl_study_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}.{name}"
    spec = importlib.util.spec_from_file_location(alias, file)
    assert spec and spec.loader
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    sys.modules[alias] = module  # dataclasses look their module up
    sys.path.insert(0, str(folder))  # what lies beside it may be imported by it
    try:
        _imported(kind, lambda: loader.exec_module(module))
    except ValueError:
        del sys.modules[alias]
        raise
    finally:
        sys.path.remove(str(folder))
    return module


def _imported(kind: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except Exception as error:
        raise ValueError(f"{kind!r} cannot be imported: {type(error).__name__}: {error}") from error
