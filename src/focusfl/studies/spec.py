"""A study as TOML, parsed once and strictly. Past here there are only dataclasses."""

import warnings
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from focusfl.algorithms import Compressed, Focus
from focusfl.algorithms.compressed import coded_in
from focusfl.core.metrics import eval_data_of, evaluate
from focusfl.core.validation import shown, unknown
from focusfl.privacy import Private
from focusfl.problems import NotTranslated, Problem
from focusfl.simulation.callbacks import Stop
from focusfl.simulation.spec import ClientState, OnEmpty, check_per_client
from focusfl.simulation.step_sizes import Schedule
from focusfl.studies import toml
from focusfl.studies.parts import Part
from focusfl.studies.schema import ConfigError, Models, SecureSums, Settings, blame, validate
from focusfl.studies.sections import (
    AlgorithmSpec,
    Grid,
    Scenario,
    ScheduleSpec,
    Sections,
    build,
    check_clocks,
    grid,
)
from focusfl.studies.toml import Source
from focusfl.theory.auto import has_trials
from focusfl.theory.constants import exact

STUDIES = Path(__file__).parent / "shipped"  # those that come with the package
MAX_NAME = 100  # letters
COMPRESSION = ("compression",)
AS_WRITTEN = (  # settings that a StudySpec has as they stand in the file
    "name", "rounds", "eval_every", "per_client", "on_empty", "client_state", "devices", "models",
    "checkpoint_every",
)  # fmt: skip


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


def load(
    path: Path,
    changes: Collection[str] = (),
    only: Collection[str] = (),
    scenarios: Collection[str] = (),
) -> StudySpec:
    """Read a study from a TOML file, to be simulated.

    Args:
        path: of the file.
        changes: settings that replace those of the file, as `key=value`.
        only: names of the algorithms to keep; all if empty.
        scenarios: names of the participation models to keep; all if empty.

    Raises:
        ValueError: If a setting is wrong; it names the line of the file.
    """
    source = changed(toml.read(path), changes, only, scenarios)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotTranslated)  # the error says it
        return build_study(source, path.stem, simulated=True)


def changed(
    source: Source,
    changes: Collection[str] = (),
    only: Collection[str] = (),
    scenarios: Collection[str] = (),
) -> Source:
    """Apply to a file that was read what `load` takes beside its path; nothing is checked."""
    for change in changes:
        toml.change(source, change)
    _keep(source, "algorithms", "algorithm of this study", only)
    _keep(source, "participation", "participation of this study", scenarios)
    return source


def _keep(source: Source, section: str, what: str, only: Collection[str]) -> None:
    """Leave all tables of a section out but these, if any are named."""
    tables = source.table.get(section)
    if only and isinstance(tables, dict):
        for name in only:
            if name not in tables:
                raise ValueError(unknown(what, name, tables))
        source.table[section] = {name: tables[name] for name in only}
        if section == "algorithms":
            keep_compression(source.table, only)


def build_study(source: Source, name: str, simulated: bool = False) -> StudySpec:
    """Turn what was read into a study; a ValueError names the line of the file and the fault."""
    try:
        study = _parsed(source, name, Path(source.where).parent)
        if simulated:
            _check_simulated(study)
        _check_targets(study)
        return study
    except ConfigError as wrong:
        raise ValueError(source.place(wrong.path) + wrong.words) from None


def parse(source: dict, name: str, folder: Path | None = None, known: bool = False) -> StudySpec:
    """Turn parsed TOML into a study; ValueError says which key is wrong and why.

    Parts of the user's own are looked for in the folder. Of a study that is `known` to
    fit it is not asked again whether it does, which may take seconds.
    """
    return _parsed(Source(source, name, {}, {}), name, folder, known)


