"""The paper's experiments, run again: the algorithms as they are, and as published."""

from collections.abc import Iterator

import numpy as np

from focusfl.core.validation import unknown
from focusfl.studies.config import STUDIES, Study
from focusfl.studies.results import Run
from focusfl.studies.study import RunName, Watch, expected, make_run, side_by_side
from focusfl.studies.summary import summarise
from focusfl.theory.prediction import predict

NAMES = ("ridge", "ridge-public-code", "quadratics", "cifar10")
FIGURE = ("full", "uniform", "weighted")  # the scenarios of the paper's figure
GRID = 2.0 ** np.arange(-4, 4.5, 0.5)  # step sizes tried, times that of the study


def path(name: str):
    """Where the study of an experiment is."""
    if name not in NAMES:
        raise ValueError(unknown("experiment", name, NAMES))
    return STUDIES / f"{name}.toml"


def tuned(study: Study, watch: Watch | None = None) -> Iterator[Run]:
    """Run every algorithm at the best step of a grid, in the figure's scenarios."""
    from focusfl.simulation.api import sweep

    def one(where: tuple[str, str]) -> Run:
        scenario, name = where
        lr, local_steps, seed = study.one(scenario, name)
        if isinstance(lr, str):
            raise ValueError(f"a step size to tune around must be a number; got {lr!r}.")
        algorithm = study.algorithms[name].algorithm
        law = study.participation[scenario].participation
        results = sweep(
            algorithm,
            study.problem,
            law,
            lrs=(lr * GRID).tolist(),
            rounds=study.rounds,
            local_steps=local_steps,
            seed=seed,
            on_divergence="ignore",  # a step that breaks is not the best
            progress=watch(scenario, name) if watch else None,
        )
        best = min(results, key=lambda one: summarise(one).merit(study.rounds))
        theory = predict(algorithm, study.problem, law, lr=best.lr, local_steps=local_steps)
        weight = study.problem.total_weight
        ahead = expected(theory, study.problem)
        summary = summarise(best, ahead, total_weight=weight)
        called = RunName(scenario, name, local_steps, seed)
        return make_run(called, best, summary, theory, weight)

    return side_by_side(one, fair(study))


def fair(study: Study) -> list[tuple[str, str]]:
    """The runs to tune: those of the figure, as they are, with exact gradients."""
    return [
        (scenario, name)
        for scenario in study.participation
        for name in study.algorithms
        if scenario in FIGURE
        and not study.source["algorithms"][name].get("as_published")
        and not study.algorithms[name].noise
    ]
