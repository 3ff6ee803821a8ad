"""What is written into the page, before any browser has seen it."""

import json
import re

import numpy as np
import pytest
from made_up import make_run, make_study, save

from focusfl.studies.report.html import page
from focusfl.studies.report.html.schedule import LEVELS, schedule

NASTY = "a </script><b>&\"' _study"


def test_without_a_script_there_is_a_table_and_a_word_of_regret(tmp_path):
    html = page([make_study(tmp_path)])
    assert html.count("<noscript>") == 1
    assert "diverged in round 12" in html.split('<script type="application/json"')[0]


def test_names_cannot_break_the_page(tmp_path):
    html = page([make_study(tmp_path, name=NASTY)])
    assert "</script><b>" not in html and html.count("</script>") == 2
    data = re.search(r'id="contents">(.*?)</script>', html, re.S)
    assert json.loads(data[1])["studies"][0]["name"] == NASTY


def test_a_large_study_is_still_a_small_page(tmp_path):
    runs = [
        make_run(f"scenario {scenario}", f"alg{name}", seed, rounds=1500, rate=0.99, lr=lr)
        for scenario in range(4)
        for name in range(6)
        for lr in (0.1, 0.2)
        for seed in range(2)
    ]
    found = save(tmp_path, runs, num_clients=3000, rounds=300)
    assert len(page([found]).encode()) <= 6e6


def test_the_page_needs_a_study():
    with pytest.raises(ValueError, match="at least one study"):
        page([])


def test_a_schedule_is_binned_with_its_shares_and_ages():
    rounds, clients = np.array([0, 0, 1, 3]), np.array([0, 1, 1, 1])
    found = schedule(rounds, clients, np.array([0.2, 0.8]), 10_000)
    assert found["order"] == [1, 0]  # the more frequent first
    assert found["seen"] == [0.75, 0.25]
    top = LEVELS[-1]
    assert found["share"] == top + top + "A" + top + top + "AAA"
    assert found["oldest"] == 3
    levels = [LEVELS.index(letter) / (len(LEVELS) - 1) for letter in found["age"]]
    ages = np.expm1(np.array(levels) * np.log1p(3))
    assert np.allclose(ages, [0, 0, 1, 0, 0, 1, 2, 3], atol=0.1)


def test_a_schedule_that_nobody_followed_is_empty():
    nobody = np.zeros(0, int)
    found = schedule(nobody, nobody, np.array([0.5]), 10_000)
    assert found["share"] == "A" and found["seen"] == [0]


def test_a_schedule_of_many_clients_keeps_its_mean():
    rng = np.random.default_rng(0)
    rounds, clients = np.nonzero(rng.random((1000, 5000)) < 0.01)
    found = schedule(rounds, clients, np.full(5000, 0.01), 20_000)
    assert found["rows"] * found["columns"] <= 10_000 and found["order"] is None
    assert np.isclose(np.mean(found["seen"]), 0.01, rtol=0.05)


def test_the_command_writes_the_page(command_line, tmp_path, capsys):
    make_study(tmp_path / "study")
    out = tmp_path / "new" / "report.html"
    assert command_line("report", tmp_path / "study", "-o", out, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"files": [str(out)]}
    assert out.read_text("utf-8").startswith("<!doctype html>")
    with pytest.raises(ValueError, match="holds no results"):
        command_line("report", tmp_path)
    with pytest.raises(ValueError, match="must end in .html.*focusfl export"):
        command_line("report", tmp_path / "study", "-o", tmp_path / "table.tex")
    assert not (tmp_path / "table.tex").exists()


BIASED = {"bias": 0.1}
FINDINGS = [
    (
        [("focus", {"rate": 0.5}), ("mifa", {"rate": 0.8})],
        "FOCUS is fastest to a relative error of 1e-8: 27 rounds (lr 0.1), 3.1 times "
        "as fast as MIFA: 83 rounds (lr 0.1).",
    ),
    (
        [("focus", {"rate": 0.6}), ("mifa", {"rate": 0.601}), ("fedavg", BIASED)],
        "FOCUS and MIFA are about as fast to a relative error of 1e-8: 37 rounds "
        "(lr 0.1) and 37 rounds (lr 0.1); FedAvg ends at 1.0e-1 (lr 0.1).",
    ),
    (
        [("focus", {"bias": 1e-3}), ("mine", BIASED), ("mifa", {"diverged_at": 9})],
        "Nobody reaches a relative error of 1e-8; FOCUS is closest: 1.0e-3 (lr 0.1), "
        "100 times as close as mine: 1.0e-1 (lr 0.1); MIFA diverges.",
    ),
    (
        [("focus", {"verdict": "falling", "bias": 1e-3})],
        "Nobody reaches a relative error of 1e-8; FOCUS ends at 1.0e-3 (lr 0.1, still "
        "falling).",
    ),
    ([("focus", {"diverged_at": 9})], "Every run has diverged."),
]  # fmt: skip


@pytest.mark.parametrize("who, sentence", FINDINGS, ids=range(len(FINDINGS)))
def test_the_finding_names_the_fastest_and_by_how_much(tmp_path, who, sentence):
    runs = [
        make_run("only", name, seed, rounds=200, **how) for name, how in who for seed in range(3)
    ]
    text = re.sub("<span[^>]*>|</span>", "", page([save(tmp_path, runs)]))
    found = re.search(r'<p class="finding">(.*?)</p>\n<p class="lead">(.*?)</p>', text)
    numbers = r"\d+\.\de-\d"  # seeds move the second digit
    assert re.sub(numbers, "#", found[1]) == re.sub(numbers, "#", sentence)
    assert found[2] == "Medians over 3 seeds."


def test_the_finding_compares_best_steps_scene_by_scenario(tmp_path):
    runs = [
        make_run(scenario, name, 0, lr=lr, rate=rate)
        for scenario, faster in (("a", 0.5), ("b", 0.6))
        for name, rates in (("focus", (0.7, faster)), ("mifa", (0.55, 0.9)))
        for lr, rate in zip((0.1, 0.2), rates, strict=True)
    ]
    html = page([save(tmp_path, runs)])
    assert "<b>a</b>: FOCUS is fastest" in html and "<b>b</b>: MIFA is fastest" in html
    assert "Each at the best step of its grid, one seed." in html
    assert html.count('<tr class="rest">') == 4  # of eight rows


def test_an_accuracy_is_told_in_points(tmp_path):
    runs = [
        make_run("a", name, 0, rounds=rounds, accuracy=True, distance=False, bias=0.5)
        for name, rounds in (("focus", 60), ("fedavg", 20))
    ]
    html = page([save(tmp_path, runs)])
    assert "FOCUS is most accurate: 0.9852 (lr 0.1), 2.8 points above FedAvg" in html
