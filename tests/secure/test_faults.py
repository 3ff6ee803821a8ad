"""A sample of `python tests/secure`: its laws hold, and can be broken."""

import pytest

from focusfl.flower.secure import site
from focusfl.flower.secure.session import Session
from secure import life
from secure.life import Violation, live


@pytest.mark.parametrize("seed", range(6))
def test_secure_sums_live_through_faults(seed):
    tally, gap, error = live(seed, settle=seed % 3 == 0)
    assert tally["sessions"] == life.SESSIONS and gap < 1e-12 and error <= 1e-10


def test_a_server_that_counts_a_site_that_is_not_in_the_sum_is_caught(monkeypatch):
    total = Session.total

    def planted(self):
        found = total(self)
        return found - next(iter(self.masked.values()))

    monkeypatch.setattr(Session, "total", planted)
    with pytest.raises(Violation, match="what is tracked is wrong"):
        live(0, settle=False)


def test_a_site_that_forgets_what_it_has_said_is_caught(monkeypatch):
    """Asked again, it makes other keys."""
    load = site.load

    def planted(path):
        held = load(path)
        return held and held._replace(request="", session=0)

    monkeypatch.setattr(site, "load", planted)
    with pytest.raises(Violation, match="another reply"):
        live(0, settle=False)
