"""Implementations from outside: right ones pass, and what is wrong is named."""

import json
import re
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from command_line import in_process

import focusfl as ff
from focusfl.conformance import ROWS, check, rules
from focusfl.conformance.problem import standard

PAGE = Path(__file__).parent.parent / "docs" / "conformance.md"
(EXAMPLE,) = re.findall("```python\n(.*?)```", PAGE.read_text(), re.S)


def written(*changes: tuple[str, str]) -> type:
    """The page's implementation, with lines that somebody got wrong."""
    code = EXAMPLE
    for right, wrong in changes:
        assert code.count(right) == 1, right
        code = code.replace(right, wrong)
    names: dict = {}
    exec(code, names)
    return names["Mine"]


def test_the_implementation_of_the_page_is_scaffold_and_exact():
    report = check(written())
    assert report.exact and report.like == ("SCAFFOLD II",)
    assert report.words() == "behaves like SCAFFOLD II"
    assert [row.row for row in report.rows] == list(ROWS)
    assert all(row.error < 1e-8 for row in report.rows)


@pytest.mark.parametrize(
    "algorithm, name",
    [
        (ff.Focus(), "FOCUS"),
        (ff.Focus(warm_start=True), "FOCUS, warm start"),
        (ff.Scaffold(), "SCAFFOLD II"),
        (ff.Scaffold(option=1), "SCAFFOLD I"),
        (ff.Focus, "FOCUS"),
    ],
)
def test_exact_algorithms_of_the_library_pass(algorithm, name):
    report = check(algorithm)
    assert report.exact and report.like == (name,)


@pytest.mark.parametrize(
    "algorithm, row",
    [(ff.Scaffnew(), "blocks"), (ff.FedAvg(), "uniform"), (ff.MIFA(), "full")],
)
def test_biased_algorithms_are_told_from_exact_ones(algorithm, row):
    report = check(algorithm, rows=(row,))
    (only,) = report.rows
    assert only.verdict == "biased" and 0.003 < only.error < 0.2
    assert only.error_smaller_step < 0.7 * only.error
    assert type(algorithm).__name__ in report.like and not report.exact


