"""The command line for tests: in this process, or in one of its own."""

import io
import os
import re
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from unittest import mock

from focusfl.cli import main

ENDED = re.compile(r": [^,\n]+, error [^,\n]+, [\d.]+ s$", re.M)  # the line of a group


def in_process(*arguments, cwd=".", **environment):
    """Run a command here, as a user would, without the seconds that a start takes.

    What a command lets through is raised here; a process would show a traceback."""
    words = [str(word) for word in arguments]
    with (
        chdir(cwd),
        mock.patch.dict(os.environ, environment),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        try:
            code = main(words)
        except SystemExit as stop:
            code = stop.code
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def in_a_process(*arguments, cwd=".", **environment):
    """Run a command in a process of its own, which imports what it needs and no more.

    The time is for a command that hangs, however busy the machine."""
    return subprocess.run(
        [sys.executable, "-m", "focusfl.cli", *map(str, arguments)],
        capture_output=True, text=True, cwd=cwd, env=os.environ | environment,
        timeout=900,
    )  # fmt: skip
