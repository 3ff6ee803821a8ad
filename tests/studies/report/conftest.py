"""Let the tests of the report share made-up results and a command line."""

import argparse
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def command_line():
    """Run one of the report's commands as the command line would."""
    from focusfl.cli import reports as cli

    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)

    def command(name, call, help, example):
        sub = commands.add_parser(name, help=help, epilog=f"example: {example}")
        sub.set_defaults(command=call)
        sub.add_argument("--json", action="store_true")
        return sub

    cli.add(command)

    def run(*words):
        options = parser.parse_args([str(word) for word in words])
        return options.command(options)

    return run
