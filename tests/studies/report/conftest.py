"""Let the tests of the report share made-up results and a command line."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def command_line():
    """Run a command as the command line would, but let its errors be raised."""
    from focusfl.cli import parser

    def run(*words):
        options = parser().parse_args([str(word) for word in words])
        return options.command(options)

    return run
