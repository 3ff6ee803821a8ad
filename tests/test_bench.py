"""What `make bench` measured against what is stored: nothing may get much slower."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STORED = ROOT / "benchmarks/ratios.json"
MEASURED = ROOT / "build/bench.json"
SHARE = 0.8  # of a stored ratio that is still taken for noise


def slower(stored, measured):
    """What fell below its share, in words."""
    assert set(measured) == set(stored), "store the ratios again: guard.py --store"
    return [
        f"{name}: {measured[name]:.2f}, was {stored[name]:.2f}"
        for name in stored
        if measured[name] < SHARE * stored[name]
    ]


def test_what_got_slower_is_named():
    stored = json.loads(STORED.read_text())
    assert stored and all(ratio > 0 for ratio in stored.values())
    assert slower(stored, stored) == []
    name = next(iter(stored))
    found = slower(stored, {**stored, name: 0.79 * stored[name]})
    assert len(found) == 1 and found[0].startswith(name)
    assert slower(stored, {**stored, name: 0.81 * stored[name]}) == []


def test_nothing_got_slower():
    if not MEASURED.exists():
        pytest.skip("nothing was measured: run `make bench` first")
    found = slower(json.loads(STORED.read_text()), json.loads(MEASURED.read_text()))
    assert not found, "\n".join(found)
