"""`make bench` fails where something got much slower than what is stored."""

import ast
import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STORED = json.loads((ROOT / "benchmarks" / "ratios.json").read_text())
NAME = next(iter(STORED))


@pytest.fixture
def guard(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("guard")


@pytest.mark.parametrize(
    "change, told",
    [
        ({}, ""),
        ({NAME: 0.81 * STORED[NAME]}, ""),
        ({NAME: 2 * STORED[NAME]}, ""),
        ({NAME: 0.79 * STORED[NAME]}, f"{NAME}: "),
        ({"a new one": 1.0}, "a new one: store it"),
    ],
)
def test_what_got_slower_is_named_and_fails(change, told, guard, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(guard, "measured", lambda quick: STORED | change)
    file = tmp_path / "build" / "bench.json"
    assert guard.main(["--out", str(file)]) == (1 if told else 0)
    said = capsys.readouterr().err.strip()
    assert said.startswith(told) and said.count("\n") == 0 and bool(said) == bool(told)
    assert json.loads(file.read_text()).keys() == {*STORED, *change}


def test_what_is_no_longer_measured_is_missed(guard):
    assert guard.slower(STORED, {}) and all(ratio > 0 for ratio in STORED.values())


@pytest.mark.filterwarnings("ignore")  # of what others import
def test_scripts_use_what_there_is():
    """A name of focusfl that has moved breaks a script that no test runs."""
    used = set()
    for folder in ("benchmarks", "experiments", "docs", "examples"):
        for script in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(script.read_text())):
                module = getattr(node, "module", None) or ""
                if isinstance(node, ast.ImportFrom) and module.split(".")[0] == "focusfl":
                    used |= {(script.name, module, alias.name) for alias in node.names}
    assert len(used) > 30
    assert not [names for names in used if not there(*names[1:])]


def there(module: str, name: str) -> bool:
    """Whether a module can be imported and has a name, or a module of that name."""
    try:
        return hasattr(importlib.import_module(module), name) or bool(
            importlib.import_module(f"{module}.{name}")
        )
    except ModuleNotFoundError:
        return False
