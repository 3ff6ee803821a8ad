"""Health of the jobs in a folder, read from the events that their servers write."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from focusfl.deploy import ownership
from focusfl.flower import events
from focusfl.flower.events import short
from focusfl.flower.health import Health, SiteHealth
from focusfl.flower.identity import expiries

# Where a job's events are: in its folder, under a server's, under that of fleets.
PLACES = ("", "*/", "*/*/", "*/server/*/")


def health(place: Path) -> Health:
    """Read the events in the folder of a job; give its health.

    Raises:
        ValueError: If the file has a line that no server wrote.
    """
    try:
        job = Health(events.read(place))
        facts = job.as_dict()
        _check(facts, Health().as_dict())
        for site in facts["sites"].values():
            _check(site, vars(SiteHealth()))
        for number in (*facts["bytes"].values(), *facts["metrics"].values()):
            float(number)
        return job
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        what = f"{type(error).__name__}: {short(error)}"
        file = place / events.FILE
        raise ValueError(f"{file} has a line that no server wrote ({what}).") from None


def _check(facts: Mapping[str, Any], like: Mapping[str, Any]) -> None:
    """Raise TypeError unless numbers are numbers, and all else is what it is in `like`."""
    for name, expected in like.items():
        value = facts[name]
        if isinstance(value, int | float):
            float(value)  # OverflowError if it has too many digits
        kind = int | float if isinstance(expected, int | float) else type(expected)
        if not isinstance(value, int | float | None if expected is None else kind):
            raise TypeError(f"{name} is {short(value)}")


class Jobs:
    """All jobs of a folder, those that begin later among them."""

    def __init__(self, folder: Path):
        self._folder, self._lock = folder, threading.Lock()
        # What the events say, by place, with the file's inode and size when they were read.
        self._known: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = {}

    def look(self) -> dict[Path, dict[str, Any]]:
        """Give the health of each job, by the folder it writes to."""
        with self._lock:
            files = [file for place in PLACES for file in self._folder.glob(place + events.FILE)]
            jobs = {}
            for place in sorted({file.parent for file in files}):
                with suppress(FileNotFoundError):  # the folder was emptied meanwhile
                    jobs[place] = self._look(place)
            return jobs

    def _look(self, place: Path) -> dict[str, Any]:
        about = (place / events.FILE).stat()
        version = about.st_ino, about.st_size
        if place not in self._known or self._known[place][0] != version:
            try:
                facts = health(place).as_dict()
            except ValueError as error:
                unread = {"state": "unreadable", "healthy": False, "why": [str(error)]}
                facts = {**Health().as_dict(), **unread}
            self._known[place] = version, {"job": place.name, **facts}
        facts = self._known[place][1]
        stopped = facts["state"] in ("running", "waiting") and _stopped(place)
        return {**facts, "state": "stopped"} if stopped else facts


def search(folder: Path) -> dict[str, dict[str, Any]]:
    """Give, by folder, the health of every job that writes to a folder or under it, and
    the processes that were started there."""
    jobs = {fleet_of(place): job for place, job in Jobs(folder).look().items()}
    by_folder = {}
    for place in sorted({folder, *folder.glob("*/"), *jobs}):
        lines, job = ownership.started(place), jobs.get(place)
        if lines or job:
            states = [(p.name, p.pid, "runs" if p.alive else "ended") for p in lines]
            by_folder[str(place)] = {
                **_progress(job), "notices": expiries(place / "keys"),
                "processes": states, "health": job,
            }  # fmt: skip
    return by_folder


def fleet_of(place: Path) -> Path:
    """Give the folder of the fleet whose job writes to `place`; `place` if there is none."""
    fleet = place.parent.parent
    return fleet if (fleet / ownership.PROCESSES).exists() else place


def _stopped(place: Path) -> bool:
    """Say whether a job is of a fleet of this machine of which no process runs any more."""
    lines = ownership.started(fleet_of(place))
    return bool(lines) and not any(line.alive for line in lines)


def _progress(job: dict[str, Any] | None) -> dict[str, Any]:
    """Say how far a job has come, and where its model stands at the end."""
    if not job or not job["round"]:
        return {"progress": "no round"}
    here = [name for name, site in job["sites"].items() if site["state"] != "offline"]
    progress = f"{job['round']}/{job['rounds']} rounds, last online {', '.join(here)}"
    metrics = job["metrics"] if job["state"] == "ended" else {}
    norms = {k: metrics[k] for k in ("grad_norm", "tracker_norm") if k in metrics}
    words = [f"{name} {value:.3g}" for name, value in norms.items()]
    return {"progress": ", ".join([progress, *words]), **norms}
