"""A study as TOML, parsed once and strictly. Past here there are only dataclasses."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from focusfl.algorithms import Focus
from focusfl.checks import shown, unknown
from focusfl.engines.served import check_served, eval_data_of, evaluate
from focusfl.engines.spec import ClientState, Metrics, OnEmpty, StepSize
from focusfl.engines.stop import Stop
from focusfl.experiment import toml
from focusfl.experiment.kinds import Part
from focusfl.experiment.schema import Models, Settings, Wrong, validate
from focusfl.experiment.sections import (
    AlgorithmSpec,
    Grid,
    Scenario,
    Sections,
    grid,
    made_of,
)
from focusfl.experiment.toml import Source
from focusfl.problems import Problem

STUDIES = Path(__file__).parent / "studies"  # those that come with the package
LONGEST = 100  # letters of a name


@dataclass(frozen=True, eq=False)
class Study:
    """Algorithms x participation models x step sizes x seeds on one problem."""

    name: str
    rounds: int
    lrs: Grid
    local_steps: tuple[int, ...]
    seeds: tuple[int, ...]
    every: int
    metrics: Metrics
    on_empty: OnEmpty
    client_state: ClientState
    devices: int | None
    models: Models
    stop: Stop
    problem: Problem
    participation: dict[str, Scenario]
    algorithms: dict[str, AlgorithmSpec]
    source: dict = field(repr=False)  # the parsed TOML, saved with the results
    folder: Path | None = None  # where it lies, and parts of the user's own beside it
    parts: dict[str, Part] = field(default_factory=dict)  # those, by their kind

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
        study = _parsed(source, name, Path(source.where).parent)
        _check_targets(study)
        return study
    except Wrong as wrong:
        raise ValueError(source.place(wrong.path) + wrong.words) from None


def parse(source: dict, name: str, folder: Path | None = None) -> Study:
    """Turn parsed TOML into a study; ValueError says which key is wrong and why.

    Parts of the user's own are looked for in the folder.
    """
    return _parsed(Source(source, name, {}, {}), name, folder)


def _parsed(source: Source, name: str, folder: Path | None) -> Study:
    table, sections = source.table, Sections(folder, {})
    said: Settings = validate(Settings, table, ())
    if said.seed is not None and said.seeds is not None:
        raise Wrong(("seeds",), "the study has both seed and seeds; leave one out.")
    problem = sections.problem(said.problem)
    seeds = said.seeds if said.seeds is not None else [said.seed or 0]
    study = Study(
        name=_named(said.name if "name" in table else name),
        rounds=said.rounds,
        lrs=grid(("lr",), said.lr),
        local_steps=grid(("local_steps",), said.local_steps),
        seeds=tuple(range(seeds)) if isinstance(seeds, int)
        else grid(("seeds",), seeds),
        every=said.every,
        metrics=said.metrics,
        on_empty=said.on_empty,
        client_state=said.client_state,
        devices=said.devices,
        models=said.models,
        stop=made_of(("stop",), Stop, said.stop),
        problem=problem,
        participation={
            key: sections.scenario(("participation", key), own, problem)
            for key, own in said.participation.items()
        },
        algorithms={
            key: sections.algorithm(("algorithms", key), own)
            for key, own in said.algorithms.items()
        },
        source=table,
        folder=folder,
        parts=sections.parts,
    )  # fmt: skip
    _check_auto(study)
    if study.metrics == "per_client":
        try:
            check_served(problem)
        except ValueError as error:
            raise Wrong(("metrics",), str(error)) from None
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


def _check_targets(study: Study) -> None:
    """Raise if a run is to stop by a metric that the problem does not have, or if
    nobody knows which client such a metric is worst of.

    Only where a study is read to be run: its sites in a deployment have no jax.
    """
    stop, problem = study.stop, study.problem
    targets = any((stop.tolerance, stop.accuracy, stop.below, stop.above))
    if not targets and study.metrics == "mean":
        return
    import jax

    with jax.enable_x64(problem.dtype == "float64"):
        try:
            known = jax.eval_shape(
                partial(evaluate, problem.objective, study.metrics), problem.x0,
                eval_data_of(problem, study.metrics),
            )  # fmt: skip
        except ValueError as error:
            if study.metrics == "mean":
                raise
            raise Wrong(("metrics",), str(error)) from None
    try:
        stop.targets(dict.fromkeys(known, 1.0))
    except ValueError as error:
        raise Wrong(("stop",), f"[stop]: {error}") from None
