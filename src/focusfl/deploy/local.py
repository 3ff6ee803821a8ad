"""An app on real processes of this machine, from beginning to end."""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from focusfl.deploy import apps, status
from focusfl.deploy.chaos import Chaos
from focusfl.deploy.driver import Driver, Watch
from focusfl.deploy.fleet import Fleet
from focusfl.deploy.study import Deployed
from focusfl.engines.wire import Site, tracking_gap

PARTS = ("app", "flwr", "keys", "logs", "server", "sites")  # of a folder: all ours
FILES = ("superlink.db", "superlink.db-shm", "superlink.db-wal", status.FILE)


class Outcome(NamedTuple):
    """What a deployment has come to."""

    masks: np.ndarray  # (rounds, sites): who was counted when; what `Replay` takes
    late: int  # answers counted in a later round than they were asked in
    metrics: dict[str, float]  # of the last model
    epochs: int
    seconds: float
    x: Any = None  # the last model of a study
    gap: float | None = None  # between what it tracks and what its sites remember


def local_app(
    app: Path, folder: Path, watch: Watch, *, chaos: Chaos, tls: bool = False,
    warm: bool = False,
) -> Outcome:  # fmt: skip
    """Run an app on a SuperLink, a superexec and a SuperNode per site.

    Everything that was started is stopped at the end, whatever the end is.
    """
    if chaos.loses:
        raise ValueError("replies can be lost in a study alone; an app can be killed.")
    settings = apps.settings(app)
    needed = {"job": str, "sites": str, "rounds": int, "folder": str}
    for name, kind in needed.items():
        if not isinstance(settings.get(name), kind):
            raise ValueError(
                f"[tool.flwr.app.config] of {app} must have {name}; "
                f"got {settings.get(name)!r}."
            )
    fleet = prepare(folder, settings["sites"].split(), tls, warm)
    # Flower sends all Python, TOML and JSON under an app, and this may well be there.
    rest = shutil.ignore_patterns("keys", "runs", ".*", "__pycache__", folder.name)
    app = Path(shutil.copytree(app, fleet.folder / "app", ignore=rest))
    return _run(fleet, app, settings["job"], settings["rounds"], chaos, watch)


def local_study(
    deployed: Deployed, folder: Path, watch: Watch, *, chaos: Chaos, tls: bool = False,
    warm: bool = False, settings: Mapping[str, Any] | None = None,
) -> Outcome:  # fmt: skip
    """Run a study likewise; `settings` are those of a Job."""
    study = deployed.study
    fleet = prepare(folder, deployed.sites, tls, warm)
    more = {**(settings or {}), "folder": "", "chaos": chaos.spec}
    app = apps.write_study(deployed, fleet.folder / "app", more)
    outcome = _run(fleet, app, study.name, study.rounds, chaos, watch)
    with deployed.job(fleet.folder / "server").hub() as hub:
        algorithm, sites = deployed.algorithm, hub.applied.items()
        memories = [
            Site(algorithm, fleet.state(site), study.name, site).memory(seq)
            for site, seq in sites
            if seq
        ]
        try:
            gap = tracking_gap(hub.server, memories, hub.num_clients)
        except ValueError:  # an algorithm that tracks nothing
            gap = None
        return outcome._replace(x=hub.x, gap=gap)


def prepare(folder: Path, sites: Sequence[str], tls: bool, warm: bool) -> Fleet:
    """Remove what an earlier run has left in a folder; raise if it still runs."""
    running = [line.name for line in status.look(folder) if line.alive]
    if running:
        raise ValueError(f"{folder} is in use: {', '.join(running)} still run.")
    for name in PARTS:
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    return Fleet(folder, sites, tls=tls, warm=warm)


def _run(
    fleet: Fleet, app: Path, job: str, rounds: int, chaos: Chaos, watch: Watch
) -> Outcome:
    began, server = time.monotonic(), fleet.folder / "server"
    plan = chaos.plan(rounds, len(fleet.sites))
    config = {"folder": str(server)}
    with fleet:
        events = Driver(fleet, app, config, server / job, plan, watch).drive()
    masks, late = np.zeros((rounds, len(fleet.sites)), bool), 0
    for event in events:
        if event["event"] == "round":
            counted = [fleet.sites.index(site) for site in event["counted"]]
            masks[event["round"]] = np.isin(np.arange(len(fleet.sites)), counted)
            late += len(event["late"])
    known = {"event", "round", "online"}
    metrics = {k: v for k, v in events[-1].items() if k not in known}
    epochs = max(event["epoch"] for event in events if event["event"] == "open")
    return Outcome(masks, late, metrics, epochs, time.monotonic() - began)
