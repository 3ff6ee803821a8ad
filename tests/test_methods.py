"""The page of all methods says what the code says, and was measured so."""

import importlib
import re
from pathlib import Path

import pytest

import focusfl as ff
from focusfl.algorithms.wrapped import Wrapped

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "draw")
    return importlib.import_module("methods")


def block(mark):
    page = (DOCS / "methods.md").read_text()
    (found,) = re.findall(rf"<!-- {mark} -->\n(.*?)\n<!-- end -->", page, re.S)
    return found


def rows(text):
    """Cells by algorithm."""
    lines = re.findall(r"^\| `(.+?)` \| (.*) \|$", text, re.M)
    return {name: cells.split(" | ") for name, cells in lines}


def test_the_page_says_of_every_algorithm_what_its_code_does(script):
    """If it does not: python docs/draw/methods.py."""
    assert all(map(ff.ALGORITHMS.invariant, ff.ALGORITHMS.registered))
    assert script.claims() == block("claims")


def test_what_was_measured_is_what_was_claimed():
    """Exact ones got to 1e-8 in every scenario, if clients meet but the last; no other
    did in any."""
    claimed, measured = rows(block("claims")), rows(block("measured"))
    assert {ff.ALGORITHMS[name].__name__ for name in ff.ALGORITHMS} == claimed.keys()
    assert measured.keys() == {'Focus(memory="last")'} | {
        kind.__name__
        for kind in ff.ALGORITHMS.values()
        if kind is not ff.ProxSkip and not issubclass(kind, Wrapped)
    }
    for name, cells in measured.items():
        reached = [cell.startswith("**") for cell in cells]
        said = claimed[name.partition("(")[0]][3]
        bounded = said.startswith("η <")
        assert reached == [bounded] * 3 + [bounded and "meet" not in said], name
