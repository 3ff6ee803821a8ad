"""Follows a run, does to it what was planned, and gets it going again."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from focusfl.deploy import status
from focusfl.deploy.faults.chaos import Event
from focusfl.deploy.fleet import PATIENCE, Fleet
from focusfl.deploy.processes import Failed
from focusfl.engines.flower.events import FILE

Watch = Callable[[dict[str, Any]], None]  # called with every event

TICK = 0.1  # seconds between two looks at what has happened
LOOK = 5.0  # seconds between two looks whether the server app is alive
AGAIN = 3.0  # seconds between two tries to start a SuperNode that Flower refuses


class Driver:
    """One run of an app on a fleet."""

    def __init__(
        self, fleet: Fleet, app: Path, config: Mapping[str, Any], server: Path,
        plan: Sequence[Event], watch: Watch,
    ):  # fmt: skip
        self._fleet, self._app, self._watch = fleet, app, watch
        self._config, self._plan = config, list(plan)
        self._lines = _lines(server / FILE)
        self._run, self._pid = 0, 0  # of the server app; no pid until it has begun
        self._looked = time.monotonic()
        self._tried = dict.fromkeys(fleet.sites, 0.0)

    def drive(self) -> list[dict[str, Any]]:
        """Start the app; give all events when it has ended."""
        self._start()
        found: list[dict[str, Any]] = []
        while not (found and found[-1]["event"] == "end"):
            event = next(self._lines)
            if event is None:
                self._mend()
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
        return found

    def _start(self) -> None:
        self._run, self._pid = self._fleet.run(self._app, self._config), 0
        self._looked = time.monotonic()

    def _hit(self, round: int) -> None:
        """Do what was planned for the rounds up to this one."""
        while self._plan and self._plan[0].round <= round:
            event = self._plan.pop(0)
            self._watch({"event": "chaos", "round": round, "what": str(event)})
            site = self._fleet.sites[event.site or 0]
            match event.what:
                case "node":
                    self._fleet.nodes[site].kill()
                case "disk":
                    self._fleet.wipe(site)
                case "superlink":
                    self._fleet.superlink.kill()
                    self._fleet.start_superlink()
                case "server":
                    self._fleet.kill_server_app(self._pid)
                    self._fleet.stop_run(self._run)
                    self._start()

    def _mend(self) -> None:
        """Start again what has ended; raise if the server app has by itself."""
        for site, node in self._fleet.nodes.items():
            now = time.monotonic()
            if not node.alive and now - self._tried[site] > AGAIN:
                self._tried[site] = now
                self._fleet.start_node(site)
        for process in (self._fleet.superlink, self._fleet.superexec):
            if not process.alive:
                raise Failed(f"{process.name} has ended:\n{process.words()}")
        silent = time.monotonic() - self._looked
        if silent > (LOOK if self._pid else PATIENCE):
            if not self._pid or not status.alive(self._pid):
                words = self._fleet.words_of(self._run)
                raise Failed(f"the server app has ended:\n{words}")
            self._looked = time.monotonic()


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
