"""Implementations by name: in processes of their own, and by the command."""

import json
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import in_process
from planted import EXAMPLE, PAGE

from focusfl.conformance import check

FILE = (
    EXAMPLE
    + """

class Raises(Mine):
    def round(self, *_):
        raise KeyError("gone")

class Hangs(Mine):
    def round(self, *_):
        import os; open("pid", "w").write(str(os.getpid()))
        while True:
            pass

class Dies(Mine):
    def round(self, *_):
        print("farewell")
        import os; os._exit(3)

class Wide(Mine):
    def model(self, state):
        return np.zeros((2, 2))

class Elsewhere(Mine):
    def model(self, state):
        return state[0] + 1

class Forgets(Mine):
    def round(self, *_):
        pass

class Empty:
    def __init__(self, problem):
        pass
"""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("mine")
    (made / "mine.py").write_text(FILE)
    (made / "broken.py").write_text("import nothing_like_it")
    return made


@pytest.mark.parametrize(
    "name, said",
    [
        ("Raises", "round raised KeyError in round 1: 'gone'"),
        ("Hangs", "hangs: the row may take 0.5 s; killed in round 1 or later."),
        ("Dies", "its process ended by exit code 3: farewell"),
        ("Wide", r"model\(state\) must have shape \(4,\); got \(2, 2\)."),
        ("Elsewhere", r"the model must begin at problem.x0; got \[.*\]."),
        ("Forgets", "round returned None; it must return the next state."),
        ("Empty", "it must have start.* got <mine.Empty object.*, without start."),
    ],
)
def test_what_cannot_be_driven_gets_one_line(name, said, folder, capfd):
    report = check(f"mine:{name}", rows=("full",), limit=0.5, folder=folder)
    (row,) = report.rows
    assert row.verdict == "failed" and not report.exact
    assert re.fullmatch(said.replace("<mine.", "<.*"), row.reason), row.reason
    assert capfd.readouterr() == ("", "")


def test_an_implementation_that_hangs_does_not_outlive_who_asked(folder):
    code = "from focusfl.conformance import check; check('mine:Hangs', limit=600)"
    who = subprocess.Popen([sys.executable, "-c", code], cwd=folder)
    written = folder / "pid"
    assert _within(60, lambda: written.exists() and written.read_text())
    who.kill()
    who.wait()
    stat = Path("/proc", written.read_text(), "stat")
    assert _within(20, lambda: not stat.exists() or " Z " in stat.read_text())


def _within(seconds, done):
    ends = time.monotonic() + seconds
    while not done() and time.monotonic() < ends:
        time.sleep(0.05)
    return done()


def test_the_command_says_what_the_library_says(folder):
    done = in_process("check", "mine:Mine", "--rows", "full,coins", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("mine:Mine behaves like SCAFFOLD II.\n")
    assert "checking mine:Mine: coins" in done.stderr
    done = in_process("check", "mine:Raises", "--rows", "full", "--json", cwd=folder)
    found = json.loads(done.stdout)
    assert done.returncode == 1 and not found["exact"]
    assert found["rows"][0]["verdict"] == "failed"


@pytest.mark.parametrize(
    "words, said",
    [
        (["mine"], "'mine' must be like my_module:make."),
        (["mine:Mone"], "mine has no class or function 'Mone'; it has Mine, Raises"),
        (["nowhere:Mine"], "ModuleNotFoundError: No module named 'nowhere'"),
        (["broken:Mine"], "cannot be imported: ModuleNotFoundError: No module named"),
        (["mine:Mine", "--rows", "ful"], "unknown row: 'ful'. Did you mean 'full'?"),
        (["mine:Mine", "--rows", ","], "rows must name one at least; known: full, "),
        (["mine:Mine", "--limit", "0"], "limit must be positive and finite; got 0.0."),
        (["mine:Mine", "--python", "/no/python"], "cannot use /no/python: No such"),
    ],
)
def test_bad_input_is_told_in_one_line(words, said, folder):
    done = in_process("check", *words, cwd=folder)
    assert done.returncode == 2 and not done.stdout
    assert said in done.stderr and done.stderr.count("\n") == 1


def test_what_is_no_implementation_is_refused():
    with pytest.raises(ValueError, match=r"must be make\(problem\), its name as mod"):
        check(3)


def test_the_process_of_an_implementation_needs_numpy_alone():
    code = (
        "import sys, focusfl.conformance.driver; "
        "print({'jax', 'jaxtyping', 'pydantic', 'rich'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_the_table_of_the_page_is_what_the_script_kept(monkeypatch, tmp_path):
    """And the adapters are sound; what they import is in other environments."""
    folder = PAGE.parent.parent / "benchmarks" / "conformance"
    monkeypatch.syspath_prepend(folder)
    for script in folder.glob("*.py"):
        compile(script.read_text(), script.name, "exec")
    script = runpy.run_path(str(folder / "run.py"))
    kept = json.loads((folder / "results.json").read_text())
    emptied = re.sub("(begin -->).*(<!-- pack)", r"\1\2", PAGE.read_text(), flags=re.S)
    (tmp_path / "page.md").write_text(emptied)
    monkeypatch.setitem(script["write"].__globals__, "PAGE", tmp_path / "page.md")
    script["write"](kept)
    assert (tmp_path / "page.md").read_text() == PAGE.read_text()
    packages = script["PACKAGES"]
    assert len(kept) >= 5 and set(kept) <= set(packages)
    for package in packages.values():
        assert (folder / f"{package.adapter.partition(':')[0]}.py").exists()


def test_the_command_offers_all_rows():
    from focusfl import conformance
    from focusfl.cli import check

    assert tuple(conformance.ROWS) == check.ROWS
