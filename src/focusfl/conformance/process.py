"""Run `driver` in a process of its own: start it, ask it, kill it when it takes too long."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path as File
from typing import Any

import numpy as np

import focusfl
from focusfl.conformance.driver import Failed, NotApplicable, Path
from focusfl.conformance.problem import Row

PATIENCE = 1.5  # times the limit, after which a round that lasts is killed
STARTING = 120.0  # seconds for imports, which on a busy machine may be slow


class Process:
    """An implementation by name, in a process that is started anew if it was killed."""

    def __init__(self, name: str, limit: float, python: str = "", folder: File = File()):
        self.name, self.limit, self.folder = name, limit, folder
        self.python = python or sys.executable
        self.running: subprocess.Popen | None = None
        self._start()

    def open(self, row: Row, lr: float) -> "Opened":
        """Begin a row."""
        return Opened(self, row, lr)

    def close(self) -> None:
        """End the process and whatever it has started."""
        if self.running:
            with suppress(ProcessLookupError):
                os.killpg(self.running.pid, signal.SIGKILL)
            self.running.wait()
            for end in (self.running.stdin, self.running.stdout):
                assert end
                with suppress(BrokenPipeError):
                    end.close()
            self.log.close()
            self.running = None

    def _start(self) -> None:
        source = str(File(focusfl.__file__).parent.parent)
        known = os.environ.get("PYTHONPATH")
        where = os.pathsep.join([source, known] if known else [source])
        with tempfile.TemporaryFile() as log:
            self.running = subprocess.Popen(
                [self.python, "-m", "focusfl.conformance.driver", self.name],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                cwd=self.folder, env=os.environ | {"PYTHONPATH": where},
                start_new_session=True,
            )  # fmt: skip
            self.log = open(os.dup(log.fileno()), "rb")
        self.unread = b""
        ready = self._read(time.monotonic() + STARTING)
        if ready is None:
            ready = {"failed": f"that takes more than {STARTING:g} s."}
        if why := ready.get("failed"):
            ready["refused"] = f"{self.name!r} cannot be imported: {why}"
        if "refused" in ready:
            self.close()
            raise ValueError(ready["refused"])

    def ask(self, ends: float, **what: Any) -> dict | None:
        """Send a request and wait for its answer; None if that takes too long."""
        if not self.running:
            self._start()
        assert self.running and self.running.stdin
        with suppress(BrokenPipeError):  # then there is an end to read
            self.running.stdin.write(json.dumps(what).encode() + b"\n")
            self.running.stdin.flush()
        answer = self._read(ends)
        if answer is None or "ended" in answer:
            self.close()
        return answer

    def _read(self, ends: float) -> dict | None:
        assert self.running and self.running.stdout
        pipe = self.running.stdout.fileno()
        while b"\n" not in self.unread:
            rest = ends - time.monotonic()
            if rest <= 0 or not select.select([pipe], [], [], rest)[0]:
                return None
            if not (more := os.read(pipe, 1 << 16)):
                code = self.running.wait()
                return {"ended": True, "failed": self._last_words(code)}
            self.unread += more
        line, _, self.unread = self.unread.partition(b"\n")
        return json.loads(line)

    def _last_words(self, code: int) -> str:
        """What a process has said before it ended by itself."""
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - 2000))
        lines = self.log.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"its process ended by {how}{': ' * bool(last)}{last[:200]}"


class Opened:
    """As `Driver`, in the other process."""

    def __init__(self, process: Process, row: Row, lr: float):
        self.process, self.number = process, 0
        # The child looks at the clock between rounds; this end, while a round lasts.
        self.ends = time.monotonic() + PATIENCE * process.limit
        self._ask(row=row.name, lr=lr, limit=process.limit)

    def go(self, rounds: int) -> Path:
        """The models after each of so many more rounds, until one is not finite."""
        got = self._ask(rounds=rounds)
        self.number += len(got["models"])
        return Path(**got | {"models": np.array(got["models"], float)})

    def _ask(self, **what: Any) -> dict:
        got = self.process.ask(self.ends, **what)
        if got is None:
            least = self.number + 1
            raise Failed(
                f"hangs: the row may take {self.process.limit:g} s; killed in round "
                f"{least} or later."
            )
        if "not_applicable" in got:
            raise NotApplicable(got["not_applicable"])
        if "failed" in got:
            raise Failed(got["failed"])
        return got
