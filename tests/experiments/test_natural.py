"""Natural federations: their studies can be read, their tables are of their runs."""

import inspect
import json
import runpy
from pathlib import Path

import numpy as np
import pytest

import focusfl as ff
from focusfl.problems import PROBLEMS
from focusfl.studies import spec

HERE = Path(__file__).parents[2] / "experiments" / "natural"
CLIENTS = {"spoken-digits": 6, "omniglot": 20, "shakespeare": 30}


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(HERE / "draw.py"))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_study_has_a_chance_for_every_client(name, monkeypatch):
    samples = {"x": np.ones((16, 2), np.float32), "y": np.zeros(16, int)}
    small = ff.problems.softmax(
        [samples] * CLIENTS[name], classes=2, eval_data=samples, batch_size=2
    )
    kind = name.replace("-", "_")

    def stand_in(**_):
        return small

    stand_in.__signature__ = inspect.signature(PROBLEMS[kind])
    monkeypatch.setitem(PROBLEMS.registered, kind, stand_in)
    study = spec.load(HERE / f"{name}.toml")
    chances = study.participation["coins"].participation.among.p
    assert len(chances) == CLIENTS[name] and min(chances) == 0.05 < max(chances) == 0.9
    assert [*study.algorithms] == [
        "focus-mean",
        "mifa",
        "scaffold",
        "fedavg",
        "fedadam",
    ]
    assert study.algorithms["scaffold"].algorithm.option == 2
    assert study.per_client and len(study.seeds) == 3


def test_the_tables_are_those_of_the_runs(script):
    kept = json.loads((HERE / "results.json").read_text())
    assert script["text"](kept) == (HERE / "table.md").read_text()
    for own in kept.values():
        assert {run["seed"] for run in own["curves"]} == {0, 1, 2}
        assert len(own["curves"]) == 15


PACKAGED = "dialysis movielens insteval chem97 star tv16 flights watch".split()


@pytest.fixture(scope="module")
def packages():
    return runpy.run_path(str(HERE / "packages.py"))


def test_the_table_of_the_packages_is_that_of_their_runs(packages):
    kept = json.loads((HERE / "packages.json").read_text())
    table = packages["table"](kept)
    assert [*kept] == packages["SETS"] == PACKAGED
    assert table == (HERE / "packages.md").read_text()
    page = (HERE / "README.md").read_text()
    assert all(line in page for line in table.splitlines())


def test_algorithms_have_equally_many_settings(packages):
    for algorithm in (ff.Focus(), ff.Scaffold(), ff.FedAvg(), ff.FedAdam()):
        tried = packages["settings"](algorithm)
        assert sum(len(steps) for _, steps in tried) == 9


@pytest.mark.parametrize("name", ["dialysis", "star"])
def test_a_study_of_a_package_has_a_coin_for_every_client_and_the_steps_found(name):
    study = spec.load(HERE / f"{name}.toml")
    chances = study.participation["coins"].participation.p
    assert len(chances) == study.problem.num_clients
    assert np.isclose(min(chances), 0.05) and np.isclose(max(chances), 0.9)
    kept = json.loads((HERE / "packages.json").read_text())[name]
    for called, own in study.algorithms.items():
        assert own.lrs == (kept[called]["lr"],)
    server = study.algorithms["fedadam"].algorithm.server_lr
    assert server == kept["fedadam"]["server_lr"]


def test_the_script_of_the_packages_runs_in_small(packages, tmp_path):
    found = packages["measured"]("dialysis", rounds=2)
    assert found["clients"] == 67 and len(found["focus"]["seeds"]) == 3
    mean, tenth, worst = found["focus"]["seeds"][0]
    assert 0.5 < mean < 0.75 and worst <= tenth <= mean


def curve(name, seed, accuracy, diverged_at=None):
    rounds = np.arange(len(accuracy)) * 5.0
    return {
        "algorithm": name, "lr": 0.1, "server_lr": None, "seed": seed,
        "diverged_at": diverged_at, "accuracy": accuracy, "worst": accuracy,
        "round": rounds, "megabytes": 2 * rounds, "minutes": rounds / 10,
    }  # fmt: skip


def test_a_target_is_what_all_reach_and_costs_are_those_of_the_mean_over_seeds(script):
    curves = [
        curve("fedavg", 0, [0.1, 0.5, 0.7]), curve("fedavg", 1, [0.1, 0.3, 0.7]),
        curve("mifa", 0, [0.1, 0.2, 0.48]), curve("mifa", 1, [0.1, 0.3, 0.48], 12),
    ]  # fmt: skip
    assert script["target"](curves, "accuracy") == 0.45
    first, second = script["table"](curves)
    assert first[4:7] == ("10", "20.0", "1.0")
    curves[1]["accuracy"][1] = 0.42
    assert script["table"](curves)[0][4:7] == ("5", "10.0", "0.5")
    assert first[2] == ".433, .367" and second[2] == ".260, †12"
