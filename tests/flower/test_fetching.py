"""An answer that a site never finishes sending, and everybody else's."""

import threading
import time
from concurrent.futures import wait

import pytest

from focusfl.flower import link as links
from focusfl.flower.link import Fetcher


class Superlink:
    """Gives "answer to KEY", and waits for those that are not whole, as Flower does."""

    def __init__(self, *stuck):
        self.ready, self.stuck, self.calls = set(), set(stuck), []
        self.over = threading.Event()

    def pull(self, ids):
        self.calls.append(list(ids))
        found = [key for key in ids if key in self.ready | self.stuck]
        if self.stuck & {*found}:
            self.over.wait(60)
        self.ready -= {*found}
        return [f"answer to {key}" for key in found]


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(links, "STALL", 0.2)
    monkeypatch.setattr(links, "PROMPT", 0.2)


def test_who_never_ends_keeps_nobody_waiting():
    link = Superlink("rome")
    fetcher, asked = Fetcher(link.pull), ["paris", "rome", "oslo"]
    fetch = fetcher.fetch
    began = time.monotonic()
    assert fetch(asked) == []
    link.ready |= {"paris", "oslo"}
    assert sorted(fetch(asked)) == ["answer to oslo", "answer to paris"]
    for _ in range(5):  # the one to blame is known, and not asked for again
        assert fetch(["rome", "bern"]) == []
    assert sum("rome" in call for call in link.calls) == 2
    link.ready.add("bern")
    assert fetch(["rome", "bern"]) == ["answer to bern"]
    assert time.monotonic() - began < 30  # who waits, waits for a minute
    link.over.set()
    wait(fetcher._calls, 10)
    assert set(fetch(["rome"])) == {"answer to rome"}


def test_what_was_fetched_with_who_never_ends_comes_with_it():
    link = Superlink("rome")
    link.ready.add("paris")
    fetcher = Fetcher(link.pull)
    fetch = fetcher.fetch
    assert fetch(["paris", "rome"]) == []
    link.ready.clear()  # it was given to the call that waits
    assert fetch(["paris", "rome"]) == []
    link.over.set()
    wait(fetcher._calls, 10)
    assert "answer to paris" in fetch(["paris"])


def test_a_failure_is_raised_unless_something_has_come():
    def fail(ids):
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        Fetcher(fail).fetch(["paris"])
