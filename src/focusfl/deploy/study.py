"""A study as a Flower app: each client of its problem is a site, of its algorithms one runs."""

import inspect
import json
import shutil
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from focusfl.algorithms.compressed import Compressed, coded_in
from focusfl.compression import FixedPoint
from focusfl.core import Algorithm
from focusfl.core.metrics import eval_data_of, evaluate
from focusfl.core.validation import check_count
from focusfl.deploy import SCENARIO
from focusfl.flower.protocol.settings import check_name
from focusfl.participation import Full
from focusfl.privacy import Private
from focusfl.privacy.budgets import check_one_gradient
from focusfl.problems import PROBLEMS, Noisy, Problem
from focusfl.simulation.spec import choose_lr
from focusfl.simulation.step_sizes import in_words
from focusfl.studies import spec, toml
from focusfl.studies.spec import keep_compression
from focusfl.studies.toml import Source

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    from focusfl.flower import Job
    from focusfl.flower.secure import Secure


FILE = "study.json"  # beside the apps: the study, and nothing to choose in it
MAX_CLIENTS = 256  # clients on one machine
SECURE_BITS = 50, 44  # bits of a number in a secure sum, and of these behind the point


class Deployed(NamedTuple):
    """What is deployed of a study: one algorithm at one step size and seed."""

    study: spec.StudySpec
    name: str  # of the algorithm
    algorithm: Algorithm
    problem: Problem
    lr: float
    why_lr: str | None  # how it was chosen, where it was not given
    local_steps: int
    seed: int
    secure: "Secure | None" = None  # sums alone are learned

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(f"site-{i}" for i in range(self.problem.num_clients))

    @property
    def weights(self) -> dict[str, float] | None:
        """How much each site counts; None: all alike."""
        weights = self.problem.weights
        return None if weights is None else dict(zip(self.sites, map(float, weights), strict=True))

    def __str__(self) -> str:
        lr = in_words(self.study.lr_of(self.name, self.lr)) or f"{self.lr:.3g}"
        return (
            f"{self.name} of {self.study.name} on {len(self.sites)} SuperNodes, "
            f"{self.study.rounds} rounds, lr {lr}, {self.local_steps} local "
            f"steps, seed {self.seed}; whoever is online takes part"
        )

    def job(self, folder: str | Path) -> "Job":
        """Make the job of the server app; `folder` is for the server's state."""
        from focusfl.flower import Job

        study, problem = self.study, self.problem
        return Job(
            self.algorithm, problem.x0, self.sites, study.rounds,
            study.lr_of(self.name, self.lr), folder,
            job=study.name, local_steps=self.local_steps,
            on_empty=study.on_empty, weights=self.weights, secure=self.secure,
            evaluate=partial(
                evaluate, problem.objective, study.per_client,
                eval_data=eval_data_of(problem, study.per_client),
            ),
            about={
                "algorithm": self.name, "seed": self.seed, "study": self.source,
                "problem": study.source["problem"]["kind"], "why_lr": self.why_lr,
                "lr": self.lr, "noisy": problem.objective.stochastic,
            },
        )  # fmt: skip

    @property
    def source(self) -> dict[str, Any]:
        """The study as TOML would have it, with one algorithm, step size and seed."""
        table = {**self.study.source}
        table.pop("seeds", None)
        keep_compression(table, [self.name])
        algorithm = {**table["algorithms"][self.name]}
        for name in ("lr", "local_steps"):
            algorithm.pop(name, None)
        return {
            **table, "name": self.study.name, "lr": self.lr, "seed": self.seed,
            "local_steps": self.local_steps, "algorithms": {self.name: algorithm},
            "participation": {SCENARIO: {"kind": "full"}},
        }  # fmt: skip


def load(
    path: Path, changes: Collection[str], algorithm: str | None, clients: int | None,
    secure: int | None = None,
) -> Deployed:  # fmt: skip
    """Read a study from TOML, to be deployed.

    Whoever is online takes part: of the study's participation models only the step
    size of the first counts, and of its seeds the first.

    Args:
        path: of the TOML file.
        changes: settings that replace those of the file, as KEY=VALUE.
        algorithm: which of the study's; None: the first.
        clients: how many the problem has; None: as the study says.
        secure: sites at least that a secure sum has; None: as the study says.

    Raises:
        ValueError: If a setting is wrong, or there are too many clients.
    """
    source = spec.changed(toml.read(path), changes, [algorithm] if algorithm else [])
    if clients is not None:
        check_count("--clients", clients)
        _check_fits(clients)  # before their data are made
        _set_clients(source, clients)
    source.table.pop("latency", None)  # how long a reply takes is found out
    _set_participation(source.table)
    if secure is not None:
        options = source.table.get("secure")
        options = options if isinstance(options, dict) else {}
        source.table["secure"] = {**options, "minimum": secure}
    study = spec.build_study(source, path.stem)
    _check_fits(study.problem.num_clients)
    try:
        check_name("name", study.name)
    except ValueError as error:
        raise ValueError(f"{error} Choose one with --set name=NAME.") from None
    deployed = _deployed(study)
    if isinstance(study.problem, Private):
        check_one_gradient(deployed.algorithm, study.problem.x0)
    return deployed


