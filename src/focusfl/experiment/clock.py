"""How long runs take: since they were begun, also if they were killed in between."""

import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from focusfl.engines.spec import Progress
from focusfl.files import write

_HERE = threading.local()


class Clock:
    """The seconds that a group of runs has taken, with those before it was killed."""

    def __init__(self, kept: Path | None):
        self._file = None if kept is None else kept / "seconds"
        there = self._file is not None and self._file.is_file()
        before = float(self._file.read_text()) if there and self._file else 0.0
        self._start = time.perf_counter() - before

    def seconds(self) -> float:
        """What it has taken by now."""
        return time.perf_counter() - self._start

    def heard(self, tell: Progress | None) -> Progress | None:
        """Write the time down as rounds are done; tell what is to be told."""
        file = self._file
        if file is None:
            return tell

        def both(done: int, metrics: Mapping[str, Any]) -> bool | None:
            write(file, str(self.seconds()))
            return tell(done, metrics) if tell else None

        return both


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
