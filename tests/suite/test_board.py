"""Results that several people have sent, on one page."""

import json

import pytest
from command_line import in_process

from focusfl.suite import store
from focusfl.suite.board import gathered
from focusfl.suite.store import Row


def row(entrant, value, key="code", cell="p/coins"):
    return Row(
        cell, entrant, "reporting", "rounds", False, "of", key, "A()", 0.5, value,
        0.0, 4, False, value, 2 * value, 16 * value, value, 0.1, 24, 1.0,
    )  # fmt: skip


def sent(folder, *rows):
    folder.mkdir()
    store.save(folder / store.RESULTS, rows)
    return folder


def test_the_same_result_counts_once_and_another_code_by_its_folder(tmp_path):
    ann = sent(tmp_path / "ann", row("a", 100.0), row("b", 50.0))
    bob = sent(tmp_path / "bob", row("a", 101.0), row("b", 20.0, key="changed"))
    board = gathered([ann, bob, ann])
    found = {one.entrant: one.value for one in board.rows}
    assert found == {"a": 100.0, "b": 50.0, "b · bob": 20.0}
    assert [line[2:] for line in board.sent.rows] == [("2", "2"), ("2", "2")]
    assert not board.doubts.rows


@pytest.mark.parametrize("other", [90.0, float("inf")])
def test_two_measurements_of_one_thing_that_differ_are_told(tmp_path, other):
    ann = sent(tmp_path / "ann", row("a", 100.0))
    bob = sent(tmp_path / "bob", row("a", other))
    told = in_process("suite", "show", ann, bob, "--out", tmp_path / "board.html")
    assert told.returncode == 0 and "Measured twice" in told.stdout
    page = (tmp_path / "board.html").read_text()
    assert "Measured twice" in page and str(bob) in page
    assert gathered([ann, bob]).rows[0].value == 100.0


def test_studies_stand_beside_the_suite_with_every_axis(tmp_path, study_folder):
    ann = sent(tmp_path / "ann", row("<b>a</b>", 100.0))
    told = in_process("suite", "show", ann, study_folder, "--json", "--out", tmp_path / "b.html")
    assert told.returncode == 0, told.stderr
    names = [line[1] for line in json.loads(told.stdout)["folders"][0]["rows"]]
    assert names == ["the suite", "a study"]
    page = (tmp_path / "b.html").read_text()
    assert "tiny study" in page and "simulated" not in page
    assert "<b>a</b>" not in page
    assert page.count("<svg") == 1 + 3  # the suite's, and rounds, bytes and seconds


def test_what_is_neither_is_refused_and_nothing_is_written(tmp_path):
    ann = sent(tmp_path / "ann", row("a", 100.0))
    (tmp_path / "empty").mkdir()
    told = in_process("suite", "show", ann, tmp_path / "empty", "--out", tmp_path / "b.html")
    assert told.returncode == 2 and "nor of a study" in told.stderr
    assert not (tmp_path / "b.html").exists()


@pytest.fixture
def study_folder(tmp_path):
    study = """
    name = "tiny study"
    rounds = 20
    lr = 0.1
    [problem]
    kind = "random_quadratic"
    num_clients = 3
    dim = 2
    [participation.full]
    [algorithms.focus]
    [algorithms.fedavg]
    """
    (tmp_path / "study.toml").write_text(study)
    out = tmp_path / "out"
    told = in_process("run", tmp_path / "study.toml", "--out", out)
    assert told.returncode == 0, told.stderr
    return out
