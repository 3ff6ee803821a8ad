"""The suite as a user runs it: on small cells, killed and resumed, with a newcomer."""

import json

import numpy as np
import pytest
from command_line import in_process

import focusfl as ff
from focusfl.suite import cells, entrants, measure, run, store
from focusfl.suite.cells import LAWS, Cell
from focusfl.suite.measure import FIRST
from focusfl.suite.progress import progress

EASY = {"kind": "quadratics", "condition": 3, "seed": 0}
TINY = [Cell("small", law, "reporting", EASY, LAWS[law], rounds=256) for law in ("full", "rare")]
MINE = r"""
from dataclasses import dataclass
import focusfl as ff

@dataclass(frozen=True)
class Mine(ff.Focus):
    '''FOCUS under another name.'''

def two():
    return [Mine(), Mine(warm_start=True)]

class Broken(Mine):
    def update(self, server, total, rd):
        raise RuntimeError("no idea\nwhat to do")

def none():
    return 7
"""


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(measure, "SEEDS", (0,))
    kept = cells.CELLS[:]
    cells.CELLS[:] = TINY
    yield
    cells.CELLS[:] = kept


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """FOCUS and FedAvg on two cells, interrupted after the first result."""
    place = tmp_path_factory.mktemp("suite")
    kept, seeds = cells.CELLS[:], measure.SEEDS
    cells.CELLS[:], measure.SEEDS = TINY, (0,)
    who = entrants.entered(["FOCUS", "FedAvg"])

    def interrupt(todo, all):
        assert (todo, all) == (4, 4)

        def tell(row):
            raise KeyboardInterrupt

        return tell

    with pytest.raises(KeyboardInterrupt):
        run.run(TINY, who, place, began=interrupt)
    assert len(store.Store(place).rows()) == 1
    told = []
    rows = run.run(TINY, who, place, began=lambda todo, all: told.append)
    assert len(told) == 3 and len(rows) == 4  # what was found is not found again
    cells.CELLS[:], measure.SEEDS = kept, seeds
    return place


def test_a_run_that_was_interrupted_goes_on_where_it_was(folder):
    told = []
    run.run(TINY, entrants.entered(["FOCUS", "FedAvg"]), folder,
            began=lambda *count: told.append(count) or told.append)  # fmt: skip
    assert told == [(0, 4)]


def test_results_say_what_was_best_and_what_it_cost(folder):
    focus, fedavg = store.Store(folder).rows()[:2]
    assert (focus.cell, focus.entrant, focus.ours) == ("small/full", "FOCUS", True)
    assert focus.value == focus.rounds < 60 and 1 / 128 < focus.step < 1
    assert focus.vectors == 2 * 16 * focus.rounds
    assert focus.bytes == 8 * 20 * focus.vectors
    assert focus.gradients == 5 * 16 * focus.rounds and focus.seconds > 0
    assert focus.near >= 2 and focus.runs >= 2 * len(FIRST)
    assert fedavg.value == np.inf and fedavg.error > 1e-6  # biased


def test_the_rounds_are_those_of_a_run_alone_at_that_step(folder):
    focus = store.Store(folder).rows()[0]
    problem = measure.problem_of(EASY)
    alone = ff.simulate(
        ff.Focus(memory="last"), problem, ff.participation.Full(), rounds=256,
        lr=focus.step, local_steps=5, callbacks=ff.Stop(tolerance=1e-10),
    )  # fmt: skip
    distance = alone.metrics["distance"]
    assert distance[int(focus.rounds)] <= 1e-8 < distance[int(focus.rounds) - 1]


def test_a_process_of_its_own_finds_the_same(folder, tmp_path):
    (row,) = run.run(TINY[:1], entrants.entered(["FOCUS"]), tmp_path, workers=1)
    here = store.Store(folder).rows()[0]
    assert (row.step, row.rounds, row.key) == (here.step, here.rounds, here.key)


def test_one_file_is_enough_to_go_on_from(folder, tmp_path):
    (tmp_path / store.RESULTS).write_bytes((folder / store.RESULTS).read_bytes())
    who = entrants.entered(["FOCUS", "FedAvg"])
    assert run.units(TINY, who, tmp_path, None) == []


def test_a_run_whose_minutes_are_over_stops_at_the_next_result(folder, tmp_path):
    who = entrants.entered(["FOCUS", "FedAvg"])
    with progress(minutes=1e-9) as began:
        rows = run.run(TINY, who, tmp_path, began=began)
    assert len(rows) == 1


def test_another_cell_or_constant_is_another_result(folder):
    (focus,) = entrants.entered(["FOCUS"])
    names = {
        store.key_of(cell, one, code)
        for cell in (TINY[0], TINY[0]._replace(rounds=99))
        for one in (focus, focus._replace(local_steps=1))
        for code in ("a", "b")
    }
    assert len(names) == 8


