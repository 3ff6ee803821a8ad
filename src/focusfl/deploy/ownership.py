"""Which folders `deploy local` may empty, and which processes it may stop."""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from focusfl.core.files import make_folder, parse_json, write
from focusfl.deploy.processes import is_alive

MARKER = ".focusfl-deploy"  # in a folder that `deploy local` may empty
PROCESSES = "processes.json"  # beside it: pids by name, and a word of their commands
PATIENCE = 30.0  # seconds for who is asked to end


class Line(NamedTuple):
    """A process that was started in a folder."""

    name: str
    pid: int
    alive: bool


def claim(folder: Path) -> None:
    """Mark a folder as ours; ValueError if it is somebody else's, or in use."""
    running = [line.name for line in started(folder) if line.alive]
    if running:
        raise ValueError(
            f"{folder} is in use: {', '.join(running)} still run; focusfl deploy stop "
            f"{folder} ends them."
        )
    if not (folder / MARKER).is_file() and folder.is_dir() and any(folder.iterdir()):
        raise ValueError(
            f"{folder} must be a new or empty folder, or one of deploy local: it has "
            f"other files and no {MARKER}."
        )
    make_folder(folder, private=True)
    driver = {"pid": os.getpid(), "began": psutil.Process().create_time()}
    write(folder / MARKER, json.dumps(driver))


def note(folder: Path, pids: Mapping[str, int], word: str) -> None:
    """Write down which processes run in a folder.

    Args:
        folder: one that is ours.
        pids: by name.
        word: stands in each one's command, and so tells it from a later process with its pid.
    """
    write(folder / PROCESSES, json.dumps({name: [pid, word] for name, pid in pids.items()}))


def started(folder: Path) -> list[Line]:
    """List the processes that were started in a folder; empty if none were."""
    file = folder / PROCESSES
    if not file.exists():
        return []
    try:
        pids = parse_json(file.read_text())
        return [Line(name, pid, is_alive(pid, word)) for name, (pid, word) in pids.items()]
    except (ValueError, TypeError, AttributeError):
        raise ValueError(
            f"{file} does not say what was started there. Remove it if nothing runs."
        ) from None


def stop(folder: Path) -> list[str]:
    """End the processes that run of those started in a folder; give their names.

    First it ends the process that has started them, which then ends the rest; then what
    is left.
    """
    running = [line for line in started(folder) if line.alive]
    driver = driver_of(folder)
    if driver is not None and driver != os.getpid():
        os.kill(driver, signal.SIGTERM)
        _wait(lambda: driver_of(folder) is None)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if left := [line.pid for line in started(folder) if line.alive]:
            for pid in left:
                os.killpg(pid, number)
            _wait(lambda: not any(line.alive for line in started(folder)))
    return [line.name for line in running]


def driver_of(folder: Path) -> int | None:
    """Give the process that has claimed a folder; None if it has ended, or is not known."""
    try:
        marker = parse_json((folder / MARKER).read_text())
        pid, began = int(marker["pid"]), float(marker["began"])
        same = psutil.Process(pid).create_time() == began  # not a later one with its pid
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        return None
    return pid if same and is_alive(pid) else None


def _wait(over: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not over() and time.monotonic() < until:
        time.sleep(0.1)
