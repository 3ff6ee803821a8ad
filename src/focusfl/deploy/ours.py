"""What a folder proves to be ours: to be deleted, and to be stopped."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from focusfl.core.files import make_folder, write
from focusfl.deploy import status

MARKER = ".focusfl-deploy"  # in a folder that `deploy local` may empty
PATIENCE = 30.0  # seconds for who is asked to end


def claim(folder: Path) -> None:
    """Make a folder ours, or raise if it is somebody else's, or in use."""
    running = [line.name for line in status.look(folder) if line.alive]
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
    own = {"pid": os.getpid(), "began": _began(os.getpid())}
    write(folder / MARKER, json.dumps(own))


def stop(folder: Path) -> list[str]:
    """End what runs of what was started in a folder; give its names.

    First whoever has started it, who then ends the rest; then what is left.
    """
    running = [line for line in status.look(folder) if line.alive]
    driver = _driver(folder)
    if driver is not None and driver != os.getpid():
        os.kill(driver, signal.SIGTERM)
        _wait(lambda: _driver(folder) is None)
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = [line.pid for line in status.look(folder) if line.alive]
        for pid in left:
            os.killpg(pid, number)
        _wait(lambda: not any(line.alive for line in status.look(folder)), bool(left))
    return [line.name for line in running]


def _driver(folder: Path) -> int | None:
    """Who runs what is in a folder; None if that is over, or nobody knows."""
    try:
        said = json.loads((folder / MARKER).read_text())
        pid, began = int(said["pid"]), str(said["began"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if began and _began(pid) == began else None


def _began(pid: int) -> str:
    """When a process began, which another of its number did not; nothing if over."""
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True
    )
    state, _, began = done.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else began.strip()


def _wait(over: Callable[[], bool], needed: bool = True) -> None:
    until = time.monotonic() + PATIENCE
    while needed and not over() and time.monotonic() < until:
        time.sleep(0.1)
