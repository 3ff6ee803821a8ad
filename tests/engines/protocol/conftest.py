"""Let the tests of the wire share modules and a folder."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def folder():
    from wire_world import scratch

    with scratch() as name:
        yield Path(name)
