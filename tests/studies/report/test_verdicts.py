"""What became of runs over several seeds: the same words wherever they are told."""

import io
import re
from typing import get_args

import pytest
from made_up import make_run, save
from rich.console import Console

from focusfl.studies.report import terminal
from focusfl.studies.report.compare import compare
from focusfl.studies.report.export import latex, table_csv
from focusfl.studies.report.groups import group_runs, grouped
from focusfl.studies.report.html import page
from focusfl.studies.report.output import print_report
from focusfl.studies.report.plots import plot
from focusfl.studies.verdict import MEANING, Word

WORDS = get_args(Word)
WHY = "still falling by a factor .990 a round; 1e-10 is about 1,700 rounds away"


def made(word, seed=0, **told):
    how = {"diverged_at": 9} if word == "diverged" else {"bias": 0.02}
    return make_run("a", "focus", seed, verdict=word, **how, **told)


@pytest.mark.parametrize("word", WORDS)
def test_every_verdict_can_be_shown_everywhere(tmp_path, word, capsys):
    found = save(tmp_path, [made(word, seed, reason=WHY) for seed in range(2)])
    (one,) = grouped(found)
    assert one.verdict().split()[0] == word and one.reason() == WHY
    html = re.sub("<span[^>]*>|</span>", "", page([found]))
    assert f'class="verdict {word}"' in html
    assert f"<small>{WHY}</small>" in html and f"{word}: {MEANING[word]}." in html
    # A paper's table says nothing rather than "unclear".
    assert (word in latex(found)) == (word != "unclear") and WHY in table_csv(found)
    assert compare(found, found).changes and plot([found]).axes
    print_report(found)
    out = capsys.readouterr().out
    assert word in out and (WHY in out) == (word != "exact")


@pytest.mark.parametrize("word", WORDS)
def test_only_what_is_biased_is_said_to_have_settled(tmp_path, word):
    html = page([save(tmp_path, [made(word)])])
    assert ("has settled" in html) == (word == "biased")


def test_seeds_that_disagree_are_counted_and_each_side_has_its_reason():
    runs = [made("exact", s) for s in range(3)]
    runs += [made("falling", s, reason=WHY) for s in range(3, 5)]
    (both,), (exact,) = group_runs(runs), group_runs(runs[:3])
    assert both.verdict() == "exact 3 of 5, falling 2 of 5"
    assert (both.word, exact.word) == ("mixed", "exact")
    assert both.reason() == f"exact 3 of 5: {MEANING['exact']}; falling 2 of 5: {WHY}"


def test_of_several_reasons_the_run_in_the_middle_gives_its_own():
    runs = [made("falling", e, error=float(e), reason=f"at {e}") for e in (3, 1, 2)]
    assert group_runs(runs)[0].reason() == "at 2"


def ended(runs):
    """The line that is printed when runs have ended."""
    out = io.StringIO()
    terminal.print_end(Console(file=out, width=80), runs)
    return out.getvalue()


def test_the_line_at_the_end_of_a_run_and_the_table_agree(tmp_path, capsys):
    runs = [make_run("a", "focus", 0)]  # the best seed of five is exact
    runs += [make_run("a", "focus", s, bias=1e-3) for s in range(1, 5)]
    found = save(tmp_path, runs)
    print_report(found)
    (one,) = grouped(found)
    assert one.verdict() == "biased 4 of 5, exact 1 of 5"
    line = ended(runs)
    assert line.startswith("a · FOCUS: biased 4 of 5, exact 1 of 5, error 1.")
    error = line.split("error ")[1].split(",")[0]
    assert error == capsys.readouterr().out.split(" FOCUS ")[1].split()[0]


def test_of_several_steps_the_line_tells_the_best():
    runs = [make_run("a", "mine", s, lr=lr, rate=10 * lr)
            for lr in (0.05, 0.07) for s in range(2)]  # fmt: skip
    assert ended(runs).startswith("a · mine (lr 0.05, best of 2): exact, error ")


def test_every_verdict_has_a_meaning():
    assert set(get_args(Word)) == set(MEANING)
