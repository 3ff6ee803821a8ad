"""Follows a run, does to it what was planned, and gets it going again."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from focusfl.deploy import status
from focusfl.deploy.faults.chaos import STAGES, Event, told_file
from focusfl.deploy.fleet import PATIENCE, Fleet
from focusfl.deploy.processes import Failed
from focusfl.flower.events import FILE
from focusfl.flower.protocol import store
from focusfl.flower.protocol.server import DATABASE

Watch = Callable[[dict[str, Any]], None]  # called with every event

TICK = 0.1  # seconds between two looks at what has happened
LOOK = 5.0  # seconds between two looks whether the server app is alive
ASK = 15.0  # seconds between two questions to Flower after an app that is silent
DONE = "finished:completed"  # what Flower calls a run that has ended well
SERVER = "server"  # in the folder of a fleet: the folders of jobs
AWHILE = 15.0  # seconds that a site stands still, or can write nothing
FULL = 0  # bytes that a file may have on a disk that is full
AGAIN = 3.0  # seconds between two tries to start a SuperNode that Flower refuses


class Driver:
    """One run of an app on a fleet."""

    def __init__(
        self, fleet: Fleet, app: Path, config: Mapping[str, Any],
        plan: Sequence[Event], watch: Watch,
    ):  # fmt: skip
        self._fleet, self._app, self._watch = fleet, app, watch
        self._config, self._plan = config, list(plan)
        self.place = fleet.folder / SERVER  # of the job, once it has begun
        self._lines = self._follow()
        self._later: list[tuple[float, Callable[[], None]]] = []  # what ends by itself
        self._run, self._pid = 0, 0  # of the server app; no pid until it has begun
        self._looked = time.monotonic()
        self._tried = dict.fromkeys(fleet.sites, 0.0)

    def drive(self, wait: bool = False) -> list[dict[str, Any]]:
        """Start the app; give all events when its job has ended, or the app with
        `wait`; none if it has ended well and written none.

        Raises:
            Failed: if the app has failed before its job has ended, or after with
                `wait`.
        """
        self._start()
        found: list[dict[str, Any]] = []
        while not (found and found[-1]["event"] == "end"):
            event = next(self._lines)
            if event is None:
                if self._mend():
                    return found
                time.sleep(TICK)
                continue
            if event["event"] == "failed":
                raise Failed(f"the server app has ended: {event['why']}")
            found.append(event)
            self._watch(event)
            if event["event"] == "begin":
                self._pid = event["pid"]
            if event["event"] == "open":
                self._hit(event["round"])
        while wait and status.alive(self._pid):
            time.sleep(TICK)
        if wait and not found[-1]["why"] and self._state().endswith("failed"):
            self._fail()
        return found

    def _follow(self) -> Iterator[dict[str, Any] | None]:
        """Follow the events of the job, whatever its name is."""
        while not (files := sorted(self.place.glob(f"*/{FILE}"))):
            yield None
        self.place = files[0].parent
        yield from _lines(files[0])

    def _state(self) -> str:
        """What Flower says of the run, as finished:completed; nothing if it fails."""
        with contextlib.suppress(Failed):
            return self._fleet.flwr("list", "--run-id", str(self._run))["runs"][0]["status"]
        return ""

    def _fail(self) -> NoReturn:
        words = self._fleet.words_of(self._run)
        raise Failed(f"the server app has ended:\n{words}")

    def _start(self) -> None:
        self._run, self._pid = self._fleet.run(self._app, self._config), 0
        self._started = self._looked = time.monotonic()

    def _hit(self, round: int) -> None:
        """Do what was planned for the rounds up to this one."""
        fleet = self._fleet
        while self._plan and self._plan[0].round <= round:
            event = self._plan.pop(0)
            self._watch({"event": "chaos", "round": round, "what": str(event)})
            site = fleet.sites[event.site or 0]
            node, soon = fleet.nodes[site], time.monotonic() + AWHILE
            match event.what:
                case "node":
                    node.kill()
                case "disk":
                    fleet.wipe(site)
                    node.kill()  # with it goes what it has in memory
                case "full":
                    node.limit_files(FULL)
                    self._later.append((soon, partial(node.limit_files, -1)))
                case "pause":
                    node.pause()
                    self._later.append((soon, node.resume))
                case told if told in ("spike", *STAGES):
                    told_file(fleet.state(site), told).touch()
                case "superlink":
                    fleet.superlink.kill()
                    fleet.start_superlink()
                case "server":
                    self._start_again()
                case "backup":
                    store.copy(self.place / DATABASE, self._copy)
                case "restore":
                    self._start_again(self._copy)

    @property
    def _copy(self) -> Path:
        return self.place / "server.backup"

    def _start_again(self, backup: Path | None = None) -> None:
        """Kill the server app and start it, from an earlier state if one is given."""
        self._fleet.kill_server_app(self._pid)
        self._fleet.stop_run(self._run)
        if backup is not None and backup.exists():
            store.copy(backup, self.place / DATABASE)
        self._start()

    def _mend(self) -> bool:
        """Start again what has ended; give whether the server app has ended well.

        Raises:
            Failed: if the SuperLink, superexec or the server app has failed.
        """
        due = [act for at, act in self._later if at <= time.monotonic()]
        self._later = [one for one in self._later if one[1] not in due]
        for act in due:
            act()
        for site, node in self._fleet.nodes.items():
            now = time.monotonic()
            if not node.alive and now - self._tried[site] > AGAIN:
                self._tried[site] = now
                self._fleet.start_node(site)
        for process in (self._fleet.superlink, self._fleet.superexec):
            if not process.alive:
                raise Failed(f"{process.name} has ended:\n{process.words()}")
        now = time.monotonic()
        if now - self._looked <= (LOOK if self._pid else ASK):
            return False
        self._looked = now
        if self._pid:  # it has written that it began, and must write how it ends
            if not status.alive(self._pid):
                self._fail()
            return False
        state = self._state()
        begun = state.startswith("running") or now - self._started < PATIENCE
        if state.endswith("failed") or not begun and state != DONE:
            self._fail()
        return state == DONE


def _lines(path: Path) -> Iterator[dict[str, Any] | None]:
    """Follow a file of events for ever; None when there is no further one yet."""
    while not path.exists():
        yield None
    with open(path) as file:
        begun = ""
        while True:
            begun += file.readline()
            if not begun.endswith("\n"):
                yield None
                continue
            with contextlib.suppress(ValueError):  # killed while it wrote
                yield json.loads(begun)
            begun = ""
