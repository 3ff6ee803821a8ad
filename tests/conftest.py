import pytest
from jaxtyping import config


@pytest.fixture
def as_a_user(monkeypatch):
    """Switch the test-only type checks off: a user meets our own messages."""
    monkeypatch.setattr(config, "jaxtyping_disable", True)
