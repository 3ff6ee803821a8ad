"""What runs, of what was started in a folder, and how far it has come."""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from focusfl.engines.flower.public_keys import ending

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
    """Say what runs of everything that was started in a folder or right under it."""
    found = {}
    for place in (folder, *sorted(folder.glob("*/"))):
        lines = look(place)
        if not lines:
            continue
        states = [(p.name, p.pid, "runs" if p.alive else "ended") for p in lines]
        notices = {"notices": ending(place / "keys")}
        found[str(place)] = {**_progress(place), **notices, "processes": states}
    return found


def _progress(place: Path) -> dict[str, Any]:
    """How far the run in a folder has come, and where its model stands at the end."""
    last, end = last_event(place, "round"), last_event(place, "end") or {}
    if not last:
        return {"progress": "no round"}
    online = ", ".join(last["online"])
    progress = f"{last['round'] + 1}/{last['rounds']} rounds, last online {online}"
    norms = {str(k): end[k] for k in ("grad_norm", "tracker_norm") if k in end}
    words = [f"{name} {value:.3g}" for name, value in norms.items()]
    return {"progress": ", ".join([progress, *words]), **norms}


def last_event(folder: Path, kind: str) -> dict[str, Any] | None:
    """The newest event of a kind, of the run in a folder."""
    lines = [
        line for file in folder.glob(EVENTS) for line in file.read_text().splitlines()
    ]
    events = (json.loads(line) for line in reversed(lines) if line.endswith("}"))
    return next((event for event in events if event["event"] == kind), None)


def alive(pid: int, word: str = "") -> bool:
    """Whether a process runs, and its command has a word in it."""
    done = subprocess.run(
        ["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)],
        capture_output=True,
        text=True,
    )
    state, _, command = done.stdout.strip().partition(" ")
    return bool(state) and not state.startswith("Z") and word in command
