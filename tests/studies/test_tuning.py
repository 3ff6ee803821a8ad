"""What people tune, in studies: schedules, and algorithms around others."""

import re

import numpy as np
import pytest

import focusfl as ff
from focusfl.deploy import study as deployed
from focusfl.studies import runner, spec
from focusfl.studies.runner import Store, run_groups
from focusfl.studies.runner import run as study_of_runs

STUDY = """
rounds = 60
lr = [1e-3, 2e-3]
local_steps = 2

[schedule]
kind = "cosine"
warmup = 5

[problem]
kind = "ridge"
num_clients = 4
dim = 6
rows = 12

[participation.some]
kind = "bernoulli"
p = 0.4

[algorithms.focus]

[algorithms.level]
kind = "client_opt"
inner = {kind = "focus"}
prox = 0.5
schedule = {kind = "constant"}
"""
COSINE = ff.schedules.Cosine


@pytest.fixture
def study(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    return file


def test_a_study_runs_its_steps_and_names_them_by_the_grid(study, tmp_path):
    found = runner.run_in_folder(spec.load(study), tmp_path / "out")
    assert [run.row["lr"] for run in found.runs] == 2 * [1e-3, 2e-3]
    problem = ff.problems.ridge(num_clients=4, dim=6, rows=12)
    algorithms = {"focus": ff.Focus(), "level": ff.ClientOpt(ff.Focus(), prox=0.5)}
    for run in found.runs:
        row, lr = run.row, run.row["lr"]
        step = COSINE(lr, 60, warmup=5) if row["algorithm"] == "focus" else lr
        expected = ff.simulate(
            algorithms[row["algorithm"]], problem, ff.participation.Bernoulli(0.4),
            rounds=60, lr=step, local_steps=2,
        )  # fmt: skip
        distance = expected.metrics["distance"]
        np.testing.assert_allclose(run.curves["distance"], distance, rtol=1e-9)
        assert row["schedule"] == repr(step if callable(step) else ff.schedules.Constant(lr))
        assert set(row["theory"].values()) == {None}
    again: list = []
    runner.run_in_folder(spec.load(study), tmp_path / "out", finished=again.extend)
    assert again == []  # nothing is run twice


def test_runs_are_kept_by_the_values_of_their_steps(study, tmp_path):
    def keys(*changes):
        own = spec.load(study, changes)
        cache = Store(tmp_path / "out", own)
        return [cache.key(group, 1e-3, 0) for group in run_groups(own)]

    first, level = keys()
    assert keys("schedule.warmup=6") == [keys("schedule.warmup=6")[0], level]
    assert keys("schedule.warmup=6")[0] != first
    assert keys("schedule.rounds=60") == [first, level]


@pytest.mark.parametrize(
    "change, words",
    [
        ("schedule.kind=cosin", "set schedule.kind=cosin: .*Did you mean 'cosine'"),
        ("schedule.warmup=60", "warmup must be below rounds; got 60 of 60"),
        ("schedule.rounds=20", r"\[schedule\], for a step of 1: .* 0.0 in round 20"),
        ("schedule.lr=1", r"unknown key in \[schedule\]: 'lr'"),
        ("schedule=cosine", r"\[schedule\] must be a table; got 'cosine'"),
        ("lr=auto", "is one step for all rounds; with a schedule give a number"),
        (
            "algorithms.focus.schedule.kind=stairs",
            "algorithms.focus.schedule.: unknown",
        ),
        ("algorithms.level.inner.kind=client_opt", "must not hold a ClientOpt already"),
    ],
)
def test_what_cannot_be_is_said_with_its_place(study, change, words):
    with pytest.raises(ValueError, match=words) as told:
        spec.load(study, [change])
    assert "\n" not in str(told.value)


def test_a_schedule_of_ones_own_lies_beside_the_study(study):
    (study.parent / "mine.py").write_text(
        "def halved(lr, every):\n    return lambda k: lr * 0.5 ** (k // every)\n"
    )
    own = spec.load(study, ["schedule={kind='mine:halved', every=10}"])
    assert own.lr_of("focus", 0.1)(25) == 0.025 and "mine:halved" in own.parts
    with pytest.raises(ValueError, match="needs every"):
        spec.load(study, ["schedule={kind='mine:halved'}"])


def test_theory_of_a_constant_step_refuses_a_schedule(study, capsys):
    from focusfl.cli import main

    assert main(["theory", str(study), "--set", "lr=1e-3"]) == 2
    assert "leave [schedule] out" in capsys.readouterr().err


def test_a_deployment_takes_the_same_steps(study, tmp_path):
    """As it is read again by both apps, with its step size a number."""
    plan = deployed.load(study, ["lr=1e-3"], "focus", None)
    assert "lr Cosine(lr=0.001, rounds=60, warmup=5" in str(plan)
    deployed.write(plan, tmp_path / deployed.FILE)
    again = deployed.read(tmp_path / deployed.FILE)
    assert again.study.lr_of("focus", again.lr) == COSINE(1e-3, 60, warmup=5)
    pytest.importorskip("flwr")
    job = again.job(tmp_path)
    assert job.lr == COSINE(1e-3, 60, warmup=5) and job.about["lr"] == 1e-3


@pytest.mark.parametrize(
    "change, words",
    [
        (
            "schedule={kind='exponential', every=2}",
            "stands at .* end of the schedule",
        ),
        ("schedule={kind='cosine'}", "with steps that become smaller: not a pace"),
    ],
)
def test_a_run_that_its_schedule_ended_is_not_called_biased(study, change, words):
    own = spec.load(study, [change, "lr=1e-3"], ["focus"])
    (run,) = study_of_runs(own)
    assert run.row["verdict"] in ("unclear", "falling")
    assert re.search(words, run.row["reason"])
