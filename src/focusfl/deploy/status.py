"""What runs, of what was started in a folder, and how far it has come."""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from focusfl.deploy.following import Jobs
from focusfl.flower import events
from focusfl.flower.public_keys import ending

FILE = "processes.json"  # in the folder of a fleet: pids by name
EVENTS = "server/*/events.jsonl"


class Line(NamedTuple):
    name: str
    pid: int
    alive: bool


def look(folder: Path) -> list[Line]:
    """List what was started in a folder; nothing if nothing was."""
    file = folder / FILE
    if not file.exists():
        return []
    try:
        started = json.loads(file.read_text())
        return [Line(k, pid, alive(pid, word)) for k, (pid, word) in started.items()]
    except (ValueError, TypeError, AttributeError):
        raise ValueError(
            f"{file} does not say what was started there. Remove it if nothing runs."
        ) from None


def search(folder: Path) -> dict[str, dict[str, Any]]:
    """Say how every job is doing that writes to a folder or under it.

    And what runs of everything that was started there.
    """
    jobs = {owner(place): job for place, job in Jobs(folder).look().items()}
    found = {}
    for place in sorted({folder, *folder.glob("*/"), *jobs}):
        lines, job = look(place), jobs.get(place)
        if lines or job:
            states = [(p.name, p.pid, "runs" if p.alive else "ended") for p in lines]
            found[str(place)] = {
                **_progress(job), "notices": ending(place / "keys"),
                "processes": states, "health": job,
            }  # fmt: skip
    return found


def owner(place: Path) -> Path:
    """The folder of the fleet whose job writes to one; itself if there is no fleet."""
    fleet = place.parent.parent
    return fleet if (fleet / FILE).exists() else place


def _progress(job: dict[str, Any] | None) -> dict[str, Any]:
    """How far a job has come, and where its model stands."""
    if not job or not job["round"]:
        return {"progress": "no round"}
    here = [name for name, one in job["sites"].items() if one["state"] != "offline"]
    progress = f"{job['round']}/{job['rounds']} rounds, last online {', '.join(here)}"
    known = job["metrics"] if job["state"] == "ended" else {}
    norms = {k: known[k] for k in ("grad_norm", "tracker_norm") if k in known}
    words = [f"{name} {value:.3g}" for name, value in norms.items()]
    return {"progress": ", ".join([progress, *words]), **norms}


def last_event(folder: Path, kind: str) -> dict[str, Any] | None:
    """The newest event of a kind, of the run in a folder."""
    places = [file.parent for file in folder.glob(EVENTS)]
    found = [event for place in places for event in events.read(place)]
    return next((one for one in reversed(found) if one["event"] == kind), None)


def alive(pid: int, word: str = "") -> bool:
    """Whether a process runs, and its command has a word in it."""
    done = subprocess.run(
        ["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)],
        capture_output=True,
        text=True,
    )
    state, _, command = done.stdout.strip().partition(" ")
    return bool(state) and not state.startswith("Z") and word in command
