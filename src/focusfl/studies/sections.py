"""The sections of a study that name a kind: its problem, algorithms, participation."""

import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from focusfl.compression import Compressor
from focusfl.core import Algorithm
from focusfl.core.validation import shown, unknown
from focusfl.participation import Participation, Sync, by_rarity, rarity
from focusfl.participation.timed import Timed
from focusfl.privacy import Private
from focusfl.problems import PROBLEMS, Problem
from focusfl.simulation.spec import StepSize
from focusfl.simulation.step_sizes import Schedule, tabled
from focusfl.studies import schema
from focusfl.studies.parts import Part, lookup, part_of
from focusfl.studies.schema import ConfigError, Section, blame, validate
from focusfl.studies.toml import Keys

Grid = tuple[StepSize, ...]


@dataclass(frozen=True)
class AlgorithmSpec:
    """An algorithm of a study, with step sizes of its own if it wants them."""

    algorithm: Algorithm
    lrs: Grid
    local_steps: tuple[int, ...]
    noise: float  # of the gradients it sees
    schedule: "ScheduleSpec | None"  # of its own, if it wants one


@dataclass(frozen=True, eq=False)
class Scenario:
    """A participation model of a study, with step sizes of its own likewise."""

    participation: Participation
    lrs: Grid


class ScheduleSpec(NamedTuple):
    """How steps follow the round, whatever their size."""

    make: Callable[..., Schedule]
    arguments: Mapping[str, Any]  # all but lr

    def at(self, lr: float) -> Schedule:
        """The schedule of one step size."""
        return self.make(lr=lr, **self.arguments)


class Sections(NamedTuple):
    """What makes the parts of a study out of its sections."""

    folder: Path | None  # of the study
    parts: dict[str, Part]  # of the user's own, as they are found

    def problem(self, table: dict[str, Any]) -> Problem:
        """What the algorithms are to minimise."""
        path = ("problem",)
        settings, make = self._settings(path, table, schema.PROBLEM, need_kind=True)
        more = self._beside(path, settings) if table["kind"] in PROBLEMS else {}
        return _check_type(path, build(path, make, settings, more), Problem)

    def private(self, table: dict[str, Any] | None, problem: Problem) -> Problem:
        """The problem, of which clients show no more than [privacy] says."""
        if table is None:
            return problem
        settings = validate(schema.privacy(), table, ("privacy",))
        return build(("privacy",), Private, settings, {"exact": problem})

    def compressor(self, path: Keys, table: dict[str, Any]) -> tuple[Compressor, list[str] | None]:
        """Return the compressor and the names of the algorithms that use it; None means all."""
        settings, make = self._settings(path, table, schema.COMPRESSION, need_kind=True)
        compressor = build(path, make, settings, self._inner(path, make, settings))
        if settings.algorithms == []:
            words = "compression.algorithms must name one at least, or be left out; got []."
            raise ConfigError((*path, "algorithms"), words)
        return _check_type(path, compressor, Compressor), settings.algorithms

    def _beside(self, path: Keys, settings: Any) -> dict[str, str]:
        """A file of data that the problem names: it lies beside the study, a part."""
        name = getattr(settings, "data", None)
        if not isinstance(name, str) or not name.endswith(".npz") or not self.folder:
            return {}
        try:
            self.parts[name] = part_of(self.folder / name, self.folder)
        except OSError as error:
            words = f"cannot read {self.folder / name}: {error.strerror}."
            raise ConfigError((*path, "data"), f"{named(path)}: {words}") from None
        return {"data": str(self.folder / name)}

    def schedule(self, path: Keys, table: Any, rounds: int) -> ScheduleSpec | None:
        """How steps follow the round, if they do; `rounds` are the study's."""
        if table is None:
            return None
        settings, make = self._settings(path, table, schema.SCHEDULE, need_kind=True)
        names = schema.parameters(make)
        if "lr" not in names:
            words = f"{named(path)}: {settings.kind} must take lr, the step size."
            raise ConfigError(path, words)
        arguments = _arguments(settings, names)
        if "rounds" in names:
            arguments.setdefault("rounds", rounds)
        example = build(path, make, settings, {**arguments, "lr": 1.0})
        with blame(path, f"{named(path)}, for a step of 1: "):
            if not callable(example):
                raise ValueError(f"it must make a function; got {shown(example)}.")
            tabled(example, rounds)
        return ScheduleSpec(make, arguments)

    def algorithm(self, path: Keys, table: dict[str, Any], rounds: int) -> AlgorithmSpec:
        """One of those that are compared."""
        settings, make = self._settings(path, table, schema.ALGORITHM)
        algorithm = build(path, make, settings, self._inner(path, make, settings))
        return AlgorithmSpec(
            _check_type(path, algorithm, Algorithm),
            grid((*path, "lr"), settings.lr),
            grid((*path, "local_steps"), settings.local_steps),
            settings.noise,
            self.schedule((*path, "schedule"), settings.schedule, rounds),
        )

    def _inner(self, path: Keys, make: Callable, settings: Any) -> dict[str, Any]:
        """The algorithms and compressors that one is made of, by its names for them."""
        parts = {}
        for name, parameter in schema.parameters(make).items():
            table, at = getattr(settings, name), (*path, name)
            section = schema.PARTS.get(parameter.annotation)
            if section is None or table is None:
                continue
            inner, make_inner = self._settings(at, table, section, need_kind=True)
            part = build(at, make_inner, inner, self._inner(at, make_inner, inner))
            parts[name] = _check_type(at, part, parameter.annotation)
        return parts

    def scenario(
        self, path: Keys, table: dict[str, Any], problem: Problem, latency: Any = None
    ) -> Scenario:
        """One of the participation models; by the study's clock, if it has one."""
        settings, make = self._settings(path, table, schema.SCENARIO)
        more = self._inner(path, make, settings)
        takes_latency = "latency" in schema.parameters(make) and settings.latency is None
        if latency is not None and takes_latency:
            more["latency"] = latency
        if settings.by_rarity is not None:
            name = "w" if settings.kind == "weighted" else "p"
            more[name] = _chances((*path, "by_rarity"), settings.by_rarity, problem)
        model = _check_type(path, build(path, make, settings, more), Participation)
        with blame(path, f"{named(path)}: "):
            if latency is not None and not isinstance(model, Timed):
                model = Sync(latency, among=model)
            model.check(problem.num_clients)
        return Scenario(model, grid((*path, "lr"), settings.lr))

    def _settings(
        self, path: Keys, table: Any, section: Section, need_kind: bool = False
    ) -> tuple[Any, Callable]:  # fmt: skip
        """Check a section by its kind, which may be its name if it says none."""
        if need_kind and "kind" not in table:
            known = ", ".join(sorted(section.registry))
            raise ConfigError(path, f"{named(path)} must name its kind: one of {known}.")
        kind = table.get("kind", path[-1])
        at = (*path, "kind") if "kind" in table else path
        if not isinstance(kind, str):
            raise ConfigError(at, unknown(f"kind in {named(path)}", kind, section.registry))
        with blame(at, f"{named(path)}: "):
            make, part = lookup(kind, section.registry, self.folder)
        if part:
            self.parts[kind] = part
        return validate(section.model(kind, make), table, path), make


