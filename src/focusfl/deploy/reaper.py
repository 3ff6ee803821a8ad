"""Ends what a process has started when that process is gone, be it by kill -9.

It reads +PID and -PID of process groups from its input, which ends with whoever writes
there. Run as a file, with nothing but what Python brings.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Remember groups until the input ends, then end those that are left."""
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
