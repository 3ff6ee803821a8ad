"""The command line: parse, call, print. Results to stdout, progress to stderr."""

import argparse
import os
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from focusfl import __version__
from focusfl.cli import check, completion, data, deploy, doctor, new, reports, studies, suite
from focusfl.cli.options import COMMANDS
from focusfl.core.validation import printable

MODULES = (new, studies, reports, check, deploy, data, suite, doctor, completion)  # as in --help
GROUPS = {  # commands of several words: what they are for, and an example
    "reproduce": ("run an experiment of the paper again", "focusfl reproduce ridge"),
    "deploy": (
        "run on Flower: processes, here or on many hosts",
        "focusfl deploy local study.toml --clients 4 --tls",
    ),
    "data": ("list, fetch and check data sets", "focusfl data list"),
    "suite": ("compare methods on the public suite of cells", "focusfl suite run --quick"),
}
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
    places = {"": whole.add_subparsers(title="commands", required=True, metavar="COMMAND")}
    order = [module.__name__ for module in MODULES]
    for command in sorted(COMMANDS, key=lambda each: order.index(each.call.__module__)):
        group, _, name = command.name.rpartition(" ")
        if group not in places:
            what, example = GROUPS[group]
            several = places[""].add_parser(group, help=what, epilog=f"example: {example}")
            places[group] = several.add_subparsers(required=True, metavar="COMMAND")
        sub = places[group].add_parser(
            name,
            help=command.help,
            description=command.help[0].upper() + command.help[1:] + ".",
            epilog=f"example: {command.example}",
        )
        sub.set_defaults(command=command.call, name=name)
        sub.add_argument("--json", action="store_true", help="print JSON for machines")
        exclusive: Any = defaultdict(sub.add_mutually_exclusive_group)
        for option in command.options:
            option.add(exclusive[option.excludes] if option.excludes else sub)
    return whole
