"""Profiles, wins, duels and means, against numbers worked out by hand."""

import numpy as np
import pytest

from focusfl.suite import compare
from focusfl.suite.store import Row
from focusfl.suite.tables import every_cell, halves, sentence, tables

INF = np.inf
# By hand: a is best in one and two, b in three; nobody solves four.
TABLE = {
    "p/one": {"a": 10.0, "b": 20.0, "c": 80.0},
    "p/two": {"a": 30.0, "b": 45.0, "c": INF},
    "p/three": {"a": 100.0, "b": 50.0, "c": 200.0},
    "p/four": {"a": INF, "b": INF, "c": INF},
}


def rows(table=TABLE, ours=("a",), split="reporting", measure="rounds"):
    return [
        Row(
            cell, name, split, measure, name in ours, "of", "key", "A()", 0.5, value,
            0.0, 4, False, value, 2 * value, 16 * value, value, 0.1, 24, 1.0,
        )
        for cell, own in table.items()
        for name, value in own.items()
    ]  # fmt: skip


def test_a_profile_is_the_share_of_cells_within_a_factor_of_the_best():
    factors = [1.0, 1.5, 2.0, 4.0, 8.0]
    assert compare.profile(TABLE, "a", factors) == pytest.approx([2 / 3, 2 / 3, 1, 1, 1])
    assert compare.profile(TABLE, "b", factors) == pytest.approx([1 / 3, 2 / 3, 1, 1, 1])
    assert compare.profile(TABLE, "c", factors) == pytest.approx([0, 0, 0, 1 / 3, 2 / 3])


def test_standings_name_wins_and_the_worst_cell():
    a, b, c = compare.standings(TABLE)
    assert (a.entrant, a.wins, a.within, a.cells, a.missed) == ("a", 2, 3, 3, 0)
    assert (a.worst, a.where) == (2, "p/three")
    assert b.mean == pytest.approx((2 * 1.5 * 1) ** (1 / 3))
    assert (c.wins, c.missed, c.worst, c.where) == (0, 1, INF, "p/two")
    assert c.mean == pytest.approx((8 * 4) ** 0.5)


def test_a_duel_is_between_the_best_of_both_sides():
    one = compare.duel(TABLE, "ours", ["a", "c"], ["b"])
    assert one.mean == pytest.approx((0.5 * 30 / 45 * 2) ** (1 / 3))
    assert (one.better, one.cells, one.alone, one.lost) == (2, 3, 0, 0)
    assert (one.worst, one.where) == (2, "p/three")
    assert compare.duel(TABLE, "c", ["c"], ["b"]).lost == 1


def test_the_headline_compares_ours_with_all_baselines():
    together, alone = compare.headline(rows())
    assert together[1:] == alone[1:] and alone.who == "a"
    assert "needs 0.87 of the rounds of the best baseline" in sentence(rows())
    assert compare.headline(rows(ours=())) == []  # with nobody to compare


def test_means_by_law_count_what_never_arrived_as_the_longest_run():
    found = compare.by_law(rows({"p/x": {"a": 16.0}, "q/x": {"a": INF}}))
    assert found == {"x": {"a": (pytest.approx(256.0), 1)}}


def test_the_halves_are_never_told_as_one():
    both = [*rows(), *rows({"q/one": {"a": 3.0, "b": 1.0}}, split="tuning")]
    found = halves(both)
    assert list(found) == ["reporting", "tuning"]
    (wins,) = [t for t in tables(found["tuning"]) if t.title.startswith("Wins")]
    assert [line[:4] for line in wins.rows] == [
        ("b", "1", "1", "1"),
        ("a", "0", "0", "1"),
    ]


def test_every_cell_is_shown_with_what_each_came_to():
    found = every_cell([*rows(), *rows({"n/x": {"a": 0.025}}, measure="floor")])
    assert found.heads == ("cell", "a", "b", "c")
    assert found.rows[1] == ("p/two", "30", "45", "∞")
    assert found.rows[-1] == ("n/x", "0.025", "–", "–")


def test_floors_have_a_table_of_their_own():
    floor = rows({"n/x": {"a": 0.5, "b": INF}}, measure="floor")
    (table,) = tables(floor)
    assert table.rows == [("a", "0.5"), ("b", "∞")] and "noise" in table.title
