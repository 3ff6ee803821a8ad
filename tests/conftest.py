import gc
import os
import shutil
import tempfile
import threading
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
from chromium import browser, chromium  # noqa: F401
from typechecks import checked, unchecked

# No garbage is looked for while everything is imported: that took a third of the time.
gc.disable()

# Most of the time of a test goes into compiling small programs that run briefly. XLA's
# older way to write fused loops, in one piece, takes half as long, and optimizing less
# half of that again: the numbers are the same but for rounding. What is set already
# stands, and tests that ask for `as_users_compile` optimize as users' programs do.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)
# Several processes share two cores: threads of their own would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test downloads anything but from a server of its own.
os.environ["FOCUSFL_OFFLINE"] = "1"
# What tests write and sync, some ten thousand small files, is nothing to keep: it is in
# memory where there is room.
MEMORY = Path("/dev/shm")
there = "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK)
if there and shutil.disk_usage(MEMORY).free > 2 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
# What one process of the tests has compiled, the others read, their children, and those
# of the next `make test`.
KEPT = "JAX_COMPILATION_CACHE_DIR"
if KEPT not in os.environ:
    ours = Path(__file__).parents[1] / ".jax_cache"
    if sum(file.stat().st_size for file in ours.glob("*")) > 1 << 30:
        shutil.rmtree(ours)  # of programs that nobody compiles any more
    os.environ[KEPT] = str(ours)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
# Every Python that tests start reads sitecustomize.py there.
children = str(Path(__file__).with_name("children"))
read = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([children, *read]))
# Tests of many seconds, in the order in which they begin: one process must not be left
# alone with them at the end.
LONG = tuple(
    f"tests/{name}"
    for name in (
        "test_types.py", "deploy/", "test_site.py", "test_docs.py", "studies/",
        "world/", "simulation/test_devices.py", "flower/",
        "studies/report/test_terminal.py",
    )
)  # fmt: skip
# Before anything of focusfl is imported: functions are wrapped as they are defined.
jaxtyping.jaxtyped = checked

# How long an example takes is a matter of what else the machine does.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


# What a test marked `needs(NAME)` cannot run without, and what has it. Fixtures that
# use such a thing mark their tests by themselves.
NEEDS = {
    "data": "FOCUSFL_DATA, a folder with the real data sets",
    **{name: f"the program {name}" for name in (
        "chromedriver", "fish", "nginx", "pdflatex", "strace", "unshare", "zsh",
    )},
}  # fmt: skip
NEEDED_BY = {"browser": "chromedriver", "chromium": "chromedriver", "real_data": "data"}


def pytest_runtest_setup(item):
    """Skip a test that needs what is not there; the summary has a line per reason."""
    marked = {name for mark in item.iter_markers("needs") for name in mark.args}
    for name in sorted(marked):
        there = "FOCUSFL_DATA" in os.environ if name == "data" else shutil.which(name)
        if not there:
            pytest.skip(f"needs {NEEDS[name]}")


@pytest.fixture(scope="session")
def real_data():
    """The folder with the real data sets."""
    return Path(os.environ["FOCUSFL_DATA"])


def pytest_collection_modifyitems(items):
    for item in items:
        for fixture in NEEDED_BY.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.needs(NEEDED_BY[fixture]))

    def turn(item):
        mine = (k for k, name in enumerate(LONG) if item.nodeid.startswith(name))
        return next(mine, len(LONG))

    items.sort(key=turn)


def pytest_collection_finish(session):
    """Look for garbage less often, and not in all that was imported: that took 7 % of
    the time of tests that compile."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
    _write_programs_in_few_contexts()


def _write_programs_in_few_contexts(programs=100):
    """MLIR's contexts take three milliseconds to make, as long as it takes to write a
    small program; jax makes one for each."""
    from jax._src.interpreters import mlir

    make, mine = mlir.make_ir_context, threading.local()

    def shared():
        if getattr(mine, "left", 0) == 0:
            mine.context, mine.left = make(), programs
        mine.left -= 1
        return mine.context

    mlir.make_ir_context = shared


def pytest_unconfigure(config):
    gc.freeze()  # nor while Python takes everything apart


@pytest.fixture
def as_users_compile(monkeypatch):
    """Optimize what is compiled: it pays where a test runs for seconds."""
    import jax

    name = "jax_disable_most_optimizations"
    monkeypatch.delenv(name.upper(), raising=False)
    before = jax.config.read(name)
    jax.config.update(name, False)
    yield
    jax.config.update(name, before)


@pytest.fixture
def as_a_user():
    """Switch the test-only type checks off: a user meets our own messages."""
    with unchecked():
        yield
