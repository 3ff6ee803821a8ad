import os

import hypothesis
import jaxtyping
import pytest
from chromium import browser, chromium  # noqa: F401
from typechecks import checked

# Most of the time of a test goes into compiling small programs that run briefly. XLA's
# older way to write fused loops, in one piece, takes half as long at the same level of
# optimization. Set already, it stands: CI sets it to nothing and compiles as users do.
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
def as_a_user(monkeypatch):
    """Switch the test-only type checks off: a user meets our own messages."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
