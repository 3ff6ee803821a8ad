"""What all tests share: no downloads, and a reason for every test that is skipped."""

import os
import shutil
from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ["chromium"]  # the browser, as a fixture

os.environ["FOCUSFL_OFFLINE"] = "1"  # no test downloads but from a server of its own
# What one process of the tests has compiled, the others read, and those of the next run.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # small programs too
# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


def pytest_collection_modifyitems(items):
    """Mark the tests that use a fixture which needs something; `-m needs` selects them."""
    for item in items:
        for fixture, name in (("chromium", "chromedriver"), ("real_data", "data")):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.needs(name))


def pytest_runtest_setup(item):
    """Skip a test whose `needs(NAME)` is not there; the summary has a line per reason."""
    for name in sorted({name for mark in item.iter_markers("needs") for name in mark.args}):
        if name == "data" and "FOCUSFL_DATA" not in os.environ:
            pytest.skip("needs FOCUSFL_DATA, a folder with the real data sets")
        if name != "data" and not shutil.which(name):
            pytest.skip(f"needs the program {name}")


@pytest.fixture(scope="session")
def real_data():
    """The folder with the real data sets."""
    return Path(os.environ["FOCUSFL_DATA"])
