"""Health of the jobs in a folder, read from the events that their servers write."""

import os
import threading
from pathlib import Path
from typing import Any

from focusfl.deploy import ownership
from focusfl.flower import events
from focusfl.flower.health import Health
from focusfl.flower.identity import expiries

# Where a job's events are: in its folder, under a server's, under that of fleets.
PLACES = ("", "*/", "*/*/", "*/server/*/")


class Follower:
    """Follows the events of one job, and reads each once."""

    def __init__(self, place: Path):
        self._file = place / events.FILE
        self._health, self._at, self._inode = Health(), 0, 0

    def health(self) -> Health:
        """Read new events; give the job's health. ValueError if the file is no server's."""
        try:
            with open(self._file, "rb") as file:
                about = os.fstat(file.fileno())
                if about.st_ino != self._inode or about.st_size < self._at:
                    self._health, self._at = Health(), 0  # a file that begins anew
                    self._inode = about.st_ino
                file.seek(self._at)
                news = file.read()
                whole = news[: news.rfind(b"\n") + 1]  # a line may be half written
                self._at += len(whole)
                self._take(events.parsed(whole.splitlines()), file)
        except FileNotFoundError:
            self._health, self._at = Health(), 0
        except (KeyError, TypeError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise ValueError(f"{self._file} has a line that no server wrote ({what}).") from None
        return self._health

    def _take(self, new: list[dict[str, Any]], file: Any) -> None:
        """Bring the health up to date; from the beginning, if the server has gone back."""
        for event in new:
            if event["event"] == "begin" and event["round"] < self._health.round:
                file.seek(0)
                past = file.read(self._at)
                self._health = Health(events.parsed(past.splitlines()))
                return
            self._health.take(event)


class Jobs:
    """All jobs of a folder, those that begin later among them."""

    def __init__(self, folder: Path):
        self._folder, self._lock = folder, threading.Lock()
        self._known: dict[Path, Follower] = {}

    def look(self) -> dict[Path, dict[str, Any]]:
        """Give the health of each job, by the folder it writes to."""
        with self._lock:
            files = [file for place in PLACES for file in self._folder.glob(place + events.FILE)]
            return {place: self._health(place) for place in sorted({f.parent for f in files})}

    def _health(self, place: Path) -> dict[str, Any]:
        follower = self._known.setdefault(place, Follower(place))
        try:
            known = follower.health().as_dict()
            if known["state"] in ("running", "waiting") and _stopped(place):
                known["state"] = "stopped"
            return {"job": place.name, **known}
        except ValueError as error:
            unread = {"state": "unreadable", "healthy": False, "why": [str(error)]}
            return {"job": place.name, **Health().as_dict(), **unread}


def search(folder: Path) -> dict[str, dict[str, Any]]:
    """Give the health of every job that writes to a folder or under it, and the processes
    that were started there, by folder."""
    jobs = {fleet_of(place): job for place, job in Jobs(folder).look().items()}
    known = {}
    for place in sorted({folder, *folder.glob("*/"), *jobs}):
        lines, job = ownership.started(place), jobs.get(place)
        if lines or job:
            states = [(p.name, p.pid, "runs" if p.alive else "ended") for p in lines]
            known[str(place)] = {
                **_progress(job), "notices": expiries(place / "keys"),
                "processes": states, "health": job,
            }  # fmt: skip
    return known


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
    known = job["metrics"] if job["state"] == "ended" else {}
    norms = {k: known[k] for k in ("grad_norm", "tracker_norm") if k in known}
    words = [f"{name} {value:.3g}" for name, value in norms.items()]
    return {"progress": ", ".join([progress, *words]), **norms}
