"""A study as TOML, parsed once and strictly. Past here there are only dataclasses."""

import inspect
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from focusfl.algorithms import ALGORITHMS
from focusfl.algorithms.as_published import AS_PUBLISHED
from focusfl.checks import unknown
from focusfl.core import Algorithm
from focusfl.engines.run import StepSize
from focusfl.participation import PARTICIPATION, Participation, by_rarity
from focusfl.problems import PROBLEMS, Problem

SIMPLE = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


STUDIES = Path(__file__).parent / "studies"  # those that come with the package


@dataclass(frozen=True)
class Contender:
    """An algorithm of a study, with a step size of its own if it wants one."""

    algorithm: Algorithm
    lr: StepSize | None
    noise: float  # of the gradients it sees


@dataclass(frozen=True, eq=False)
class Scene:
    """A participation model of a study, with a step size of its own likewise."""

    participation: Participation
    lr: StepSize | None


@dataclass(frozen=True, eq=False)
class Study:
    """Algorithms x participation models on one problem."""

    name: str
    rounds: int
    lr: StepSize
    local_steps: int
    seed: int
    on_empty: str
    problem: Problem
    participation: dict[str, Scene]
    algorithms: dict[str, Contender]
    source: dict = field(repr=False)  # the parsed TOML, saved with the results

    def step_size(self, scene: str, name: str) -> StepSize:
        """What an algorithm runs at: its own, else the scene's, else everybody's."""
        own = self.algorithms[name].lr, self.participation[scene].lr, self.lr
        return next(lr for lr in own if lr is not None)


def load(
    path: Path, changes: Collection[str] = (), only: Collection[str] = ()
) -> Study:
    """Read a study from a TOML file, with `key=value` changes on top.

    `only` names the algorithms to keep, if not all.
    """
    try:
        source = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ValueError(f"cannot read {path}: {reason}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}.") from None
    for change in changes:
        _set(source, change)
    if only:
        everybody = _table("algorithms", source.get("algorithms", {}))
        for name in only:
            if name not in everybody:
                raise ValueError(unknown("algorithm of this study", name, everybody))
        source["algorithms"] = {name: everybody[name] for name in only}
    return parse(source, name=path.stem)


def parse(source: dict, name: str) -> Study:
    """Turn parsed TOML into a study; ValueError says which key is wrong and why."""
    defaults = {"name": name, "seed": 0, "local_steps": 1, "on_empty": "skip"}
    sections = {"problem", "participation", "algorithms"}
    plain = {key: value for key, value in source.items() if key not in sections}
    settings = {**defaults, **plain}
    known = {f.name for f in fields(Study)} - {"source"}
    _known("the study", source, known)
    _present("the study", {**settings, **source}, ["rounds", "lr", *sorted(sections)])
    for key, kind in {
        "name": str, "rounds": int, "lr": float, "local_steps": int, "seed": int,
        "on_empty": str,
    }.items():  # fmt: skip
        if (key, settings[key]) != ("lr", "auto"):
            _typed(key, settings[key], kind)
    problem = _build("problem", source["problem"], PROBLEMS)
    return Study(
        **settings,
        problem=problem,
        participation={
            key: _scene(f"participation.{key}", table, key, problem)
            for key, table in _tables("participation", source).items()
        },
        algorithms={
            key: _contender(f"algorithms.{key}", table, key)
            for key, table in _tables("algorithms", source).items()
        },
        source=source,
    )


def _contender(where: str, table: Any, name: str) -> Contender:
    table, lr = _own_lr(where, table)
    published, noise = table.pop("as_published", False), table.pop("noise", 0.0)
    _typed(f"{where}.as_published", published, bool)
    _typed(f"{where}.noise", noise, float)
    kinds = AS_PUBLISHED if published else ALGORITHMS
    return Contender(_build(where, table, kinds, name), lr, float(noise))


def _scene(where: str, table: Any, name: str, problem: Problem) -> Scene:
    table, lr = _own_lr(where, table)
    if "by_rarity" in table:
        chances = _chances(f"{where}.by_rarity", table.pop("by_rarity"), problem)
        table["w" if table.get("kind", name) == "weighted" else "p"] = chances
    return Scene(_build(where, table, PARTICIPATION, name), lr)


def _chances(where: str, table: Any, problem: Problem) -> Any:
    """Chances that follow the data: who disagrees most with the optimum is rarest."""
    scores = problem.unusual
    if scores is None:
        raise ValueError(f"[{where}] needs a problem whose optimum is known exactly.")
    return _build(where, table, {"by_rarity": partial(by_rarity, scores)}, "by_rarity")


def _own_lr(where: str, table: Any) -> tuple[dict, StepSize | None]:
    table = dict(_table(where, table))
    lr = table.pop("lr", None)
    if lr not in (None, "auto"):
        _typed(f"{where}.lr", lr, float)
    return table, lr


def _build(
    where: str, table: Any, kinds: Mapping[str, Callable], name: str | None = None
) -> Any:
    """Call what `kind` names, by default the section's name, with the other keys."""
    options = dict(_table(where, table))
    kind = options.pop("kind", name)
    if kind is None:
        raise ValueError(f"[{where}] must name its kind: one of {_list(kinds)}.")
    if kind not in kinds:
        raise ValueError(unknown(f"kind in [{where}]", kind, kinds))
    parameters = inspect.signature(kinds[kind]).parameters
    _known(f"[{where}]", options, {*parameters, "kind"})
    _present(
        f"[{where}]",
        options,
        [p.name for p in parameters.values() if p.default is p.empty],
    )
    for key, value in options.items():
        _typed(f"{where}.{key}", value, parameters[key].annotation)
    try:
        return kinds[kind](**options)
    except (ValueError, TypeError) as error:
        raise ValueError(f"[{where}]: {error}") from None


def _known(where: str, table: Mapping, known: Collection[str]) -> None:
    for key in table:
        if key not in known:
            raise ValueError(unknown(f"key in {where}", key, known))


def _present(where: str, table: Mapping, needed: Collection[str]) -> None:
    missing = [key for key in needed if key not in table]
    if missing:
        raise ValueError(f"{where} needs {_list(missing)}.")


def _typed(key: str, value: Any, kind: Any) -> None:
    if kind not in SIMPLE:
        return
    fits = (int, float) if kind is float else kind
    if not isinstance(value, fits) or (kind is not bool and isinstance(value, bool)):
        raise ValueError(f"{key} must be {SIMPLE[kind]}; got {value!r}.")


def _tables(section: str, source: Mapping) -> Mapping:
    tables = _table(section, source[section])
    if not tables:
        raise ValueError(f"[{section}] must hold at least one table; it is empty.")
    return tables


def _table(where: str, value: Any) -> Mapping:
    if not isinstance(value, dict):
        raise ValueError(f"[{where}] must be a table; got {value!r}.")
    return value


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names))


def _set(source: dict, change: str) -> None:
    """Apply `a.b=value`; the value is TOML, or else text."""
    path, equals, text = change.partition("=")
    if not equals or not all(path.split(".")):
        raise ValueError(f"--set takes key=value; got {change!r}.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *tables, key = path.strip().split(".")
    for name in tables:
        source = source.setdefault(name, {})
        if not isinstance(source, dict):
            raise ValueError(f"--set {path}: {name!r} is a value, not a table.")
    source[key] = value
