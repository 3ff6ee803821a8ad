"""Processes that do nothing, to be stopped."""

import sys
import time

from focusfl.deploy.processes import Process, environment, is_alive


def sleeper(tmp_path, name="sleeper", code=""):
    """A process with a child, both deaf to the signal to end."""
    code = code or (
        "import signal, subprocess, sys, time; "
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "child = subprocess.Popen([sys.executable, '-c', 'import time, signal; "
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)']); "
        "print(child.pid, flush=True); time.sleep(60)"
    )
    log = tmp_path / f"{name}.log"
    return Process(name, [sys.executable, "-c", code], log, environment(tmp_path))


def ended(pid):
    """Wait until a process that was killed is gone, however busy the machine."""
    limit = time.monotonic() + 120
    while is_alive(pid):
        assert time.monotonic() < limit, f"process {pid} lives on"
        time.sleep(0.02)
    return True


def words(process):
    while not (said := process.words()):
        time.sleep(0.02)
    return said
