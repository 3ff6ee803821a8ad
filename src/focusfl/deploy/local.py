"""An app on real processes of this machine: starts it, follows its job, keeps what it leaves."""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from focusfl.core import CannotForget, tree
from focusfl.deploy import apps, ownership, record
from focusfl.deploy.fleet import PATIENCE, Fleet
from focusfl.deploy.processes import Failed, is_alive
from focusfl.deploy.record import FOR_OTHERS, MODEL
from focusfl.deploy.study import Deployed
from focusfl.flower.evaluation import measured
from focusfl.flower.events import FILE, metrics
from focusfl.flower.protocol.limits import norm
from focusfl.flower.secure import Keys, SecureServer
from focusfl.studies import store

Watch = Callable[[dict[str, Any]], None]  # called with every event

TICK = 0.1  # seconds between two looks at what has happened
LOOK = 5.0  # seconds between two looks whether the server app is alive
ASK = 15.0  # seconds between two questions to Flower after an app that is silent
DONE = "finished:completed"  # what Flower calls a run that has ended well
SERVER = "server"  # in the folder of a fleet: the folders of jobs
AGAIN = 3.0  # seconds between two tries to start a SuperNode that Flower refuses
PARTS = ("app", "flwr", "keys", "logs", "server", "sites")  # of a folder: all ours
RESULTS = (store.MANIFEST, store.CURVES, store.PARTICIPATION, MODEL, FOR_OTHERS)
DRAWN = ("index.html", "figure.png")  # by the command line, of the results
FILES = (
    "superlink.db", "superlink.db-shm", "superlink.db-wal", ownership.PROCESSES, *RESULTS,
    *DRAWN,
)  # fmt: skip


class Driver:
    """Starts an app on a fleet, follows what its job writes, restarts dead SuperNodes."""

    def __init__(self, fleet: Fleet, app: Path, watch: Watch):
        self.fleet, self._app, self._watch = fleet, app, watch
        self.place = fleet.folder / SERVER  # of the job, once it has begun
        self.run, self.pid = 0, 0  # of the server app; no pid until it has begun
        self._lines = self._follow()
        self._looked = time.monotonic()
        self._tried = dict.fromkeys(fleet.sites, 0.0)

    def drive(self, wait: bool = False) -> list[dict[str, Any]]:
        """Start the app and follow its job.

        Args:
            wait: until the app has ended, and not its job alone.

        Returns:
            All events of the job; none if the app has ended well and written none.

        Raises:
            Failed: if the app has failed before its job has ended, or after with
                `wait`.
        """
        self.start()
        events: list[dict[str, Any]] = []
        while not (events and events[-1]["event"] == "end"):
            event = next(self._lines)
            if event is None:
                if self._mend():
                    return events
                time.sleep(TICK)
                continue
            if event["event"] == "failed":
                raise Failed(f"the server app has ended: {event['why']}")
            events.append(event)
            if event["event"] == "begin":
                self.pid = event["pid"]
            self.handle(event)
        while wait and is_alive(self.pid):
            time.sleep(TICK)
        if wait and not events[-1]["why"] and self._status().endswith("failed"):
            self._fail()
        return events

    def start(self) -> None:
        """Submit the app to the SuperLink, also after an earlier run of it was killed."""
        config = {"folder": str(self.fleet.folder / SERVER), "keys": self.fleet.keys}
        self.run, self.pid = self.fleet.run(self._app, config), 0
        self._started = self._looked = time.monotonic()

    def handle(self, event: dict[str, Any]) -> None:
        """Hand an event on to `watch`; a subclass can do more."""
        self._watch(event)

    def _follow(self) -> Iterator[dict[str, Any] | None]:
        """Follow the events of the job, whatever its name is."""
        while not (files := sorted(self.place.glob(f"*/{FILE}"))):
            yield None
        self.place = files[0].parent
        yield from _lines(files[0])

    def _status(self) -> str:
        """Ask Flower how the run is, as finished:completed; empty if it fails."""
        with contextlib.suppress(Failed):
            return self.fleet.flwr("list", "--run-id", str(self.run))["runs"][0]["status"]
        return ""

    def _fail(self) -> NoReturn:
        raise Failed(f"the server app has ended:\n{self.fleet.log(self.run)}")

    def _mend(self) -> bool:
        """Start SuperNodes again that have ended; say whether the server app ended well.

        Raises:
            Failed: if the SuperLink, superexec or the server app has failed.
        """
        now = time.monotonic()
        for site, node in self.fleet.nodes.items():
            if not node.alive and now - self._tried[site] > AGAIN:
                self._tried[site] = now
                self.fleet.start_node(site)
        for process in (self.fleet.superlink, self.fleet.superexec):
            if not process.alive:
                raise Failed(f"{process.name} has ended:\n{process.words()}")
        if now - self._looked <= (LOOK if self.pid else ASK):
            return False
        self._looked = now
        if self.pid:  # it has written that it began, and must write how it ends
            if not is_alive(self.pid):
                self._fail()
            return False
        status = self._status()
        starting = status.startswith("running") or now - self._started < PATIENCE
        if status.endswith("failed") or not starting and status != DONE:
            self._fail()
        return status == DONE