def _parsed(source: Source, name: str, folder: Path | None, known: bool = False) -> StudySpec:
    table, sections = source.table, Sections(folder, {})
    settings: Settings = validate(Settings, {"name": name, **table}, ())
    if settings.seed is not None and settings.seeds is not None:
        raise ConfigError(("seeds",), "the study has both seed and seeds; leave one out.")
    _check_study_name(settings.name)
    for section in ("participation", "algorithms"):
        for key in getattr(settings, section):
            _check_key(section, key)
    problem = sections.private(settings.privacy, sections.problem(settings.problem))
    seeds = settings.seeds if settings.seeds is not None else [settings.seed or 0]
    algorithms = {
        key: sections.algorithm(("algorithms", key), section, settings.rounds)
        for key, section in settings.algorithms.items()
    }
    secure = settings.secure
    if secure is not None:
        secure = validate(SecureSums, secure, ("secure",)).model_dump()
    study = StudySpec(
        **{key: getattr(settings, key) for key in AS_WRITTEN},
        lrs=grid(("lr",), settings.lr),
        local_steps=grid(("local_steps",), settings.local_steps),
        seeds=tuple(range(seeds)) if isinstance(seeds, int) else grid(("seeds",), seeds),
        schedule=sections.schedule(("schedule",), settings.schedule, settings.rounds),
        stop=build(("stop",), Stop, settings.stop),
        problem=problem,
        participation={
            key: sections.scenario(("participation", key), section, problem, settings.latency)
            for key, section in settings.participation.items()
        },
        algorithms=_compress(sections, settings.compression, algorithms, problem),
        secure=secure,
        source=table,
        folder=folder,
        parts=sections.parts,
    )
    if not known:
        _check_fit(study.algorithms, problem, study.local_steps)
    _check_auto(study)
    check_clocks(study.participation)
    if study.per_client:
        with blame(("per_client",)):
            check_per_client(problem)
    return study


def _check_study_name(name: str) -> None:
    """Raise unless a folder can have this name."""
    fits = name.isprintable() and not {"/", "\\"} & {*name} and name.strip(". ")
    if not fits or len(name) > MAX_NAME:
        rule = f"at most {MAX_NAME} letters without slashes or control characters"
        words = f"name must be {rule}, as it names a folder; got {shown(name)}."
        raise ConfigError(("name",), words)


def _check_key(section: str, key: str) -> None:
    """Raise unless a table's name can stand in a table, a file's name and a log."""
    if not key.isprintable() or not key.strip() or len(key) > MAX_NAME:
        rule = f"at most {MAX_NAME} letters without control characters"
        words = f"a name in [{section}] must be {rule}; got {shown(key)}."
        raise ConfigError((section, key), words)


def _check_simulated(study: StudySpec) -> None:
    """Raise if the simulator cannot run the problem, or its runs cannot be judged."""
    if why := getattr(study.problem, "why_not", ""):
        words = f"[problem]: {why}, which runs of a study need; ff.loop runs it."
        raise ConfigError(("problem",), words)
    if study.secure is not None:
        words = "deploy local` alone: a simulation has no server that sees pushes"
        raise ConfigError(("secure",), f"[secure] is for `focusfl {words}. Leave it out.")
    known = _metrics(study)
    if not {"distance", "grad_norm", "loss"} & {*known}:
        words = "[problem] must measure a loss, a grad_norm or a distance"
        raise ConfigError(("problem",), f"{words}; got {', '.join(known) or 'none'}.")


def _check_targets(study: StudySpec) -> None:
    """Raise if a run is to stop by a metric that the problem does not have, or if
    nobody knows which client such a metric is worst of.

    Only where a study is read to be run: its sites in a deployment have no jax.
    """
    stop = study.stop
    if not any((stop.tolerance, stop.accuracy, stop.below, stop.above, study.per_client)):
        return
    metrics = _metrics(study)
    with blame(("stop",), "[stop]: "):
        stop.targets(dict.fromkeys(metrics, 1.0))


def _metrics(study: StudySpec) -> list[str]:
    """The names of what a model is evaluated by; raise if nobody knows which client
    one of them is worst of."""
    import jax

    problem = study.problem
    blame_per_client = blame(("per_client",)) if study.per_client else nullcontext()
    with jax.enable_x64(problem.dtype == "float64"), blame_per_client:
        metrics = jax.eval_shape(
            partial(evaluate, problem.objective, study.per_client), problem.x0,
            eval_data_of(problem, study.per_client),
        )  # fmt: skip
    return list(metrics)


