"""Implementations from outside: right ones pass, and what is wrong is named."""

from functools import partial

import numpy as np
import pytest
from planted import written

import focusfl as ff
from focusfl.conformance import ROWS, check, rules
from focusfl.conformance.problem import schedule, standard


def test_the_implementation_of_the_page_is_scaffold_and_exact():
    report = check(written())
    assert report.exact and report.like == ("SCAFFOLD II",)
    assert report.words() == "behaves like SCAFFOLD II"
    assert [row.row for row in report.rows] == list(ROWS)
    assert all(row.error < 1e-8 for row in report.rows)


@pytest.mark.parametrize(
    "algorithm, name",
    [
        (ff.Focus(), "FOCUS, mean memory"),
        (ff.Focus(memory="last"), "FOCUS"),
        (ff.Focus(warm_start=True, memory="last"), "FOCUS, warm start"),
        (ff.Scaffold(), "SCAFFOLD II"),
        (ff.Scaffold(option=1), "SCAFFOLD I"),
        (ff.Focus, "FOCUS, mean memory"),
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
            (rules.SlippedFocus, ff.Focus(memory="last")),
        ]:
            ours = ff.conformance.of_algorithm(algorithm)
            assert np.allclose(_path(made, row), _path(ours, row), rtol=1e-12)


def _path(make, row, rounds=10):
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
