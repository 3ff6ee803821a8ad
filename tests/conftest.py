import os

import hypothesis
import jaxtyping
import pytest
from chromium import browser, chromium  # noqa: F401
from typechecks import checked

# Most of the time of a test goes into compiling small programs that run briefly. XLA's
# older way to write fused loops, in one piece, takes half as long, and optimizing less
# half of that again: the numbers are the same but for rounding. What is set already
# stands, and tests that ask for `as_users_compile` optimize as users' programs do.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)
# Before anything of focusfl is imported: functions are wrapped as they are defined.
jaxtyping.jaxtyped = checked

# How long an example takes is a matter of what else the machine does.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


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
def as_a_user(monkeypatch):
    """Switch the test-only type checks off: a user meets our own messages."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
