"""An app on real processes of this machine, from beginning to end."""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from focusfl.core import CannotForget, tree
from focusfl.deploy import apps, ownership, record
from focusfl.deploy.driver import SERVER, Driver, Watch
from focusfl.deploy.fleet import Fleet
from focusfl.deploy.record import FOR_OTHERS, MODEL
from focusfl.deploy.study import Deployed
from focusfl.flower.events import metrics
from focusfl.flower.protocol import ProtocolServer
from focusfl.flower.protocol.limits import norm
from focusfl.studies import store

PARTS = ("app", "flwr", "keys", "logs", "server", "sites")  # of a folder: all ours
RESULTS = (store.MANIFEST, store.CURVES, store.PARTICIPATION, MODEL, FOR_OTHERS)
DRAWN = ("index.html", "figure.png")  # by the command line, of the results
FILES = (
    "superlink.db", "superlink.db-shm", "superlink.db-wal", ownership.PROCESSES, *RESULTS,
    *DRAWN,
)  # fmt: skip


class Outcome(NamedTuple):
    """What a deployment has come to."""

    masks: np.ndarray  # (rounds, sites): who was counted when; what `Replay` takes
    late: int  # answers counted in a later round than they were asked in
    metrics: dict[str, float]  # of the last model
    counted: dict[str, int]  # in how many rounds, by site
    of: str  # whose gradient `grad_norm` is
    warnings: list[str]
    generations: int
    seconds: float
    x: Any = None  # the last model of a study
    gap: float | None = None  # between what it tracks and what its sites remember
    why: Sequence[str] = ()  # this is no healthy end; nothing: it is one


def local_app(app: Path, folder: Path, watch: Watch, *, tls: bool = False) -> Outcome | None:
    """Run an app on a SuperLink, a superexec and a SuperNode per site.

    Everything that was started is stopped at the end, whatever the end is. Give None
    for an app that ended well and wrote nothing to the `folder` of its settings.
    """
    settings = apps.settings_with_job(app)
    fleet = prepare(folder, settings["sites"].split(), tls)
    # Flower sends all Python, TOML and JSON under an app, and this may well be there.
    rest = shutil.ignore_patterns("keys", "runs", ".*", "__pycache__", folder.name)
    app = Path(shutil.copytree(app, fleet.folder / "app", ignore=rest))
    known = {name: settings[name] for name in apps.OF_JOB if name in settings}
    apps.add_settings(app, {"folder": "", **known})
    driver = Driver(fleet, app, _config(fleet, app), watch)
    outcome, _ = _run(fleet, driver, wait=True)
    for name in RESULTS if outcome else ():
        shutil.copy(driver.place / name, fleet.folder)
    return outcome


def local_study(
    deployed: Deployed, folder: Path, watch: Watch, *, tls: bool = False,
    settings: Mapping[str, Any] | None = None, driver: type[Driver] = Driver,
) -> Outcome:  # fmt: skip
    """Run a study likewise; `settings` are those of a Job."""
    settings = settings or {}
    deployed.job("").configured(settings)  # raises before it is begun
    fleet = prepare(folder, deployed.sites, tls)
    app = apps.write_study(deployed, fleet.folder / "app", {**settings, "folder": "", "keys": ""})
    watch({"event": "start", "why": str(deployed)})
    outcome, events = _run(fleet, driver(fleet, app, _config(fleet, app), watch))
    assert outcome is not None  # a study writes
    job = deployed.job(fleet.folder / SERVER).configured(settings)
    with job.open_protocol() as protocol:
        states = protocol.states() if deployed.secure is None else []
        record.keep(
            job, protocol.x, events, fleet.folder, server=protocol.server,
            clients=_stack([state for _, state in states]),
            weights=[weight for weight, _ in states] if job.weights else None,
        )  # fmt: skip
        return outcome._replace(x=protocol.x, gap=_gap(protocol, states))


def _gap(protocol: ProtocolServer, states: list[tuple[float, Any]]) -> float | None:
    """How far what the server tracks is from its sites' states; None: unknown."""
    server = protocol.server
    try:
        expected = protocol.algorithm.recompute(server, states)
    except CannotForget:
        return None
    return norm(tree.sub(server, expected)) if states else None


def _stack(states: list[Any]) -> Any:
    """Everybody's state as one tree; None if there is none."""
    if not states:
        return None
    return tree.map(lambda *leaves: np.stack(leaves), *states)


def prepare(folder: Path, sites: Sequence[str], tls: bool) -> Fleet:
    """Remove what an earlier run has left in a folder; raise if it is not ours."""
    ownership.claim(folder)
    for name in PARTS:
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    return Fleet(folder, sites, tls=tls)


def _config(fleet: Fleet, app: Path) -> dict[str, str]:
    """The settings of an app that depend on where it runs."""
    keys = {"keys": fleet.keys} if "keys" in apps.settings(app) else {}
    return {"folder": str(fleet.folder / SERVER), **keys}


def _run(
    fleet: Fleet, driver: Driver, wait: bool = False
) -> tuple[Outcome | None, list[dict[str, Any]]]:
    """Give what has come of it, None if that is not known, and all that has happened.

    `wait`: until the server app itself has ended, not its rounds alone.
    """
    began = time.monotonic()
    with fleet:
        events = driver.drive(wait)
    if not events:
        return None, events
    end = events[-1]
    masks, late = np.zeros((end["round"], len(fleet.sites)), bool), 0
    for event in events:
        if event["event"] == "round":
            masks[event["round"]] = [site in event["counted"] for site in fleet.sites]
            late += len(event["late"])
    outcome = Outcome(
        masks, late, metrics(end), end["counted"], end.get("of", "nobody"), end["warnings"],
        end["generation"], time.monotonic() - began, why=end["why"],
    )  # fmt: skip
    return outcome, events
