"""An app on real processes of this machine, from beginning to end."""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from focusfl.core import CannotForget, tree
from focusfl.deploy import apps, ours, record, status, timed_by
from focusfl.deploy.driver import SERVER, Driver, Watch
from focusfl.deploy.faults.chaos import Chaos
from focusfl.deploy.fleet import Fleet
from focusfl.deploy.record import FOR_OTHERS, MODEL
from focusfl.deploy.study import Deployed
from focusfl.flower.events import metrics
from focusfl.flower.protocol import ProtocolServer
from focusfl.flower.protocol.limits import norm
from focusfl.flower.protocol.messages import leaves
from focusfl.studies import results

PARTS = ("app", "flwr", "keys", "logs", "server", "sites")  # of a folder: all ours
LARGEST, ANSWER = 256.0, 8  # MiB of an answer at least, and models
KEPT = (results.MANIFEST, results.CURVES, results.PARTICIPATION, MODEL, FOR_OTHERS)
DRAWN = ("index.html", "figure.png")  # by the command line, of what was kept
FILES = (
    "superlink.db", "superlink.db-shm", "superlink.db-wal", status.FILE, *KEPT, *DRAWN,
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
    played: float | None = None  # seconds of the rounds alone
    latency: float | None = None  # what they take by the study's clock


def local_app(
    app: Path, folder: Path, watch: Watch, *, chaos: Chaos, tls: bool = False,
    warm: bool = False,
) -> Outcome | None:  # fmt: skip
    """Run an app on a SuperLink, a superexec and a SuperNode per site.

    Everything that was started is stopped at the end, whatever the end is. Give None
    for an app that ended well and wrote nothing to the `folder` of its settings.
    """
    if chaos.within:
        raise ValueError(
            "replies can be lost, and gradients wrong, in a study alone; an app can be killed."
        )
    settings = apps.settings_with_job(app)
    sites = settings["sites"].split()
    if chaos.spec and "rounds" not in settings:
        raise ValueError(f"--chaos needs to know the rounds: set rounds in {apps.CONFIG} of {app}.")
    plan = chaos.plan(settings["rounds"], len(sites)) if chaos.spec else []
    fleet = prepare(folder, sites, tls, warm)
    # Flower sends all Python, TOML and JSON under an app, and this may well be there.
    rest = shutil.ignore_patterns("keys", "runs", ".*", "__pycache__", folder.name)
    app = Path(shutil.copytree(app, fleet.folder / "app", ignore=rest))
    known = {name: settings[name] for name in apps.OF_JOB if name in settings}
    apps.add_settings(app, {"folder": "", **known})
    driver = Driver(fleet, app, _config(fleet, app), plan, watch)
    outcome, _ = _run(fleet, driver, wait=True)
    for name in KEPT if outcome else ():
        shutil.copy(driver.place / name, fleet.folder)
    return outcome


def local_study(
    deployed: Deployed, folder: Path, watch: Watch, *, chaos: Chaos, tls: bool = False,
    warm: bool = False, settings: Mapping[str, Any] | None = None,
) -> Outcome:  # fmt: skip
    """Run a study likewise; `settings` are those of a Job."""
    study = deployed.study
    chaos.check_stages(deployed.secure is not None)
    plan = chaos.plan(study.rounds, len(deployed.sites))
    job = deployed.job("").configured(settings or {})  # raises before it is begun
    timed_by.check_deadline(deployed, job.deadline)
    size = sum(np.asarray(leaf).nbytes for leaf in leaves(deployed.problem.x0))
    largest = max(LARGEST, ANSWER * size / 2**20)
    fleet = prepare(folder, deployed.sites, tls, warm, largest)
    more = {**(settings or {}), "folder": "", "keys": ""}
    if chaos.within or deployed.latency:
        more["chaos"] = chaos.spec
    app = apps.write_study(deployed, fleet.folder / "app", more)
    watch({"event": "start", "why": str(deployed)})
    driver = Driver(fleet, app, _config(fleet, app), plan, watch)
    outcome, events = _run(fleet, driver)
    assert outcome is not None  # a study writes
    if deployed.latency:
        outcome = outcome._replace(
            played=_played(events),
            latency=timed_by.seconds_by_latency(deployed, job.target),
        )
    job = deployed.job(fleet.folder / "server").configured(settings or {})
    with job.open_protocol() as protocol:
        states = protocol.states() if deployed.secure is None else []
        known = {"server": protocol.server, "clients": _stacked([s for _, s in states])}
        known["weights"] = [w for w, _ in states] if job.weights else None
        record.keep(job, protocol.x, events, fleet.folder, **known)
        return outcome._replace(x=protocol.x, gap=_gap(protocol, states))


def _gap(protocol: ProtocolServer, states: list[tuple[float, Any]]) -> float | None:
    """How far what the server tracks is from its sites' states; None: unknown."""
    server = protocol.server
    try:
        expected = protocol.algorithm.recompute(server, states)
    except CannotForget:
        return None
    return norm(tree.sub(server, expected)) if states else None


def _played(events: Sequence[Mapping[str, Any]]) -> float:
    """Seconds from the first round's beginning to the last one's end."""
    times = [e["time"] for e in events if e["event"] in ("open", "round")]
    return times[-1] - times[0]


def _stacked(states: list[Any]) -> Any:
    """Everybody's state as one tree; None if there is none."""
    if not states:
        return None
    return tree.map(lambda *leaves: np.stack(leaves), *states)


def prepare(
    folder: Path, sites: Sequence[str], tls: bool, warm: bool, largest: float = LARGEST
) -> Fleet:
    """Remove what an earlier run has left in a folder; raise if it is not ours."""
    ours.claim(folder)
    for name in PARTS:
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    return Fleet(folder, sites, tls=tls, warm=warm, largest=largest)


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
        found = driver.drive(wait)
    if not found:
        return None, found
    end = found[-1]
    masks, late = np.zeros((end["round"], len(fleet.sites)), bool), 0
    for event in found:
        if event["event"] == "round":
            counted = [fleet.sites.index(site) for site in event["counted"]]
            masks[event["round"]] = np.isin(np.arange(len(fleet.sites)), counted)
            late += len(event["late"])
    opened = [event for event in found if event["event"] == "open"]
    generations = max(event["generation"] for event in opened)
    outcome = Outcome(
        masks, late, metrics(end), end["counted"],
        end.get("of", "nobody"), end["warnings"], generations,
        time.monotonic() - began, why=end["why"],
    )  # fmt: skip
    return outcome, found