def _check_fits(clients: int) -> None:
    if clients > MAX_CLIENTS:
        raise ValueError(
            f"--clients must be at most {MAX_CLIENTS}: every one is a process of this machine, "
            f"of some 200 MB; got {clients}."
        )


def _set_clients(source: Source, clients: int) -> None:
    """Set the number of clients; ValueError if this problem cannot have so many."""
    problem = source.table.get("problem")
    kind = problem.get("kind") if isinstance(problem, dict) else None
    if not isinstance(problem, dict) or kind not in PROBLEMS:
        return  # whoever reads the study says what is wrong with it
    if "num_clients" in inspect.signature(PROBLEMS[kind]).parameters:
        problem["num_clients"] = clients
        return
    count = spec.build_study(source, "study").problem.num_clients
    if clients != count:
        raise ValueError(
            f"--clients must be {count}, or left out: {kind} has as many clients as "
            f"its data; got {clients}."
        )


def _set_participation(table: dict[str, Any]) -> None:
    """Replace the study's participation models by that of a deployment."""
    scenarios = table.get("participation")
    first = next(iter(scenarios.values()), None) if isinstance(scenarios, dict) else None
    if isinstance(first, dict):
        lr = {"lr": first["lr"]} if "lr" in first else {}
        table["participation"] = {SCENARIO: {"kind": "full", **lr}}


def read(path: Path) -> Deployed:
    """Read a study that `write` wrote for the apps."""
    source = json.loads(path.read_text())
    return _deployed(spec.parse(source, source["name"], path.parent, True))


def write(deployed: Deployed, path: Path) -> None:
    """Write a study for both apps, and beside it the files of parts that are the user's."""
    path.write_text(json.dumps(deployed.source, indent=2))
    study = deployed.study
    for part in study.parts.values():
        if part.beside and study.folder:
            (path.parent / part.file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(study.folder / part.file, path.parent / part.file)


def _deployed(study: spec.StudySpec) -> Deployed:
    """Choose the first algorithm of a study, its only step size and the first seed."""
    name, spec = next(iter(study.algorithms.items()))
    algorithm, problem, secure = spec.algorithm, study.problem, None
    if spec.noise > 0:
        problem = Noisy(problem, spec.noise)
    steps = _only("local_steps", study.steps_of(name), name)
    step_size = _only("lr", study.step_sizes(SCENARIO, name), name)
    lr, why = choose_lr(step_size, algorithm, problem, Full(), steps)
    if study.secure is not None:
        from focusfl.flower.secure import Secure

        algorithm, secure = _in_whole_numbers(algorithm), Secure(**study.secure)
    return Deployed(study, name, algorithm, problem, lr, why, steps, study.seeds[0], secure)


def _in_whole_numbers(algorithm: Algorithm) -> Algorithm:
    """Give an algorithm without a compressor one that sends multiples of 2^-44, as secure
    sums are of whole numbers; ValueError if it has another compressor."""
    if coded_in(algorithm) is None:
        return Compressed(algorithm, FixedPoint(*SECURE_BITS))
    if isinstance(algorithm, Compressed) and isinstance(algorithm.compressor, FixedPoint):
        return algorithm
    raise ValueError(
        "secure sums are of whole numbers: the compressor must be of kind "
        f'"fixed_point", around all else, or left out; got {algorithm!r}.'
    )


def _only(what: str, choices: tuple, name: str) -> Any:
    """Give the only value of a setting; ValueError if the study has several."""
    if len(choices) > 1:
        raise ValueError(
            f"a deployment takes one {what}; {name} has {len(choices)} in this study. "
            f"Choose one with --set algorithms.{name}.{what}={choices[0]}."
        )
    return choices[0]


def study_server(folder: Path) -> "ServerApp":
    """Make the server app of the study in a folder."""
    from focusfl.flower import server_app

    deployed = read(folder / FILE)
    return server_app(lambda context: deployed.job(str(context.run_config["folder"])))


def study_client(folder: Path) -> "ClientApp":
    """Make the client app of the study in a folder."""
    from focusfl.flower import client_app

    deployed = read(folder / FILE)
    return client_app(
        deployed.problem, deployed.algorithm, seed=deployed.seed, secure=deployed.secure
    )
