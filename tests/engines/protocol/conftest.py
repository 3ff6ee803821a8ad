"""Let the tests of the wire share modules and a folder."""

import sys
import tempfile
from pathlib import Path

import pytest
from world.disk import memory

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def folder():
    """A folder for a while; in memory where we can, where an fsync costs nothing."""
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        yield Path(name)


@pytest.fixture
def begun(folder, as_a_user):
    """A function that begins a job of three sites."""
    from wire_job import Job

    jobs = []

    def begin(algorithm, **options):
        jobs.append(Job(algorithm, folder, **options))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.protocol.close()
