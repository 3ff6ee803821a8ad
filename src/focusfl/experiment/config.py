"""A study as TOML, parsed once and strictly. Past here there are only dataclasses."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from focusfl.algorithms import ALGORITHMS, Focus
from focusfl.algorithms.as_published import AS_PUBLISHED
from focusfl.checks import shown, unknown
from focusfl.core import Algorithm
from focusfl.engines.spec import ClientState, OnEmpty, StepSize
from focusfl.engines.stop import Stop
from focusfl.experiment import schema, toml
from focusfl.experiment.schema import Models, Settings, Wrong, validate
from focusfl.experiment.toml import Path_, Source
from focusfl.participation import PARTICIPATION, Participation, by_rarity
from focusfl.problems import PROBLEMS, Problem

STUDIES = Path(__file__).parent / "studies"  # those that come with the package
LONGEST = 100  # letters of a name

Grid = tuple[StepSize, ...]


@dataclass(frozen=True)
class AlgorithmSpec:
    """An algorithm of a study, with step sizes of its own if it wants them."""

    algorithm: Algorithm
    lrs: Grid
    local_steps: tuple[int, ...]
    noise: float  # of the gradients it sees


@dataclass(frozen=True, eq=False)
class Scenario:
    """A participation model of a study, with step sizes of its own likewise."""

    participation: Participation
    lrs: Grid


@dataclass(frozen=True, eq=False)
class Study:
    """Algorithms x participation models x step sizes x seeds on one problem."""

    name: str
    rounds: int
    lrs: Grid
    local_steps: tuple[int, ...]
    seeds: tuple[int, ...]
    every: int
    on_empty: OnEmpty
    client_state: ClientState
    devices: int | None
    models: Models
    stop: Stop
    problem: Problem
    participation: dict[str, Scenario]
    algorithms: dict[str, AlgorithmSpec]
    source: dict = field(repr=False)  # the parsed TOML, saved with the results

    def step_sizes(self, scenario: str, name: str) -> Grid:
        """What an algorithm runs at: its own, else the scenario's, else everybody's."""
        return self.algorithms[name].lrs or self.participation[scenario].lrs or self.lrs

    def steps_of(self, name: str) -> tuple[int, ...]:
        """How many local steps an algorithm takes: its own number, or everybody's."""
        return self.algorithms[name].local_steps or self.local_steps

    def one(self, scenario: str, name: str) -> tuple[StepSize, int, int]:
        """Step size, local steps and seed, where only one of each can be used."""
        found = []
        for what, choices in (
            ("lr", self.step_sizes(scenario, name)),
            ("local_steps", self.steps_of(name)),
            ("seed", self.seeds),
        ):
            if len(choices) > 1:
                raise ValueError(
                    f"this takes one {what}; the study has {len(choices)}. Choose one "
                    f"with --set {what}={choices[0]}."
                )
            found.append(choices[0])
        return tuple(found)  # type: ignore[return-value]


def load(
    path: Path, changes: Collection[str] = (), only: Collection[str] = ()
) -> Study:
    """Read a study from a TOML file, with `key=value` changes on top.

    `only` names the algorithms to keep, if not all.
    """
    return made(read(path, changes, only), path.stem)


def read(
    path: Path, changes: Collection[str] = (), only: Collection[str] = ()
) -> Source:
    """Read what `load` reads, unchecked."""
    source = toml.read(path)
    for change in changes:
        toml.change(source, change)
    everybody = source.table.get("algorithms")
    if only and isinstance(everybody, dict):
        for name in only:
            if name not in everybody:
                raise ValueError(unknown("algorithm of this study", name, everybody))
        source.table["algorithms"] = {name: everybody[name] for name in only}
    return source


def made(source: Source, name: str) -> Study:
    """Turn what was read into a study; ValueError says where what is wrong."""
    try:
        study = _parsed(source, name)
        _check_targets(study)
        return study
    except Wrong as wrong:
        raise ValueError(source.place(wrong.path) + wrong.words) from None


def parse(source: dict, name: str) -> Study:
    """Turn parsed TOML into a study; ValueError says which key is wrong and why."""
    return _parsed(Source(source, name, {}, {}), name)


def _parsed(source: Source, name: str) -> Study:
    table = source.table
    said: Settings = validate(Settings, table, ())
    if said.seed is not None and said.seeds is not None:
        raise Wrong(("seeds",), "the study has both seed and seeds; leave one out.")
    problem = _problem(said.problem)
    seeds = said.seeds if said.seeds is not None else [said.seed or 0]
    study = Study(
        name=_named(said.name if "name" in table else name),
        rounds=said.rounds,
        lrs=_grid(("lr",), said.lr),
        local_steps=_grid(("local_steps",), said.local_steps),
        seeds=tuple(range(seeds)) if isinstance(seeds, int)
        else _grid(("seeds",), seeds),
        every=said.every,
        on_empty=said.on_empty,
        client_state=said.client_state,
        devices=said.devices,
        models=said.models,
        stop=_made(("stop",), Stop, said.stop),
        problem=problem,
        participation={
            key: _scenario(("participation", key), own, problem)
            for key, own in said.participation.items()
        },
        algorithms={
            key: _algorithm(("algorithms", key), own)
            for key, own in said.algorithms.items()
        },
        source=table,
    )  # fmt: skip
    _check_auto(study)
    return study


