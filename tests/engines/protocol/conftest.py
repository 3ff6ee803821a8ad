"""Let the tests of the wire share modules and a folder."""

import sys
import tempfile
from functools import partial
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
def beginning(folder, as_a_user):
    """A function that begins a job of a kind, which ends with the test."""
    jobs = []

    def begin(kind, algorithm, **options):
        jobs.append(kind(algorithm, folder, **options))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.protocol.close()


@pytest.fixture
def begun(beginning):
    """A function that begins a job of three sites."""
    from wire_job import Job

    return partial(beginning, Job)
