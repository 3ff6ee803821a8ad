import hypothesis
import pytest
from jaxtyping import config

# How long an example takes is a matter of what else the machine does.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


@pytest.fixture
def as_a_user(monkeypatch):
    """Switch the test-only type checks off: a user meets our own messages."""
    monkeypatch.setattr(config, "jaxtyping_disable", True)
