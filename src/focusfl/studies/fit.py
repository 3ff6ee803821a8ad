"""Whether the parts of a study fit each other, and how its messages are sent."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from focusfl.algorithms import Compressed, Focus
from focusfl.algorithms.compressed import coded_in
from focusfl.core.validation import unknown
from focusfl.privacy import Private
from focusfl.problems import Problem
from focusfl.studies.schema import Wrong
from focusfl.studies.sections import AlgorithmSpec, Grid, Sections, named
from focusfl.theory.auto import has_trials
from focusfl.theory.constants import exact

if TYPE_CHECKING:
    from focusfl.studies.config import StudySpec

SECTION = ("compression",)


def keep_codec(table: dict[str, Any], names: Collection[str]) -> None:
    """Let [compression] speak of these algorithms alone, where it names some; the others
    have been left out of the study."""
    compressor = table.get("compression")
    wanted = compressor.get("algorithms") if isinstance(compressor, dict) else None
    if isinstance(compressor, dict) and isinstance(wanted, list):
        left = [name for name in wanted if name in names]
        table["compression"] = {**compressor, "algorithms": left}
        if not left:
            del table["compression"]


def coded(
    sections: Sections,
    table: dict[str, Any] | None,
    algorithms: Mapping[str, AlgorithmSpec],
    problem: Problem,
) -> dict[str, AlgorithmSpec]:
    """The algorithms, of which those that [compression] names, or all that have no compressor of
    their own, send by it; raise if it does not fit what they send."""
    found = dict(algorithms)
    if table is None:
        return found
    compressor, wanted = sections.compressor(SECTION, table)
    for name in wanted or ():
        at = (*SECTION, "algorithms")
        if name not in found:
            raise Wrong(at, unknown("algorithm in [compression]", name, found))
        if coded_in(found[name].algorithm):
            words = f"[compression] names {name}, which has a compressor of its own"
            raise Wrong(at, f"{words}; leave one of the two out.")
    plain = [name for name in found if not coded_in(found[name].algorithm)]
    if not plain:
        words = "every algorithm of this study has one of its own"
        raise Wrong(SECTION, f"[compression] codes nothing: {words}. Leave it out.")
    for name in wanted or plain:
        try:
            whole = Compressed(found[name].algorithm, compressor)
            whole.init(problem.x0)
        except ValueError as error:
            raise Wrong(SECTION, f"[compression], for [algorithms.{name}]: {error}") from None
        found[name] = replace(found[name], algorithm=whole)
    return found


def check_fit(algorithms: Mapping[str, AlgorithmSpec], problem: Problem, steps: Grid) -> None:
    """Raise if an algorithm sends in a way that does not fit the model, or costs more
    than the privacy that there is."""
    for name, spec in algorithms.items():
        if isinstance(problem, Private):
            _check_private(name, spec, problem, steps)
        if spec.algorithm.elementwise:
            path = ("algorithms", name)
            try:
                spec.algorithm.init(problem.x0)
            except ValueError as error:
                raise Wrong(path, f"{named(path)}: {error}") from None


def _check_private(name: str, spec: AlgorithmSpec, problem: Private, steps: Grid) -> None:
    """Raise if not all that an algorithm does is counted, or fits the budget."""
    if spec.noise > 0:
        path = ("algorithms", name, "noise")
        words = "cannot stand beside [privacy], whose noise is counted."
        raise Wrong(path, f"{'.'.join(path)} {words}")
    if problem.budget is not None:
        try:
            for count in spec.local_steps or steps:
                problem.visits(int(count), int(spec.algorithm.starts_warm))
        except ValueError as error:
            words = f"[privacy], for [algorithms.{name}]: {error}"
            raise Wrong(("privacy", "budget"), words) from None


def check_auto(study: "StudySpec") -> None:
    """Raise if a step size is to be chosen where nobody knows how."""
    known = "L" in dir(exact(study.problem))  # not asked for: that may take long
    for scenario, own in study.participation.items():
        for name, spec in study.algorithms.items():
            ours = isinstance(spec.algorithm, Focus)
            if "auto" not in study.step_sizes(scenario, name):
                continue
            if study.schedule_of(name):
                at = ("algorithms", name) if spec.schedule else ()
                words = "is one step for all rounds; with a schedule give a number."
                raise Wrong((*at, "schedule"), f'lr = "auto" {words}')
            if ours and known or has_trials(study.problem):
                continue
            above = (
                (("algorithms", name), spec.lrs),
                (("participation", scenario), own.lrs),
            )
            path = next(((*path, "lr") for path, lrs in above if lrs), ("lr",))
            why = f"is for FOCUS alone; [algorithms.{name}] needs numbers of its own"
            if coded_in(spec.algorithm):
                why = f"knows of no compressor; [algorithms.{name}], coded, needs numbers"
            elif ours:
                kind = type(study.problem).__name__
                why = f"needs a problem with a known smoothness L; {kind} has none"
            raise Wrong(
                path,
                f'lr = "auto" {why}. Several are tried side by side: '
                "lr = [1e-3, 1e-2]; focusfl tune finds one.",
            )
