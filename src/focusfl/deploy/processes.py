"""Processes that this program starts, kills, starts again and stops; it touches no others."""

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import psutil

LOOPBACK = "127.0.0.1"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "NO_PROXY": f"{LOOPBACK},localhost",
}


class Failed(ValueError):
    """A process that did not do what it was started for."""


def environment(home: Path, **more: str) -> dict[str, str]:
    """Make the environment of our processes: Flower's folder, and nothing that reaches outside."""
    # Flower starts its own commands by name: they must be those of this Python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(home), **more}


def free_ports(count: int) -> list[int]:
    """Find ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


def listens(port: int) -> bool:
    """Say whether somebody answers at this port of this machine."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex((LOOPBACK, port)) == 0


def is_alive(pid: int, word: str = "") -> bool:
    """Say whether a process runs, and its command has a word in it."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and word in " ".join(process.cmdline())
    except psutil.Error:
        return False


class Process:
    """A command that runs in a process group of its own and writes to a log file.

    Its children are in the group, and are ended with it. The group is ended when this
    program ends, by whatever signal.

    Args:
        name: what messages call it.
        command: program and arguments.
        log: the file that its output is appended to.
        env: its environment.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str]):
        self.name, self.command, self.log, self.env = name, list(command), log, env
        self._running: subprocess.Popen | None = None

    def start(self) -> "Process":
        """Start it, or start it again."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            self._running = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=dict(self.env), start_new_session=True,
                umask=0o077,  # what they write is their owner's alone
            )  # fmt: skip
        _tell_reaper(f"+{self._running.pid}")
        return self

    @property
    def pid(self) -> int | None:
        return self._running.pid if self._running else None

    @property
    def alive(self) -> bool:
        return self._running is not None and self._running.poll() is None

    def kill(self) -> None:
        """End it and its children at once, as a power cut would."""
        self.signal(signal.SIGKILL)
        if self._running:
            self._running.wait()
            _tell_reaper(f"-{self._running.pid}")

    def family(self) -> list[psutil.Process]:
        """List it and its children, as far as they run."""
        with contextlib.suppress(psutil.NoSuchProcess):
            if self._running:
                leader = psutil.Process(self._running.pid)
                return [leader, *leader.children(recursive=True)]
        return []

    def words(self, lines: int = 15) -> str:
        """Read the last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def signal(self, number: int) -> None:
        """Send a signal to it and its children, if they run."""
        if self._running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._running.pid, number)


@cache
def _reaper() -> subprocess.Popen:
    """Start the process that ends ours when we are gone, as the end of its input says."""
    command = [sys.executable, "-I", str(Path(__file__).with_name("reaper.py"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
    atexit.register(process.communicate)
    return process


def _tell_reaper(line: str) -> None:
    reaper = _reaper()
    assert reaper.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # somebody has ended it
        reaper.stdin.write(f"{line}\n")
        reaper.stdin.flush()


def stop(processes: Sequence[Process], patience: float = 3.0) -> None:
    """Ask processes to end, all at once; `patience` seconds later, kill what is left."""
    family = [member for process in processes for member in process.family()]
    for process in processes:
        process.signal(signal.SIGTERM)
    psutil.wait_procs(family, timeout=patience)
    for process in processes:
        process.kill()  # children too, which may have outlived their parent
    psutil.wait_procs(family, timeout=patience)  # until then they hold locks and ports


@contextlib.contextmanager
def ignore_sigint() -> Iterator[None]:
    """Ignore Ctrl-C in the block, which must not be left half done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
