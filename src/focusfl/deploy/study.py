"""A study as a Flower app: its problem dealt out to sites, its first algorithm."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from focusfl.core import Algorithm
from focusfl.engines.run import choose_lr
from focusfl.experiment import config
from focusfl.participation import Full
from focusfl.problems import Noisy, Problem

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

    from focusfl.engines.flower import Job


FILE = "study.json"  # beside the apps: the study, and nothing to choose in it


class Deployed(NamedTuple):
    """What of a study is deployed."""

    study: config.Study
    name: str  # of the algorithm
    algorithm: Algorithm
    problem: Problem
    lr: float
    local_steps: int
    seed: int

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(f"site-{i}" for i in range(self.problem.num_clients))

    def job(
        self, folder: str | Path, wrap: "Callable[[Grid], Grid] | None" = None
    ) -> "Job":
        """The training, as its server app needs it."""
        from focusfl.engines.flower import Job

        study, objective, held = self.study, self.problem.objective, self.problem.held
        return Job(
            self.algorithm, self.problem.x0, self.sites, study.rounds, self.lr, folder,
            job=study.name, local_steps=self.local_steps,
            on_empty=study.on_empty,
            evaluate=lambda x: objective.evaluate(x, held), wrap=wrap,
        )  # fmt: skip


def load(
    path: Path, changes: Collection[str], algorithm: str | None, clients: int | None
) -> Deployed:
    """Read a study from TOML, for so many clients."""
    only = [algorithm] if algorithm else []
    study = config.load(path, changes, only)
    if clients is not None and study.problem.num_clients != clients:
        changes = [*changes, f"problem.num_clients={clients}"]
        study = config.load(path, changes, only)
    return _deployed(study)


def read(path: Path) -> Deployed:
    """Read what `write` wrote."""
    source = json.loads(path.read_text())
    return _deployed(config.parse(source, name=source["name"]))


def write(deployed: Deployed, path: Path) -> None:
    """Write a study down for both apps, with its step size a number."""
    study, name = deployed.study, deployed.name
    own = ("lr", "local_steps")
    one = {k: v for k, v in study.source["algorithms"][name].items() if k not in own}
    changes: dict[str, Any] = {
        "name": study.name, "lr": deployed.lr, "local_steps": deployed.local_steps,
    }  # fmt: skip
    source = {**study.source, **changes, "algorithms": {name: one}}
    path.write_text(json.dumps(source, indent=2))


def _deployed(study: config.Study) -> Deployed:
    name, contender = next(iter(study.algorithms.items()))
    problem = study.problem
    if contender.noise > 0:
        problem = Noisy(problem, contender.noise)
    algorithm = contender.algorithm
    lr, local_steps, seed = study.one(next(iter(study.participation)), name)
    number, _ = choose_lr(lr, algorithm, problem, Full(), local_steps)
    return Deployed(study, name, algorithm, problem, number, local_steps, seed)


def study_server(folder: Path) -> "ServerApp":
    """Make the server app of the study in a folder."""
    from focusfl.deploy.chaos import parse
    from focusfl.deploy.lossy import Lossy
    from focusfl.engines.flower import server_app

    def job(context: "Context") -> "Job":
        chaos = parse(str(context.run_config["chaos"]))
        wrap = (lambda grid: Lossy(grid, chaos)) if chaos.loses else None
        return read(folder / FILE).job(str(context.run_config["folder"]), wrap)

    return server_app(job)


def study_client(folder: Path) -> "ClientApp":
    """Make the client app of the study in a folder."""
    from focusfl.engines.flower import client_app

    mine = read(folder / FILE)
    return client_app(mine.problem, mine.algorithm, seed=mine.seed)
