"""How long runs take: since they were begun, also if they were killed in between."""

import sys
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from focusfl.core.files import BLANK, read, write
from focusfl.simulation.spec import Progress

EVERY = 0.5  # seconds between two writes, each of which waits for the disk

_HERE = threading.local()


class Stopwatch:
    """The seconds that a group of runs has taken, with those before it was killed."""

    def __init__(self, kept: Path | None):
        self._file = None if kept is None else kept / "seconds"
        self._start = time.perf_counter() - _before(self._file)
        self._wrote = -EVERY

    def seconds(self) -> float:
        """What it has taken by now."""
        return time.perf_counter() - self._start

    def heard(self, tell: Progress | None) -> Progress | None:
        """Write the time down as rounds are done; tell what is to be told."""
        file = self._file
        if file is None:
            return tell

        def both(done: int, metrics: Mapping[str, Any]) -> bool | None:
            if (now := self.seconds()) - self._wrote >= EVERY:
                write(file, f"{now} {BLANK}", sealed=True)
                self._wrote = now
            return tell(done, metrics) if tell else None

        return both


def _before(file: Path | None) -> float:
    """What was written down; nothing of what is damaged, which is said."""
    if file is None or not file.is_file():
        return 0.0
    try:
        content, seal = read(file)
        if seal is not None:
            return float(content.split()[0])
    except ValueError:
        pass
    print(f"{file} is damaged: seconds are counted from now on.", file=sys.stderr)
    return 0.0


def compiling() -> float:
    """The seconds that this thread has spent on tracing and compiling."""
    _listen()
    return getattr(_HERE, "seconds", 0.0)


@cache
def _listen() -> None:
    import jax

    def heard(event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            _HERE.seconds = getattr(_HERE, "seconds", 0.0) + duration_secs

    jax.monitoring.register_event_duration_secs_listener(heard)
