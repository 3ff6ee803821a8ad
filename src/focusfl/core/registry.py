"""Register the parts of a study by name: algorithms, participation, problems, compressors.

A file registers what it defines, and everything else follows from that: `ff.NAME`, what a study may
name, `focusfl list`, the tables of the documentation, names and colours in figures.

    @ALGORITHMS.register("area")
    @dataclass(frozen=True)
    class AREA(Algorithm): ...

An installed package offers its parts by entry points instead, in the group of the registry:

    [project.entry-points."focusfl.algorithms"]
    area = "my_package:AREA"

They are imported when they are first asked for, so that one that is broken stops nobody else.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from typing import Any, NamedTuple, TypeVar

P = TypeVar("P", bound=Callable[..., Any])


class _Note(NamedTuple):
    """What a file says of a part that it registers."""

    label: str
    style: int | None
    invariant: str


class Registry(Mapping[str, Any]):
    """Map the names of parts of one kind to the classes or functions that make them.

    Args:
        what: what a part is called in messages, such as "algorithm".
        group: the group of entry points by which installed packages offer theirs.
    """

    def __init__(self, what: str, group: str):
        self.what, self.group = what, group
        self.registered: dict[str, Any] = {}  # without those of entry points
        self._notes: dict[str, _Note] = {}

    def register(
        self, name: str, *, label: str | None = None, style: int | None = None, invariant: str = ""
    ) -> Callable[[P], P]:
        """Give a class or function a name, as a decorator.

        Args:
            name: what a study calls it: lower-case letters, digits and underscores.
            label: what figures and tables call it; the name in Python if None.
            style: which of the colours and lines of figures it has for itself; one that is
                free if None.
            invariant: what holds in every round, for the table of methods.

        Raises:
            ValueError: If the name cannot be one, or stands for something else.
        """
        check_name(self.what, name)

        def add(part: P) -> P:
            known = self.registered.get(name)
            if known is not None and _origin(known) != _origin(part):
                raise ValueError(
                    f"{self.what} {name!r} is registered already, as {'.'.join(_origin(known))}; "
                    f"give {'.'.join(_origin(part))} another name."
                )
            self.registered[name] = part
            self._notes[name] = _Note(label or part.__name__, style, invariant)
            return part

        return add

    @cached_property
    def installed(self) -> dict[str, EntryPoint]:
        """What installed packages offer, by name; what is registered under a name comes first."""
        return {entry.name: entry for entry in entry_points(group=self.group)}

    def __getitem__(self, name: Any) -> Any:
        if name in self.registered or name not in self.installed:
            return self.registered[name]
        entry = self.installed[name]
        try:
            return entry.load()
        except Exception as error:  # whatever somebody else's package raises
            package = f" of {entry.dist.name}" if entry.dist else ""
            raise ValueError(
                f"{self.what} {name!r}{package} cannot be imported from {entry.value}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def __contains__(self, name: object) -> bool:
        return name in self.registered or name in self.installed

    def __iter__(self) -> Iterator[str]:
        # In alphabetical order: that of imports would depend on who imports what first.
        return iter(sorted({*self.registered, *self.installed}))

    def __len__(self) -> int:
        return len({*self.registered, *self.installed})

    def label(self, name: str) -> str:
        """Say what figures and tables call a part; imports nothing."""
        return self._notes[name].label if name in self._notes else self.installed[name].attr

    def style(self, name: str) -> int | None:
        """Say which of the colours and lines of figures a part has for itself, if any."""
        return self._notes[name].style if name in self._notes else None

    def invariant(self, name: str) -> str:
        """Say what holds in every round of an algorithm, if its file says so."""
        return self._notes[name].invariant if name in self._notes else ""

    def classes(self) -> dict[str, str]:
        """Map names in Python, such as `Focus`, to names in a study; imports nothing."""
        registered = {part.__name__: name for name, part in self.registered.items()}
        return {entry.attr: name for name, entry in self.installed.items()} | registered

    def attribute(self, module: str, name: str) -> Any:
        """Find a part by its name in Python, for the `__getattr__` of a module."""
        classes = {} if name.startswith("_") else self.classes()
        if name not in classes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return self[classes[name]]

    def discover(self, package: str, path: Iterable[str]) -> None:
        """Import every file of a package, so that each registers what it defines."""
        for module in iter_modules(path):
            if not module.ispkg:
                import_module(f"{package}.{module.name}")


def _origin(part: Any) -> tuple[str, str]:
    return part.__module__, part.__qualname__


def check_name(what: str, name: Any) -> None:
    """Raise unless this may be the name of a part in a study."""
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise ValueError(
            f"{what} names must be lower-case letters, digits and underscores, beginning with a "
            f"letter; got {name!r}."
        )


ALGORITHMS = Registry("algorithm", "focusfl.algorithms")
PARTICIPATION = Registry("participation model", "focusfl.participation")
PROBLEMS = Registry("problem", "focusfl.problems")
SCHEDULES = Registry("schedule", "focusfl.schedules")
COMPRESSORS = Registry("compressor", "focusfl.compression")