def _named(name: str) -> str:
    """A name that a folder can have."""
    fit = name.isprintable() and not {"/", "\\"} & {*name} and name.strip(". ")
    if not fit or len(name) > LONGEST:
        rule = f"at most {LONGEST} letters without slashes or control characters"
        words = f"name must be {rule}, as it names a folder; got {shown(name)}."
        raise Wrong(("name",), words)
    return name


def _check_auto(study: Study) -> None:
    """Raise if a step size is to be chosen for an algorithm other than FOCUS."""
    for scenario, own in study.participation.items():
        for name, spec in study.algorithms.items():
            known = isinstance(spec.algorithm, Focus)
            if known or "auto" not in study.step_sizes(scenario, name):
                continue
            above = (
                (("algorithms", name), spec.lrs),
                (("participation", scenario), own.lrs),
            )
            path = next(((*path, "lr") for path, lrs in above if lrs), ("lr",))
            raise Wrong(
                path,
                f'lr = "auto" is for FOCUS alone; [algorithms.{name}] needs numbers of '
                "its own. Several are tried side by side: lr = [1e-3, 1e-2].",
            )


def _problem(table: dict[str, Any]) -> Problem:
    path = ("problem",)
    if "kind" not in table:
        known = ", ".join(sorted(PROBLEMS))
        raise Wrong(path, f"[problem] must name its kind: one of {known}.")
    said = _said(path, table, PROBLEMS, schema.problem)
    return _made(path, PROBLEMS[said.kind], said)


def _check_targets(study: Study) -> None:
    """Raise if a run is to stop by a metric that the problem does not have.

    Only where a study is read to be run: its sites in a deployment have no jax.
    """
    stop, problem = study.stop, study.problem
    if any((stop.tolerance, stop.accuracy, stop.below, stop.above)):
        import jax

        with jax.enable_x64(problem.dtype == "float64"):
            known = jax.eval_shape(
                problem.objective.evaluate, problem.x0, problem.eval_data
            )
        try:
            stop.targets(dict.fromkeys(known, 1.0))
        except ValueError as error:
            raise Wrong(("stop",), f"[stop]: {error}") from None


def _algorithm(path: Path_, table: dict[str, Any]) -> AlgorithmSpec:
    published = table.get("as_published") is True
    kinds: Mapping[str, Callable] = AS_PUBLISHED if published else ALGORITHMS
    model = partial(schema.algorithm, as_published=published)
    said = _said(path, table, kinds, model)
    return AlgorithmSpec(
        _made(path, kinds[said.kind], said),
        _grid((*path, "lr"), said.lr),
        _grid((*path, "local_steps"), said.local_steps),
        said.noise,
    )


def _scenario(path: Path_, table: dict[str, Any], problem: Problem) -> Scenario:
    said = _said(path, table, PARTICIPATION, schema.scenario)
    made_by, more = PARTICIPATION[said.kind], {}
    if said.by_rarity is not None:
        name = "w" if said.kind == "weighted" else "p"
        more[name] = _chances((*path, "by_rarity"), said.by_rarity, problem)
    law = _made(path, made_by, said, more)
    try:
        law.check(problem.num_clients)
    except ValueError as error:
        raise Wrong(path, f"[{'.'.join(path)}]: {error}") from None
    return Scenario(law, _grid((*path, "lr"), said.lr))


def _chances(path: Path_, table: dict[str, Any], problem: Problem) -> Any:
    """Chances that follow the data: who disagrees most with the optimum is rarest."""
    said = validate(schema.rarity(), table, path)
    scores = problem.disagreement
    if scores is None:
        words = f"[{'.'.join(path)}] needs a problem whose optimum is known exactly."
        raise Wrong(path, words)
    return _made(path, partial(by_rarity, scores), said)


def _said(path: Path_, table: Any, kinds: Mapping[str, Any], model: Any) -> Any:
    """Check a section by the model of its kind, which is its name if it says none."""
    kind = table.get("kind", path[-1])
    if not isinstance(kind, str) or kind not in kinds:
        at = (*path, "kind") if "kind" in table else path
        raise Wrong(at, unknown(f"kind in [{'.'.join(path)}]", kind, kinds))
    return validate(model(kind), table, path)


def _made(
    path: Path_, made_by: Callable, said: BaseModel, more: Mapping[str, Any] = {}
) -> Any:
    """Call a constructor with what a section says of its parameters."""
    import inspect

    parameters = inspect.signature(made_by).parameters
    given = {k: getattr(said, k) for k in said.model_fields_set if k in parameters}
    given |= more
    needed = [p.name for p in parameters.values() if p.default is p.empty]
    where = f"[{'.'.join(path)}]"
    if missing := [name for name in needed if name not in given]:
        raise Wrong(path, f"{where} needs {', '.join(missing)}.")
    try:
        return made_by(**given)
    except (ValueError, TypeError) as error:
        raise Wrong(path, f"{where}: {error}") from None


def _grid(path: Path_, value: Any) -> tuple:
    """One value or several different ones; nothing if nothing was said."""
    if value is None:
        return ()
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values:
        raise Wrong(path, f"{'.'.join(path)} must hold at least one value; got [].")
    if len(set(values)) < len(values):
        raise Wrong(path, f"{'.'.join(path)} must not say a value twice; got {value}.")
    return values
