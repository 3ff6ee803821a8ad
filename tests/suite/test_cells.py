"""The cells are what the page says: many, apart in two halves, and all of one scale."""

import json
from importlib.util import find_spec

import numpy as np
import pytest

from focusfl.participation import masks
from focusfl.suite import cells, entrants
from focusfl.suite.cells import CELLS, LAWS, REPORTING, TUNING
from focusfl.suite.problems import CLIENTS, problem_of

ABOUTS = {cell.problem: cell.about for cell in CELLS if cell.measure == "rounds"}


def test_there_are_many_cells_and_each_belongs_to_one_half():
    assert len(CELLS) >= 60 and len({cell.name for cell in CELLS}) == len(CELLS)
    problems = {half: {c.problem for c in CELLS if c.split == half} for half in cells.SPLITS}
    assert not problems[TUNING] & problems[REPORTING]
    for half in cells.SPLITS:
        assert {c.law for c in CELLS if c.split == half} == {*LAWS}
        assert {c.measure for c in CELLS if c.split == half} == {*cells.MEASURES}


@pytest.mark.parametrize("problem", ABOUTS)
def test_every_problem_is_scaled_to_a_smoothness_of_one(problem):
    if problem == "digits" and not find_spec("sklearn"):
        pytest.skip("needs scikit-learn")
    found = problem_of(ABOUTS[problem])
    assert found.num_clients == CLIENTS
    assert found.L == pytest.approx(1, abs=1e-12)


def test_cells_are_plain_values_and_another_value_is_another_cell():
    cell = CELLS[0]
    assert json.loads(json.dumps(cell)) == json.loads(json.dumps(list(cell)))
    assert cell.identity != cell._replace(local_steps=7).identity


def test_some_are_there_once_in_fifty_rounds_and_some_away_for_forty():
    rare, outage = (masks(LAWS_OF[law], CLIENTS, 400, 0) for law in ("rare", "outage"))
    assert (rare[:, 12:].sum(0) == 8).all() and rare[:, :12].mean() > 0.5
    for start in range(0, 400, 40):
        quiet = ~outage[start : start + 40].any(0)
        assert quiet.reshape(4, 4).all(1).sum() == 1  # one quarter, and it alone
    assert np.diff(np.flatnonzero(rare[:, 12])).tolist() == [50] * 7


LAWS_OF = {cell.law: cell.participation for cell in CELLS[: len(LAWS)]}


def test_cells_are_chosen_by_half_problem_law_or_name():
    assert {c.split for c in cells.chosen(["tuning"])} == {TUNING}
    assert [c.name for c in cells.chosen(["ridge/coins", "easy/full"])] == [
        "easy/full",
        "ridge/coins",
    ]
    assert len(cells.chosen(["all"])) == len(CELLS)
    with pytest.raises(ValueError, match="unknown cell: 'rigde'. Did you mean 'ridge'"):
        cells.chosen(["rigde"])


def test_entrants_are_found_by_name_or_kind_and_all_can_be_made():
    assert {"FOCUS", "SCAFFOLD I", "MIFA 1-step", "FedAvg"} <= {*entrants.ENTRANTS}
    assert [e.name for e in entrants.entered(["scaffold"])] == [
        "SCAFFOLD I",
        "SCAFFOLD II",
    ]
    for entrant in entrants.entered([]):
        assert len(entrant.algorithms()) == len(entrant.variants)
    with pytest.raises(ValueError, match="unknown algorithm: 'FOCSU'"):
        entrants.entered(["FOCSU"])
