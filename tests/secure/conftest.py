"""A folder in memory where we can: an fsync costs nothing there."""

import tempfile
from pathlib import Path

import pytest
from world.world import memory


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        yield Path(name)
