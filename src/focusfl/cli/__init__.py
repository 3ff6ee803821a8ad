"""The command line: parse, call, print. Results to stdout, progress to stderr."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial

from focusfl import __version__
from focusfl.cli import (
    check,
    completion,
    data,
    deploy,
    doctor,
    new,
    reports,
    studies,
    suite,
)
from focusfl.core.validation import printable

COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # in what Flower's processes say
EXIT_BAD_INPUT, EXIT_INTERRUPTED = 2, 130
EXIT_UNREAD = 141  # as of a program that a closed pipe ends


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; give its exit code."""
    known = parser()
    completion.answer(known)
    options = known.parse_args(arguments)
    try:
        code = options.command(options)
        sys.stdout.flush()  # here, where a reader that has left can be told
        return code
    except BrokenPipeError:
        return _left_alone()
    except ValueError as error:
        words = COLOURS.sub("", str(error))
        print(f"focusfl: {printable(words, lines=True)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        words = printable(f"cannot use{where}: {error.strerror or error}")
        print(f"focusfl: {words}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print("focusfl: interrupted; no file was left unfinished", file=sys.stderr)
        sys.stderr.flush()
        # A thread that compiles cannot be stopped, and a normal exit would wait for it:
        # the prompt would come back only minutes after Ctrl-C.
        os._exit(EXIT_INTERRUPTED)


def _left_alone() -> int:
    """End quietly: whoever read what is printed, as `head`, has read enough."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())  # what is left to flush at exit goes there
    return EXIT_UNREAD


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    whole = argparse.ArgumentParser(
        prog="focusfl",
        description="Federated optimization that converges exactly, whatever clients show up.",
        epilog="example: focusfl demo",
    )
    whole.add_argument("--version", action="version", version=f"focusfl {__version__}")
    commands = whole.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, call: Callable, help: str, example: str, among=commands):
        sub = among.add_parser(
            name,
            help=help,
            description=help[0].upper() + help[1:] + ".",
            epilog=f"example: {example}",
        )
        sub.set_defaults(command=call, name=name)
        sub.add_argument("--json", action="store_true", help="print JSON for machines")
        return sub

    new.add(command)
    studies.add(command)
    reports.add(command)
    check.add(command)
    for add, name, what, example in [
        (
            studies.add_reproduce, "reproduce", "run an experiment of the paper again",
            "focusfl reproduce ridge",
        ),
        (
            deploy.add, "deploy", "run on Flower: processes, here or on many hosts",
            "focusfl deploy local study.toml --clients 4 --tls",
        ),
        (
            data.add, "data", "list, fetch and check data sets", "focusfl data list",
        ),
        (
            suite.add, "suite", "compare methods on the public suite of cells",
            "focusfl suite run --quick",
        ),
    ]:  # fmt: skip
        several = commands.add_parser(name, help=what, epilog=f"example: {example}")
        among = several.add_subparsers(required=True, metavar="COMMAND")
        add(partial(command, among=among))
    doctor.add(command)
    completion.add(command)
    return whole
