"""Health of the jobs in a folder, read from the events that their servers write."""

import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from focusfl.core.validation import shown
from focusfl.deploy import ownership
from focusfl.flower import events
from focusfl.flower.events import MAX_REASON
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
        known = Health(events.read(place))
        facts = known.as_dict()
        sites = facts.pop("sites")
        _check(facts, Health().as_dict())
        _check(dict.fromkeys(sites, 0), dict.fromkeys(sites, 0))
        for site in sites.values():
            _check(site, vars(SiteHealth()))
        return known
    except FileNotFoundError:
        raise
    except Exception as error:  # a forged line can make a reader raise anything
        what = f"{type(error).__name__}: {error}"[:MAX_REASON]
        file = place / events.FILE
        raise ValueError(f"{file} has a line that no server wrote ({what}).") from None


def _check(facts: Mapping[str, Any], like: Mapping[str, Any]) -> None:
    """Raise TypeError unless every fact can be shown in the place of another one."""
    for name, value in facts.items():
        if not (_fits(name, "") and _fits(value, like[name])):
            raise TypeError(f"{name} is {shown(value)}")


def _fits(value: Any, like: Any) -> bool:
    if isinstance(value, str):
        return isinstance(like, str) and value.encode(errors="ignore").decode() == value
    if isinstance(value, bool) or value is None:
        return type(value) is type(like)
    if isinstance(value, int | float):  # None: a number that is not known yet
        small = isinstance(value, float) or abs(value) <= sys.float_info.max
        return isinstance(like, int | float | None) and small
    if isinstance(value, list):
        return isinstance(like, list) and all(_fits(item, "") for item in value)
    if not isinstance(value, dict) or not isinstance(like, dict):
        return False
    return all(_fits(name, "") and _fits(item, 0) for name, item in value.items())


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
