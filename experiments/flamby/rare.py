"""The row nobody has: the first hospital is online in 5 % of the rounds.

Twenty times the rounds of the tables, so that it comes about as often as it did there.
Every method has the client's step of one grid whose loss in training is the lowest, by
the mean over seeds; what it has on its server is as published.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flamby.cells import kept
from flamby.federations import UPDATES, Federation, federations
from flamby.methods import STRATEGIES, judged
from flamby.problem import TableOfBatches, Together
from flamby.published import POOLED, SEEDS, published, tests

from focusfl.algorithms import MIFA, Focus
from focusfl.core import Algorithm
from focusfl.data.places import Place
from focusfl.participation import Bernoulli, Full, Participation
from focusfl.simulation.api import sweep
from focusfl.simulation.spec import Options

RARE = 0  # which hospital: the largest of both federations
ONLINE = 0.05  # of the rounds
LONGER = 20
STEPS = tuple(float(f"{10 ** (k / 2):.3g}") for k in range(-10, -1))  # 1e-5 to 0.1
EVERYBODY = "Scaffold, everybody there"  # to compare with


class Line(NamedTuple):
    """One method at its best step: means over seeds."""

    federation: str
    method: str
    lr: float
    edge: bool  # whether that is the first or the last of those that bear it
    loss: float  # in training
    rare: float  # accuracy or concordance: on patients of the hospital that is rare
    pooled: float  # on all patients held out


def lines(names: Sequence[str], folder: Path, data_dir: Place = None) -> Iterator[Line]:
    """Train all methods with a hospital that is rarely there, or read what is kept."""
    for one in federations(names, data_dir):
        rows = {row.method: row for row in published(one, SEEDS[0], data_dir)}
        lacking = [name for name in STRATEGIES if name not in rows]
        if lacking:
            raise ValueError(
                f"the published table of {one.name} must have {lacking[0]}, whose "
                f"steps are taken from it; it has {', '.join(rows)}."
            )
        methods = {name: make(rows[name]) for name, make in STRATEGIES.items()}
        methods |= {"MIFA": MIFA(), "FOCUS": Focus(memory="last")}
        methods |= {"FOCUS, mean memory": Focus(memory="mean")}
        methods[EVERYBODY] = methods["Scaffold"]
        problems = cache(lambda seed, one=one: _problem(one, seed))
        for method, algorithm in methods.items():
            p = [ONLINE if i == RARE else 1.0 for i in range(len(one.train))]
            law = Full() if method == EVERYBODY else Bernoulli(p)

            def train(algorithm=algorithm, law=law, one=one, problems=problems):
                return [_swept(one, algorithm, law, problems(seed), seed) for seed in SEEDS]

            settings = repr(algorithm), p, LONGER, STEPS, SEEDS
            word = method.lower().replace(",", "").replace(" ", "-")
            found = kept(folder / "rare", f"{one.name}-{word}", one, settings, train)
            yield best(one.name, method, np.array(found, float))


def best(name: str, method: str, found: np.ndarray) -> Line:
    """The step of the lowest loss, of results (seeds, steps, three measures); a step
    at which some seed has none does not count."""
    means = found.mean(0)
    at = int(np.argmin(np.where(np.isfinite(means[:, 0]), means[:, 0], np.inf)))
    if not np.isfinite(means[at]).all():
        raise ValueError(f"{method} must end at some step of {STEPS}; all diverged.")
    bear = np.flatnonzero(np.isfinite(means[:, 0]))
    return Line(name, method, STEPS[at], at in (bear[0], bear[-1]), *means[at].tolist())


def _problem(one: Federation, seed: int) -> TableOfBatches:
    """All hospitals with batches for every round that they might come to; they count
    by their patients, and all together as many as they are: FOCUS moves by that."""
    visits = [range(len(one.train))] * (LONGER * one.rounds)
    return replace(Together(one, seed).next(visits), unit=True)


def _swept(
    one: Federation, algorithm: Algorithm, law: Participation,
    problem: TableOfBatches, seed: int,
) -> list[list[float | None]]:  # fmt: skip
    """At every step: loss in training, the rare hospital's measure and all patients';
    nothing where it diverged."""
    rounds = LONGER * one.rounds
    runs = sweep(
        algorithm, problem, law, rounds=rounds, lrs=STEPS, local_steps=UPDATES,
        seed=seed, eval_every=rounds, options=Options(on_divergence="ignore"),
    )  # fmt: skip
    found: list[list[float | None]] = []
    for run in runs:
        if run.diverged_at is not None:
            found.append([None] * 3)
            continue
        values = judged(one, np.asarray(run.x))
        loss = float(run.metrics["loss"][-1])
        found.append([loss, values[tests(one)[RARE]], values[POOLED]])
    return found