def test_what_is_of_another_rule_is_left_out(folder, monkeypatch):
    file = store.save(folder / "all.json", store.Store(folder).rows())
    assert len(store.load(file)) == 4
    monkeypatch.setattr(store, "RULE", ("another",))
    assert store.load(file) == [] and store.Store(folder).rows() == []


def test_a_damaged_result_is_said_and_left_to_run(folder, tmp_path, capsys):
    there = store.Store(tmp_path)
    row = store.Store(folder).rows()[0]
    there.put(row, {})
    (file,) = (tmp_path / "runs").iterdir()
    assert there.rows() == [row] and capsys.readouterr().err == ""
    file.write_text(file.read_text().replace('"rounds": ', '"rounds": 1'))
    assert there.rows() == []
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{file.name} is damaged" in line and "It is run again." in line
    whole = store.save(tmp_path / store.RESULTS, [row])
    whole.write_text(whole.read_text().replace("true", "false", 1))
    with pytest.raises(ValueError, match="results.json is damaged"):
        store.load(whole)


def test_somebodys_algorithm_is_run_alone_and_compared(folder, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    store.save(shipped := tmp_path / "shipped.json", store.Store(folder).rows())
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "SHIPPED", shipped)
        rows = run.run(TINY[:1], entrants.entered(["mine:two"]), out, home=tmp_path)
        together = run.compared(rows, store.load(shipped))
    (own,) = rows
    assert own.entrant == "mine:two" and np.isfinite(own.value)
    assert own.runs >= 4 * len(FIRST)  # of both constants
    assert [row.entrant for row in together] == ["FOCUS", "FedAvg", "mine:two"]


def test_one_that_breaks_is_named_and_the_others_are_run_all_the_same(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    who = entrants.entered(["mine:Broken", "FOCUS"])
    words = "mine:Broken in small/full: RuntimeError: no idea what to do$"
    with pytest.raises(ValueError, match=words):
        run.run(TINY[:1], who, tmp_path / "out", home=tmp_path)
    assert [row.entrant for row in store.Store(tmp_path / "out").rows()] == ["FOCUS"]


def test_show_prints_tables_and_writes_a_page(folder):
    shown = in_process("suite", "show", folder, "--alone")
    assert shown.returncode == 0, shown.stderr
    assert "small/full" in shown.stdout and "Wins and worst cells" in shown.stdout
    page = (folder / "suite.html").read_text()
    assert "<svg" in page and "Performance profiles" in page and "http-equiv" in page
    told = json.loads(in_process("suite", "show", folder, "--json").stdout)
    assert told["results"][1]["value"] is None and "reporting" in told["tables"]


def test_list_names_cells_and_entrants():
    found = json.loads(in_process("suite", "list", "--json").stdout)
    assert [*found["cells"]] == ["small/full", "small/rare"]
    assert "FOCUS" in found["entrants"]
    assert "small" in in_process("suite", "list").stdout


def test_a_run_that_was_not_finished_says_so(folder, monkeypatch):
    monkeypatch.setattr(run, "run_units", lambda *_: iter(()))
    told = in_process("suite", "run", "--out", folder, "--algorithms", "FOCUS,FedAU")
    assert told.returncode == 0 and "2 of 4 results are there" in told.stderr
    assert "FedAvg" in told.stdout  # what else the folder has is shown with it


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--cells", "nowhere"], "unknown cell: 'nowhere'"),
        (["--algorithms", "nobody"], "unknown algorithm: 'nobody'"),
        (["--algorithms", "nowhere:Mine"], "cannot find nowhere"),
        (["--algorithms", "mine:Other"], "has no class or function 'Other'"),
        (["--algorithms", "mine:none"], "must give an Algorithm"),
        (["--workers", "0"], "--workers must be a whole number of at least 1"),
        (["--minutes", "-1"], "--minutes must be positive"),
        (["--quick", "--cells", "all"], "leave --cells out"),
        (["--out", "mine.py"], "--out must be a folder"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_results(arguments, words, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    told = in_process("suite", "run", *arguments, cwd=tmp_path)
    assert told.returncode == 2 and words in told.stderr
    assert told.stderr.count("\n") == 1 and not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    "text, words",
    [
        ("{", "holds no results of the suite"),
        ("[1]", "holds no results of the suite"),
        ('{"columns": ["cell"], "rows": []}', "of another version of focusfl"),
    ],
)
def test_a_file_that_is_no_result_is_named(text, words, tmp_path):
    (tmp_path / store.RESULTS).write_text(text)
    told = in_process("suite", "show", tmp_path)
    assert told.returncode == 2 and words in told.stderr and "results.json" in told.stderr


def test_an_empty_folder_has_nothing_to_show(tmp_path):
    told = in_process("suite", "show", tmp_path)
    assert told.returncode == 2 and "no results of the suite" in told.stderr
