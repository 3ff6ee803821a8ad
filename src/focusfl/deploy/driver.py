"""Starts an app on a fleet, follows what its job writes, and starts dead SuperNodes again."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from focusfl.deploy.fleet import PATIENCE, Fleet
from focusfl.deploy.processes import Failed, is_alive
from focusfl.flower.events import FILE

Watch = Callable[[dict[str, Any]], None]  # called with every event

TICK = 0.1  # seconds between two looks at what has happened
LOOK = 5.0  # seconds between two looks whether the server app is alive
ASK = 15.0  # seconds between two questions to Flower after an app that is silent
DONE = "finished:completed"  # what Flower calls a run that has ended well
SERVER = "server"  # in the folder of a fleet: the folders of jobs
AGAIN = 3.0  # seconds between two tries to start a SuperNode that Flower refuses


class Driver:
    """One run of an app on a fleet."""

    def __init__(self, fleet: Fleet, app: Path, config: Mapping[str, Any], watch: Watch):
        self.fleet, self._app, self._config, self._watch = fleet, app, config, watch
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
        self.run, self.pid = self.fleet.run(self._app, self._config), 0
        self._started = self._looked = time.monotonic()

    def handle(self, event: dict[str, Any]) -> None:
        """Tell whoever watches; tests make things go wrong here."""
        self._watch(event)

    def _follow(self) -> Iterator[dict[str, Any] | None]:
        """Follow the events of the job, whatever its name is."""
        while not (files := sorted(self.place.glob(f"*/{FILE}"))):
            yield None
        self.place = files[0].parent
        yield from _lines(files[0])

    def _status(self) -> str:
        """What Flower says of the run, as finished:completed; nothing if it fails."""
        with contextlib.suppress(Failed):
            return self.fleet.flwr("list", "--run-id", str(self.run))["runs"][0]["status"]
        return ""

    def _fail(self) -> NoReturn:
        raise Failed(f"the server app has ended:\n{self.fleet.log(self.run)}")

    def _mend(self) -> bool:
        """Start SuperNodes again that have ended; give whether the server app ended well.

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
        begun = status.startswith("running") or now - self._started < PATIENCE
        if status.endswith("failed") or not begun and status != DONE:
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
