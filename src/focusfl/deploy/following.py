"""Jobs that are found in a folder, followed by what they write: nobody is asked."""

import os
import threading
from pathlib import Path
from typing import Any

from focusfl.flower import events
from focusfl.flower.health import Health

# Where a job's events are: in its folder, under a server's, under that of fleets.
PLACES = ("", "*/", "*/*/", "*/server/*/")


class Follower:
    """The health of one job, read on from where it was read last."""

    def __init__(self, place: Path):
        self._file = place / events.FILE
        self._health, self._at, self._inode = Health(), 0, 0

    def health(self) -> Health:
        """How the job is doing now."""
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

    def _take(self, found: list[dict[str, Any]], file: Any) -> None:
        """Bring it up to date; from the beginning, if the server has gone back."""
        for event in found:
            if event["event"] == "begin" and event["round"] < self._health.round:
                file.seek(0)
                past = file.read(self._at)
                self._health = Health(events.parsed(past.splitlines()))
                return
            self._health.take(event)


class Jobs:
    """All jobs of a folder; new ones are found as they begin."""

    def __init__(self, folder: Path):
        self._folder, self._lock = folder, threading.Lock()
        self._known: dict[Path, Follower] = {}

    def look(self) -> dict[Path, dict[str, Any]]:
        """How each is doing, by the folder it writes to."""
        with self._lock:
            return {place: self._health(place) for place in places(self._folder)}

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


def _stopped(place: Path) -> bool:
    """Whether a job is of a fleet of this machine of which nothing runs any more."""
    from focusfl.deploy import status  # which reads jobs by this module

    lines = status.look(status.owner(place))
    return bool(lines) and not any(line.alive for line in lines)


def places(folder: Path) -> list[Path]:
    """The folders in which jobs write, in and under a folder."""
    files = [file for one in PLACES for file in folder.glob(one + events.FILE)]
    return sorted({file.parent for file in files})