def check_clocks(scenarios: Mapping[str, Scenario]) -> None:
    """Raise if seconds are simulated in some scenarios and not in others."""
    timed = {name: isinstance(each.participation, Timed) for name, each in scenarios.items()}
    if len({*timed.values()}) > 1:
        path = ("participation", next(name for name in timed if not timed[name]))
        words = "has no latency and others have; say [latency] for the whole study."
        raise ConfigError(path, f"{named(path)} {words}")


def _check_type(path: Keys, part: Any, wanted: type) -> Any:
    """Give what a section makes; raise unless it is of the wanted kind."""
    if not isinstance(part, wanted):
        words = f"a focusfl {wanted.__name__}; got {type(part).__name__}."
        raise ConfigError(path, f"{named(path)} must make {words}")
    return part


def named(path: Keys) -> str:
    """A section, as it stands in the file."""
    return f"[{'.'.join(path)}]"


def _chances(path: Keys, table: dict[str, Any], problem: Problem) -> Any:
    """Give chances that follow the data.

    The rarest client is the one that disagrees most with the optimum, or the one with
    the rarest classes where no optimum is known.
    """
    settings = validate(schema.chances_by_rarity(), table, path)
    scores, counts = problem.disagreement, problem.class_counts
    if scores is None and counts is not None:
        scores = rarity(counts)
    if scores is None:
        words = "a problem whose optimum is known exactly, or samples with labels y"
        raise ConfigError(path, f"{named(path)} needs {words}, whole numbers.")
    return build(path, partial(by_rarity, scores), settings)


def _arguments(settings: BaseModel, parameters: Collection[str]) -> dict[str, Any]:
    """What a section says of these parameters, by name."""
    return {k: getattr(settings, k) for k in settings.model_fields_set if k in parameters}


def build(path: Keys, make: Callable, settings: BaseModel, more: Mapping[str, Any] = {}) -> Any:
    """Call a constructor with what a section says of its parameters."""
    parameters = schema.parameters(make)
    arguments = {**_arguments(settings, parameters), **more}
    needed = [p.name for p in parameters.values() if p.default is p.empty]
    if missing := [name for name in needed if name not in arguments]:
        raise ConfigError(path, f"{named(path)} needs {', '.join(missing)}.")
    try:
        return make(**arguments)
    except (ValueError, TypeError) as error:
        raise ConfigError(path, f"{named(path)}: {error}") from None
    except Exception as error:
        if make.__module__.startswith("focusfl."):
            raise
        words = f"{type(error).__name__}: {' '.join(str(error).split())}"
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"({Path(at.filename).name}, line {at.lineno})"
        raise ConfigError(path, f"{named(path)}: {words} {where}") from error


def grid(path: Keys, value: Any) -> tuple:
    """One value or several different ones; empty if there is none."""
    if value is None:
        return ()
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values:
        raise ConfigError(path, f"{'.'.join(path)} must hold at least one value; got [].")
    if len(set(values)) < len(values):
        raise ConfigError(path, f"{'.'.join(path)} must not say a value twice; got {value}.")
    return values
