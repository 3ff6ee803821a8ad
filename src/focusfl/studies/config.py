"""A study as TOML, parsed once and strictly. Past here there are only dataclasses."""

import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from focusfl.core.metrics import eval_data_of, evaluate
from focusfl.core.validation import shown, unknown
from focusfl.problems import NotTranslated, Problem
from focusfl.simulation.spec import ClientState, OnEmpty, StepSize, check_per_client
from focusfl.simulation.step_sizes import Schedule
from focusfl.simulation.stop import Stop
from focusfl.studies import toml
from focusfl.studies.fit import check_auto, check_fit, coded, keep_codec
from focusfl.studies.kinds import Part
from focusfl.studies.schema import Models, SecureSums, Settings, Wrong, validate
from focusfl.studies.sections import (
    AlgorithmSpec,
    Grid,
    Scenario,
    ScheduleSpec,
    Sections,
    grid,
    made_of,
)
from focusfl.studies.toml import Source

STUDIES = Path(__file__).parent / "shipped"  # those that come with the package
LONGEST = 100  # letters of a name


@dataclass(frozen=True, eq=False)
class StudySpec:
    """Algorithms x participation models x step sizes x seeds on one problem."""

    name: str
    rounds: int
    lrs: Grid
    local_steps: tuple[int, ...]
    seeds: tuple[int, ...]
    eval_every: int
    per_client: bool
    on_empty: OnEmpty
    client_state: ClientState
    devices: int | None
    models: Models
    checkpoint_every: float | None  # seconds; None: runs keep no checkpoints
    schedule: ScheduleSpec | None
    stop: Stop
    problem: Problem
    participation: dict[str, Scenario]
    algorithms: dict[str, AlgorithmSpec]
    source: dict = field(repr=False)  # the parsed TOML, saved with the results
    secure: dict[str, Any] | None = None  # where it is deployed: of `Secure`
    folder: Path | None = None  # where it lies, and parts of the user's own beside it
    parts: dict[str, Part] = field(default_factory=dict)  # those, by their kind

    def step_sizes(self, scenario: str, name: str) -> Grid:
        """What an algorithm runs at: its own, else the scenario's, else everybody's."""
        return self.algorithms[name].lrs or self.participation[scenario].lrs or self.lrs

    def steps_of(self, name: str) -> tuple[int, ...]:
        """How many local steps an algorithm takes: its own number, or everybody's."""
        return self.algorithms[name].local_steps or self.local_steps

    def schedule_of(self, name: str) -> ScheduleSpec | None:
        """How an algorithm's steps follow the round: its own way, or everybody's."""
        return self.algorithms[name].schedule or self.schedule

    def lr_of(self, name: str, lr: float) -> float | Schedule:
        """One of an algorithm's step sizes as an engine takes it."""
        schedule = self.schedule_of(name)
        return schedule.at(lr) if schedule else lr

    def one(self, scenario: str, name: str) -> tuple[StepSize, int, int]:
        """Step size, local steps and seed, where only one of each can be used."""
        if self.schedule_of(name):
            raise ValueError(f"this takes a constant lr; {name} has a schedule.")
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
    path: Path,
    changes: Collection[str] = (),
    only: Collection[str] = (),
    scenarios: Collection[str] = (),
) -> StudySpec:
    """Read a study from a TOML file, to be simulated, with `key=value` changes on top.

    `only` names the algorithms to keep, and `scenarios` the participation models, if
    not all.
    """
    source = read(path, changes, only, scenarios)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotTranslated)  # the error says it
        return made(source, path.stem, simulated=True)


def read(
    path: Path,
    changes: Collection[str] = (),
    only: Collection[str] = (),
    scenarios: Collection[str] = (),
) -> Source:
    """Read what `load` reads, unchecked."""
    return changed(toml.read(path), changes, only, scenarios)


def changed(
    source: Source,
    changes: Collection[str] = (),
    only: Collection[str] = (),
    scenarios: Collection[str] = (),
) -> Source:
    """Change what was read as `load` does."""
    for change in changes:
        toml.change(source, change)
    _keep(source, "algorithms", "algorithm of this study", only)
    _keep(source, "participation", "participation of this study", scenarios)
    return source


def _keep(source: Source, section: str, what: str, only: Collection[str]) -> None:
    """Leave all tables of a section out but these, if any are named."""
    everybody = source.table.get(section)
    if only and isinstance(everybody, dict):
        for name in only:
            if name not in everybody:
                raise ValueError(unknown(what, name, everybody))
        source.table[section] = {name: everybody[name] for name in only}
        if section == "algorithms":
            keep_codec(source.table, only)


def made(source: Source, name: str, simulated: bool = False) -> StudySpec:
    """Turn what was read into a study; ValueError says where what is wrong."""
    try:
        study = _parsed(source, name, Path(source.where).parent)
        if simulated:
            _check_simulated(study)
        _check_targets(study)
        return study
    except Wrong as wrong:
        raise ValueError(source.place(wrong.path) + wrong.words) from None