OWN = "                own[i] = new\n"
BUGS = {
    "SCAFFOLD II, correction of the wrong sign": ("+ c - own[i])", "- c + own[i])"),
    "SCAFFOLD II, c moves by the mean of S, without |S|/N": (
        "sum(dc) / N", "sum(dc) / len(dc)",
    ),
    "SCAFFOLD II, x moves by the sum over N, not the mean of S": (
        "sum(dx) / len(dx)", "sum(dx) / N",
    ),
    "SCAFFOLD II, c_i begins as the model": ("np.zeros((self.", "x + np.zeros((self."),
    "SCAFFOLD II, c_i is never written back": (OWN, ""),
    "SCAFFOLD II, the last client overwrites the sum of c": (
        "dc.append(new - own[i])", "dc[:] = [new - own[i]]",
    ),
    "SCAFFOLD II, c_i is not divided by the local steps": (
        "(lr * self.problem.steps[i])", "lr",
    ),
    "SCAFFOLD II, memory advances though the reply was lost": (OWN, OWN[4:]),
    "SCAFFOLD I": (
        "own[i] - c + (x - z) / (lr * self.problem.steps[i])",
        "self.problem.gradient(i, x)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_every_planted_slip_is_called_by_its_name(name):
    report = check(written(BUGS[name]), rows=("lost",))
    assert report.like == (name,)
    harmless = name == "SCAFFOLD I" or name.startswith("SCAFFOLD II, x moves")
    assert report.exact == harmless


@pytest.mark.parametrize("slip", [{"mean": True}, {"whole": True}, {"kept": False}])
def test_slips_of_focus_are_called_by_their_name(slip):
    made = partial(rules.SlippedFocus, **slip)
    report = check(made, rows=("sizes",))
    (name,) = report.like
    assert name.startswith("FOCUS, ") and report.rows[0].verdict != "exact"


def test_rules_without_their_slips_are_the_librarys():
    for row in ROWS.values():
        if row.unequal:
            continue
        for made, algorithm in [
            (rules.Slipped, ff.Scaffold()),
            (partial(rules.Slipped, option=1), ff.Scaffold(option=1)),
            (rules.SlippedFocus, ff.Focus()),
        ]:
            ours = ff.conformance.of_algorithm(algorithm)
            assert np.allclose(_path(made, row), _path(ours, row), rtol=1e-12)


def _path(make, row, rounds=10):
    from focusfl.conformance.rows import schedule

    one = make(standard())
    state, models = one.start(), []
    for (participants, lost), _ in zip(schedule(row), range(rounds), strict=False):
        state = one.round(state, participants, lost)
        models.append(one.model(state))
    return np.array(models)


def test_no_two_rules_can_be_taken_for_each_other():
    """In some row their models differ by more than a comparison allows."""
    way = np.linalg.norm(standard().x0 - standard().optimum)
    everything = {row: rules.paths(row) for row in ROWS.values()}
    known, published = rules.rules(), {*rules.library()}
    assert len({rule.name for rule in known}) == len(known) > 50
    for k, one in enumerate(known):
        for other in known[:k]:
            plain = {one.of or one.name, other.of or other.name}
            if other.name == one.of or plain <= published:
                continue  # the same but for lost replies, or as their papers have it
            apart = [
                np.abs(found[one.name] - found[other.name]).max()
                for found in everything.values()
                if one.name in found and other.name in found
            ]
            assert not max(apart) < 5e-4 * way, (one.name, other.name)


class Moves:
    """Goes its way, whoever takes part: `where` says where it is after k rounds."""

    def __init__(self, where, problem):
        self.problem, self.where = problem, where

    def start(self):
        return 0

    def round(self, state, participants):
        return state + 1

    def model(self, state):
        p = self.problem
        if not state:
            return p.x0
        return p.optimum + self.where(state) * (p.x0 - p.optimum)


@pytest.mark.parametrize(
    "where, verdict, said",
    [
        (lambda k: 0.9**k, "exact", ""),
        (lambda k: 0.999**k, "unsettled", "a factor 0.99900 each"),
        (lambda k: 0.99995**k, "unsettled", "a factor 0.99995 each"),
        (lambda k: 0.2 * 0.999**k, "unsettled", "a factor 0.99900 each"),
        (lambda k: 0.9**k + 1e-3, "biased", "rests 0.001 away; with a step"),
        (lambda k: 0.5 * np.sin(k), "biased", ""),  # it comes by, and goes on
        (lambda k: 1e-9 if k % 15 else 0.3, "biased", ""),
        (lambda k: 1.2**k, "diverged", "in round 51; with a step 4 times smaller too"),
        (lambda k: np.nan if k == 7 else 1, "failed", "not finite after round 7"),
    ],
)
def test_no_more_is_said_than_was_seen(where, verdict, said):
    (row,) = check(partial(Moves, where), rows=("full",)).rows
    assert row.verdict == verdict and said in row.reason


def test_what_no_rule_does_is_like_none_and_the_nearest_is_named():
    late = written(("return x + sum", "return x + (len(dx) != 5) * sum"))
    report = check(late, rows=("sizes",))
    (row,) = report.rows
    assert not report.like and row.nearest == "SCAFFOLD II" and row.leaves_in > 1
    assert "like none of" in report.words() and "SCAFFOLD II" in report.words()


def test_a_row_that_an_implementation_does_not_know_is_not_held_against_it():
    short = written(
        ("participants, lost)", "participants)"), ("if i not in lost", "if True"),
        ("own_steps = True", "own_steps = False"),
    )  # fmt: skip
    report = check(short, rows=("full", "lost", "steps"))
    assert report.exact
    assert [row.verdict for row in report.rows[1:]] == ["not applicable"] * 2
    assert not check(short, rows=("lost",)).exact


FILE = (
    EXAMPLE
    + """

class Raises(Mine):
    def round(self, *_):
        raise KeyError("gone")

class Hangs(Mine):
    def round(self, *_):
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
        (["nowhere:Mine"], "cannot find nowhere: there is no "),
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
        "import sys, focusfl.conformance.child; "
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
