"""A SuperNode for short rounds: it looks for work often and keeps a Python warm.

Flower's own starts a Python for every message, which takes a second or two, and sleeps
for three when there is none. Takes the arguments of flower-supernode, in the same
words; what travels is the same.
"""

import atexit
import gc
import os
import select
import signal
import sys
import time
import types
from contextlib import suppress
from pathlib import Path

SLEEP = 0.4  # seconds between two looks for work
COMMAND = "flwr-clientapp"  # what Flower starts for a message, found by its name
BETWEEN = "\x1f"  # its arguments
SCRIPT = """#!/bin/sh
IFS=$(printf '\\037')
printf '%s\\n' "$*" > '{pipe}'
"""


def main() -> None:
    """Run a SuperNode until it is stopped."""
    gc.disable()
    # What children need is read once, here.
    import httpcore  # noqa: F401  # they would when they first connect
    from flwr.supercore.cli import flower_superexec
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode, flwr_clientapp

    import focusfl.deploy.study
    import focusfl.flower  # noqa: F401
    from focusfl.deploy import node

    folder = Path(os.environ["FLWR_HOME"]).resolve() / f"warm-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    pipe, script = folder / "pipe", folder / COMMAND
    os.mkfifo(pipe, 0o600)
    script.write_text(SCRIPT.format(pipe=pipe))
    script.chmod(0o700)
    parent = os.getpid()
    gc.freeze()  # pages that children look through for garbage would be copied
    gc.enable()
    if os.fork() == 0:
        _serve(pipe, parent, flwr_clientapp)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    # Flower's loop alone sees this clock.
    clock = {"sleep": lambda seconds: time.sleep(min(seconds, SLEEP))}
    vars(start_client_internal)["time"] = types.SimpleNamespace(**(vars(time) | clock))
    node.close(lambda words: _become(words, flower_superexec))
    flower_supernode()


def _become(words: list[str], run) -> None:
    """Run one of Flower's commands in a child, which need not read Python again.

    It ends as Python does, but without taking its modules apart, which takes as long as
    a message."""
    if os.fork() != 0:
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.argv = words
    with suppress(SystemExit):  # whose code nobody reads
        run()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _serve(pipe: Path, parent: int, run) -> None:
    """Become a child for every line of arguments, as long as the parent lives."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with open(os.open(pipe, os.O_RDWR), closefd=True) as lines:
        while os.getppid() == parent:
            if not select.select([lines], [], [], 0.5)[0]:
                continue
            words = lines.readline().rstrip("\n").split(BETWEEN)
            _become([COMMAND, *words], run)
    os._exit(0)


if __name__ == "__main__":
    main()