def keep_compression(table: dict[str, Any], names: Collection[str]) -> None:
    """Let [compression] name only these algorithms; the others have left the study."""
    compression = table.get("compression")
    if isinstance(compression, dict) and isinstance(compression.get("algorithms"), list):
        left = [name for name in compression["algorithms"] if name in names]
        table["compression"] = {**compression, "algorithms": left}
        if not left:
            del table["compression"]


def _compress(
    sections: Sections,
    table: dict[str, Any] | None,
    algorithms: Mapping[str, AlgorithmSpec],
    problem: Problem,
) -> dict[str, AlgorithmSpec]:
    """Wrap the algorithms that [compression] names in `Compressed`; if it names none, all that
    have no compressor. Raise ConfigError if it does not fit what they send."""
    coded = dict(algorithms)
    if table is None:
        return coded
    compressor, wanted = sections.compressor(COMPRESSION, table)
    for name in wanted or ():
        at = (*COMPRESSION, "algorithms")
        if name not in coded:
            raise ConfigError(at, unknown("algorithm in [compression]", name, coded))
        if coded_in(coded[name].algorithm):
            words = f"[compression] names {name}, which has a compressor of its own"
            raise ConfigError(at, f"{words}; leave one of the two out.")
    plain = [name for name in coded if not coded_in(coded[name].algorithm)]
    if not plain:
        words = "every algorithm of this study has one of its own"
        raise ConfigError(COMPRESSION, f"[compression] codes nothing: {words}. Leave it out.")
    for name in wanted or plain:
        with blame(COMPRESSION, f"[compression], for [algorithms.{name}]: "):
            whole = Compressed(coded[name].algorithm, compressor)
            whole.init(problem.x0)
        coded[name] = replace(coded[name], algorithm=whole)
    return coded


def _check_fit(algorithms: Mapping[str, AlgorithmSpec], problem: Problem, steps: Grid) -> None:
    """Raise if an algorithm sends in a way that does not fit the model, or costs more
    than the privacy that there is."""
    for name, spec in algorithms.items():
        if isinstance(problem, Private):
            _check_private(name, spec, problem, steps)
        if spec.algorithm.elementwise:
            with blame(("algorithms", name), f"[algorithms.{name}]: "):
                spec.algorithm.init(problem.x0)


def _check_private(name: str, spec: AlgorithmSpec, problem: Private, steps: Grid) -> None:
    """Raise if not all that an algorithm does is counted, or fits the budget."""
    if spec.noise > 0:
        path = ("algorithms", name, "noise")
        words = "cannot stand beside [privacy], whose noise is counted."
        raise ConfigError(path, f"{'.'.join(path)} {words}")
    if problem.budget is not None:
        with blame(("privacy", "budget"), f"[privacy], for [algorithms.{name}]: "):
            for count in spec.local_steps or steps:
                problem.visits(int(count), int(spec.algorithm.starts_warm))


def _check_auto(study: StudySpec) -> None:
    """Raise if a step size is to be chosen where nobody knows how."""
    known = "L" in dir(exact(study.problem))  # not asked for: that may take long
    for scenario, name in product(study.participation, study.algorithms):
        section = study.algorithms[name]
        if "auto" not in study.step_sizes(scenario, name):
            continue
        if study.schedule_of(name):
            at = ("algorithms", name) if section.schedule else ()
            words = "is one step for all rounds; with a schedule give a number."
            raise ConfigError((*at, "schedule"), f'lr = "auto" {words}')
        focus = isinstance(section.algorithm, Focus)
        if focus and known or has_trials(study.problem):
            continue
        why = f"is for FOCUS alone; [algorithms.{name}] needs numbers of its own"
        if coded_in(section.algorithm):
            why = f"knows of no compressor; [algorithms.{name}], coded, needs numbers"
        elif focus:
            kind = type(study.problem).__name__
            why = f"needs a problem with a known smoothness L; {kind} has none"
        path = (
            ("algorithms", name, "lr") if section.lrs
            else ("participation", scenario, "lr") if study.participation[scenario].lrs
            else ("lr",)
        )  # fmt: skip
        raise ConfigError(
            path,
            f'lr = "auto" {why}. Several are tried side by side: '
            "lr = [1e-3, 1e-2]; focusfl tune finds one.",
        )