def _lines(path: Path) -> Iterator[dict[str, Any] | None]:
    """Follow a file of events for ever; None when there is no further one yet."""
    with open(path) as file:
        line = ""
        while True:
            line += file.readline()
            if not line.endswith("\n"):
                yield None
                continue
            with contextlib.suppress(ValueError):  # killed while it wrote
                yield json.loads(line)
            line = ""


class Outcome(NamedTuple):
    """How a deployment ended."""

    masks: np.ndarray  # (rounds, sites): who was counted when; what `Replay` takes
    late: int  # answers counted in a later round than they were asked in
    metrics: dict[str, float]  # of the last model
    counted: dict[str, int]  # in how many rounds, by site
    of: str  # the sites whose gradient `grad_norm` is, in words
    warnings: list[str]
    generations: int
    seconds: float
    x: Any = None  # the last model of a study
    gap: float | None = None  # between the server's sums and the states of its sites
    why: Sequence[str] = ()  # why this is no healthy end; empty: it is one


def local_app(app: Path, folder: Path, watch: Watch, *, tls: bool = False) -> Outcome | None:
    """Run an app on a SuperLink, a superexec and a SuperNode per site.

    Everything that was started is stopped at the end, whatever the end is.

    Args:
        app: folder of the app.
        folder: for everything that the run leaves; what an earlier run left is removed.
        watch: called with every event.
        tls: encrypt, and let in SuperNodes with known keys alone.

    Returns:
        How it ended; None if it ended well and wrote nothing to the `folder` of its settings.

    Raises:
        Failed: If a process or the app has failed.
    """
    settings = apps.settings_with_job(app)
    fleet = prepare(folder, settings["sites"].split(), tls)
    # Flower sends all Python, TOML and JSON under an app, and this may well be there.
    rest = shutil.ignore_patterns("keys", "runs", ".*", "__pycache__", folder.name)
    app = Path(shutil.copytree(app, fleet.folder / "app", ignore=rest))
    known = {name: settings[name] for name in apps.OF_JOB if name in settings}
    apps.add_settings(app, {"folder": "", "keys": "", **known})
    driver = Driver(fleet, app, watch)
    outcome, _ = _run(fleet, driver, wait=True)
    for name in RESULTS if outcome else ():
        shutil.copy(driver.place / name, fleet.folder)
    return outcome


def local_study(
    deployed: Deployed, folder: Path, watch: Watch, *, tls: bool = False,
    settings: Mapping[str, Any] | None = None, driver: type[Driver] = Driver,
) -> Outcome:  # fmt: skip
    """Run a study as `local_app` runs an app.

    Args:
        deployed: the study.
        folder: for everything that the run leaves; what an earlier run left is removed.
        watch: called with every event.
        tls: encrypt, and let in SuperNodes with known keys alone.
        settings: those of a Job, by name.
        driver: starts the app and follows its job.
    """
    settings = settings or {}
    deployed.job("").configured(settings)  # raises before it is begun
    fleet = prepare(folder, deployed.sites, tls)
    app = apps.write_study(deployed, fleet.folder / "app", {**settings, "folder": "", "keys": ""})
    watch({"event": "start", "why": str(deployed)})
    outcome, events = _run(fleet, driver(fleet, app, watch))
    assert outcome is not None  # a study writes
    job = deployed.job(fleet.folder / SERVER).configured(settings)
    with job.open_protocol() as protocol:
        if isinstance(protocol, SecureServer):  # here is also the key of its sites
            server, states = protocol.open_job(Keys.read(fleet.sums_key))
            of_model = measured(job, server)
            outcome = outcome._replace(metrics=of_model)
            events[-1] = {**events[-1], "metrics": of_model}
        else:
            server, states = protocol.server, protocol.states()
        weights, clients = zip(*states, strict=True)
        with contextlib.suppress(CannotForget):
            sums = protocol.algorithm.recompute(server, states)
            outcome = outcome._replace(gap=norm(tree.sub(server, sums)))
    record.keep(
        job, server.x, events, fleet.folder, server=server,
        clients=tree.map(lambda *leaves: np.stack(leaves), *clients),
        weights=weights if job.weights else None,
    )  # fmt: skip
    return outcome._replace(x=server.x)


def prepare(folder: Path, sites: Sequence[str], tls: bool) -> Fleet:
    """Remove what an earlier run left in a folder; ValueError if it is not ours."""
    ownership.claim(folder)
    for name in PARTS:
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    return Fleet(folder, sites, tls=tls)


def _run(
    fleet: Fleet, driver: Driver, wait: bool = False
) -> tuple[Outcome | None, list[dict[str, Any]]]:
    """Run the app of a driver on its fleet.

    Args:
        fleet: started here, and stopped at the end.
        driver: starts the app and follows its job.
        wait: until the server app itself has ended, not its rounds alone.

    Returns:
        How it ended, None if that is not known; and all events.
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