def parse(source: dict, name: str, folder: Path | None = None, known: bool = False) -> StudySpec:
    """Turn parsed TOML into a study; ValueError says which key is wrong and why.

    Parts of the user's own are looked for in the folder. Of a study that is `known` to
    fit it is not asked again whether it does, which may take seconds.
    """
    return _parsed(Source(source, name, {}, {}), name, folder, known)


def _parsed(source: Source, name: str, folder: Path | None, known: bool = False) -> StudySpec:
    table, sections = source.table, Sections(folder, {})
    said: Settings = validate(Settings, table, ())
    if said.seed is not None and said.seeds is not None:
        raise Wrong(("seeds",), "the study has both seed and seeds; leave one out.")
    for section in ("participation", "algorithms"):
        for key in getattr(said, section):
            _check_key(section, key)
    problem = sections.private(said.privacy, sections.problem(said.problem))
    seeds = said.seeds if said.seeds is not None else [said.seed or 0]
    algorithms = {
        key: sections.algorithm(("algorithms", key), own, said.rounds)
        for key, own in said.algorithms.items()
    }
    secure = said.secure
    if secure is not None:
        secure = validate(SecureSums, secure, ("secure",)).model_dump()
    study = StudySpec(
        name=_named(said.name if "name" in table else name),
        rounds=said.rounds,
        lrs=grid(("lr",), said.lr),
        local_steps=grid(("local_steps",), said.local_steps),
        seeds=tuple(range(seeds)) if isinstance(seeds, int)
        else grid(("seeds",), seeds),
        eval_every=said.eval_every,
        per_client=said.per_client,
        on_empty=said.on_empty,
        client_state=said.client_state,
        devices=said.devices,
        models=said.models,
        checkpoint_every=said.checkpoint_every,
        schedule=sections.schedule(("schedule",), said.schedule, said.rounds),
        stop=made_of(("stop",), Stop, said.stop),
        problem=problem,
        participation={
            key: sections.scenario(("participation", key), own, problem, said.latency)
            for key, own in said.participation.items()
        },
        algorithms=coded(sections, said.compression, algorithms, problem),
        secure=secure,
        source=table,
        folder=folder,
        parts=sections.parts,
    )  # fmt: skip
    if not known:
        check_fit(study.algorithms, problem, study.local_steps)
    check_auto(study)
    sections.check_clocks(study.participation)
    if study.per_client:
        try:
            check_per_client(problem)
        except ValueError as error:
            raise Wrong(("per_client",), str(error)) from None
    return study


def _named(name: str) -> str:
    """A name that a folder can have."""
    fit = name.isprintable() and not {"/", "\\"} & {*name} and name.strip(". ")
    if not fit or len(name) > LONGEST:
        rule = f"at most {LONGEST} letters without slashes or control characters"
        words = f"name must be {rule}, as it names a folder; got {shown(name)}."
        raise Wrong(("name",), words)
    return name


def _check_key(section: str, key: str) -> None:
    """Raise unless a table's name can stand in a table, a file's name and a log."""
    if not key.isprintable() or not key.strip() or len(key) > LONGEST:
        rule = f"at most {LONGEST} letters without control characters"
        words = f"a name in [{section}] must be {rule}; got {shown(key)}."
        raise Wrong((section, key), words)


def _check_simulated(study: StudySpec) -> None:
    """Raise if the simulator cannot run the problem, or its runs cannot be judged."""
    if why := getattr(study.problem, "why_not", ""):
        words = f"[problem]: {why}, which runs of a study need; ff.loop runs it."
        raise Wrong(("problem",), words)
    if study.secure is not None:
        words = "deploy local` alone: a simulation has no server that sees pushes"
        raise Wrong(("secure",), f"[secure] is for `focusfl {words}. Leave it out.")
    known = _metrics(study)
    if not {"distance", "grad_norm", "loss"} & {*known}:
        words = "[problem] must measure a loss, a grad_norm or a distance"
        raise Wrong(("problem",), f"{words}; got {', '.join(known) or 'none'}.")


def _check_targets(study: StudySpec) -> None:
    """Raise if a run is to stop by a metric that the problem does not have, or if
    nobody knows which client such a metric is worst of.

    Only where a study is read to be run: its sites in a deployment have no jax.
    """
    stop = study.stop
    targets = any((stop.tolerance, stop.accuracy, stop.below, stop.above))
    if not targets and not study.per_client:
        return
    known = _metrics(study)
    try:
        stop.targets(dict.fromkeys(known, 1.0))
    except ValueError as error:
        raise Wrong(("stop",), f"[stop]: {error}") from None


def _metrics(study: StudySpec) -> list[str]:
    """The names of what a model is evaluated by; raise if nobody knows which client
    one of them is worst of."""
    import jax

    problem = study.problem
    with jax.enable_x64(problem.dtype == "float64"):
        try:
            found = jax.eval_shape(
                partial(evaluate, problem.objective, study.per_client), problem.x0,
                eval_data_of(problem, study.per_client),
            )  # fmt: skip
        except ValueError as error:
            if not study.per_client:
                raise
            raise Wrong(("per_client",), str(error)) from None
    return list(found)
