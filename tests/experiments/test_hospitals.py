"""Whom a model serves: measures, the study, and the command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import in_process
from hospitals import serve as hospitals
from hospitals import tables as report

from focusfl.data.hospitals import CENTERS

SCRIPT = Path(__file__).parents[2] / "experiments" / "hospitals" / "reproduce.py"
real_data = pytest.mark.needs("data")


def test_concordance_counts_pairs():
    scores = np.array([3.0, 1.0, 2.0, 2.0])
    ill = np.array([True, True, False, False])
    # 3 above both, 1 below both
    assert hospitals.concordance(scores, ill[:, None] & ~ill) == 0.5
    ill = np.array([True, False, True, False])
    # 3 above 1 and 2; 2 above 1, level with 2
    assert hospitals.concordance(scores, ill[:, None] & ~ill) == 3.5 / 4
    assert np.isnan(hospitals.concordance(scores, np.zeros((4, 4), bool)))


def served(outcome, scenario, name, hospital, what):
    return np.array(
        [
            one.measures[what]
            for one in outcome.served
            if (one.participation, one.algorithm, one.hospital) == (scenario, name, hospital)
        ]
    )


@real_data
def test_fedavg_serves_the_rare_hospital_as_if_it_did_not_exist():
    splits = hospitals.splits("hospitals", ["rounds=1200"], ["focus", "fedavg"], 3)
    outcome = hospitals.serve(splits)

    def above(name, hospital, what="training_loss", scenario="rare"):
        best = served(outcome, scenario, "x*", hospital, what)
        return served(outcome, scenario, name, hospital, what) - best

    for hospital in CENTERS:
        assert np.abs(above("focus", hospital)).max() < 1e-4
        assert np.abs(above("fedavg", hospital, scenario="even")).max() < 0.05
    without = above("x* without switzerland", "switzerland")
    ours = above("fedavg", "switzerland")
    assert ours.min() > 0.1 and without.min() > 0.1
    assert all(above("fedavg", hospital).max() < 0.01 for hospital in ("hungarian",))
    assert above("fedavg", "switzerland", "accuracy").mean() < -0.1
    assert len(outcome.served) == 3 * 4 * (2 * 3 + 1)
    first = report.tables(outcome)[0]
    assert first.rows[0][0] == "x*" and "=" in first.rows[1]


@pytest.fixture
def made_up(tmp_path):
    """Patients that never were, in the files of the real ones."""
    rng = np.random.default_rng(0)
    (tmp_path / "fed_heart_disease").mkdir()
    for name in CENTERS:
        rows = [
            [
                *(rng.integers(40, 70), rng.integers(2), rng.integers(1, 5)),
                *(rng.integers(100, 180), rng.integers(0, 300), rng.integers(2)),
                *(rng.integers(3), rng.integers(80, 180), rng.integers(2)),
                *(round(rng.uniform(0, 4), 1), "?", "?", "?", rng.integers(3)),
            ]
            for _ in range(24)
        ]
        text = "\n".join(",".join(map(str, row)) for row in rows) + "\n"
        path = tmp_path / "fed_heart_disease" / f"processed.{name}.data"
        path.write_text(text)
    return tmp_path


def script(*words, **environment):
    """Run the script of the experiment, as a user would."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, words)], env=os.environ | environment,
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip


def test_the_script_gives_tables_data_and_a_figure(made_up):
    out = made_up / "out"
    options = ["--algorithms", "focus,fedavg", "--seeds", 2, "--set", "rounds=60"]
    done = script("hospitals", *options, "--out", out, FOCUSFL_DATA=str(made_up))
    assert done.returncode == 0, done.stderr
    assert "rare: accuracy on patients held out, seeds: 2" in done.stdout
    assert (out / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert "| x* without switzerland |" in (out / "table.md").read_text()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["seeds"] == 2 and manifest["study"]["rounds"] == 60
    rows = (out / "results.csv").read_text().splitlines()
    assert rows[0].endswith("error,training_loss,loss,accuracy,auc")
    assert len(rows) == 1 + 2 * 4 * (2 * 3 + 1)


def test_curves_are_drawn_by_round_where_few_are_evaluated(made_up, monkeypatch):
    monkeypatch.setenv("FOCUSFL_DATA", str(made_up))
    change = ["rounds=40", "eval_every=15"]
    outcome = hospitals.serve(hospitals.splits("hospitals", change, ["focus"], 2))
    curves = report.figure(outcome).axes[0]
    assert curves.lines[0].get_xdata().tolist() == [0, 15, 30, 40]


def test_what_cannot_run_gets_one_line_and_exit_code_2(made_up, tmp_path):
    nowhere = {"FOCUSFL_DATA": str(tmp_path), "FOCUSFL_CACHE": str(tmp_path / "no")}
    done = in_process("reproduce", "survival", **nowhere)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    for part in ("data set tcga_brca is missing", str(tmp_path), "focusfl data fetch"):
        assert part in done.stderr
    place = {"FOCUSFL_DATA": str(made_up)}
    done = in_process("reproduce", "hospitals", "--algorithms", "fedvg", **place)
    assert done.returncode == 2 and "Did you mean 'fedavg'?" in done.stderr
    with pytest.raises(ValueError, match="seeds must be a whole number"):
        hospitals.splits("hospitals", [], [], 0)


def test_a_run_that_diverged_serves_nobody(made_up):
    changes = [f'problem.data_dir="{made_up}"', "rounds=200", "lr=1e12"]
    outcome = hospitals.serve(hospitals.splits("hospitals", changes, ["focus"], 1))
    first = report.tables(outcome)[0]
    assert first.rows[1] == ("FOCUS", "∞", "–", "–", "–", "–")
    lost = [row for row in outcome.rows() if row["algorithm"] == "focus"]
    assert all(row["error"] is row["accuracy"] is None for row in lost)
    report.figure(outcome)
