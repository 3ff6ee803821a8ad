"""Several folders of one study, pooled."""

import json
from functools import partial
from shutil import copytree

import numpy as np
import pytest
from command_line import in_process

import focusfl as ff
from focusfl.studies import store
from focusfl.studies.merge import pool

STUDY = """
rounds = 40
lr = [1e-3, 2e-3]
local_steps = 2
per_client = true

[problem]
kind = "ridge"
num_clients = 4
dim = 6
rows = 12

[participation.full]

[participation.some]
kind = "bernoulli"
p = 0.4

[algorithms.focus]

[algorithms.fedavg]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folders: seeds 0, 1 and 2 each in its own, 0 and 1 together, another study."""
    place = tmp_path_factory.mktemp("merge")
    (place / "study.toml").write_text(STUDY)
    for name, changes in {
        "seed-0": ["seeds=[0]"], "seed-1": ["seeds=[1]"], "seed-2": ["seed=2"],
        "both": ["seeds=2"], "other": ["seeds=[3]", "rounds=50", "problem.dim=7"],
    }.items():  # fmt: skip
        words = [word for change in changes for word in ("--set", change)]
        done = in_process("run", "study.toml", "-o", name, *words, cwd=place)
        assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def focusfl(made, tmp_path):
    copytree(made, tmp_path, dirs_exist_ok=True)
    return partial(in_process, cwd=tmp_path)


SEEDS = "seed-0", "seed-1", "seed-2"


def test_merged_seeds_are_one_study(focusfl, tmp_path):
    done = focusfl("merge", *SEEDS, "-o", "all")
    assert done.returncode == 0, done.stderr
    assert "medians over 3 seeds" in done.stdout
    assert "merged: 3 folders, 24 runs, seeds 0, 1, 2" in done.stdout
    whole = ff.Study.load(tmp_path / "all").table()
    for name in SEEDS:
        own = ff.Study.load(tmp_path / name).table()
        mine = whole[whole["seed"] == own["seed"][0]]
        assert len(own) == len(mine) == 8 * 41
        for column in own.columns:
            assert np.array_equal(own[column], mine[column]), column
    found = store.Study.load(tmp_path / "all")
    order = [tuple(run.row[k] for k in ("participation", "algorithm", "seed", "lr"))
             for run in found.runs]  # fmt: skip
    assert order == [
        (scenario, name, seed, lr)
        for scenario in ("full", "some") for name in ("focus", "fedavg")
        for seed in range(3) for lr in (1e-3, 2e-3)
    ]  # fmt: skip
    assert all(len(run.clients["loss"]) == 4 for run in found.runs)
    ours = ff.Study.load(tmp_path / "all").model(algorithm="focus", seed=1, lr=1e-3,
                         participation="some")  # fmt: skip
    theirs = ff.Study.load(tmp_path / "seed-1").model(algorithm="focus", lr=1e-3,
                           participation="some")  # fmt: skip
    assert np.array_equal(ours, theirs)
    assert found.manifest["study"]["seeds"] == [0, 1, 2]
    assert "seed" not in found.manifest["study"]
    verified = focusfl("verify", "all")
    assert verified.returncode == 0, verified.stdout
    assert " 0 damaged" in verified.stdout


def test_what_is_merged_need_not_be_run_and_more_seeds_are_added(focusfl, tmp_path):
    focusfl("merge", "seed-0", "seed-1", "-o", "all")
    done = focusfl("run", "study.toml", "-o", "all", "--set", "seeds=2")
    assert "nothing was left to run" in done.stdout, done.stderr
    done = focusfl("merge", "seed-2", "-o", "all", "--json")
    told = json.loads(done.stdout)
    assert {run["seed"] for run in told["runs"]} == {0, 1, 2}
    assert len(told["runs"]) == 24 and len(ff.Study.load(tmp_path / "all").table()) == 24 * 41
    done = focusfl("run", "study.toml", "-o", "all", "--set", "seeds=4", "--json")
    assert len(json.loads(done.stdout)["runs"]) == 32
    assert done.stderr.count("error") == 4  # a line for each group of the new seed


def test_a_run_that_is_there_twice_counts_once(focusfl, tmp_path):
    # Seeds that run together round in another order than one that runs alone.
    done = focusfl("merge", "both", "seed-1", "seed-2", "seed-2", "-o", "all")
    assert done.returncode == 0, done.stderr
    assert "24 runs, seeds 0, 1, 2" in done.stdout


def test_a_run_that_differs_from_its_double_is_refused(focusfl, tmp_path):
    found = store.Study.load(tmp_path / "seed-1")
    for run in found.runs:
        if run.row["algorithm"] == "fedavg" and run.row["participation"] == "some":
            run.curves["distance"] = 1.01 * run.curves["distance"]
    copytree(tmp_path / "seed-1/models", tmp_path / "odd/models")
    store.save(tmp_path / "odd", found.manifest, found.runs, found.participants)
    done = focusfl("merge", "seed-0", "seed-1", "odd", "-o", "all")
    assert done.returncode == 2 and not (tmp_path / "all").exists()
    assert "seed-1 and odd both have the run participation some, algorithm fedavg, " in (
        done.stderr
    )
    assert "seed 1, with other values of distance" in done.stderr


def test_folders_of_different_studies_are_refused_and_told_apart(focusfl, tmp_path):
    done = focusfl("merge", "seed-0", "other", "-o", "all")
    assert done.returncode == 2 and not (tmp_path / "all").exists()
    assert "seed-0 and other are not one study" in done.stderr
    assert "rounds: 40 and 50; problem.dim: 6 and 7" in done.stderr
    assert "Traceback" not in done.stderr
    manifest = json.loads((tmp_path / "seed-1/manifest.json").read_text())
    found = store.Study.load(tmp_path / "seed-1")
    manifest["environment"]["focusfl"] = "0.1"
    copytree(tmp_path / "seed-1/models", tmp_path / "old/models")
    store.save(tmp_path / "old", manifest, found.runs, found.participants)
    done = focusfl("export", "seed-0", "old", "-o", "table.csv")
    assert f"version of focusfl: {ff.__version__} and 0.1" in done.stderr
    assert done.returncode == 2 and not (tmp_path / "table.csv").exists()


@pytest.mark.parametrize(
    "words, said",
    [
        (("seed-0", "nowhere", "-o", "all"), "nowhere is no folder"),
        (("seed-0", "study.toml", "-o", "all"), "study.toml is no folder"),
        (("seed-0", "seed-0/models", "-o", "all"), "seed-0/models holds no results"),
        (("seed-0", "-o", "seed-0/models"), "seed-0/models is not empty and holds no"),
        (("seed-0", "-o", "study.toml"), "--out must be a folder; study.toml is a"),
    ],
)
def test_what_is_no_folder_of_a_study_is_named(focusfl, tmp_path, words, said):
    done = focusfl("merge", *words)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert not (tmp_path / "all").exists()


def test_folders_are_pooled_where_they_are_read(focusfl, tmp_path):
    folders = [tmp_path / name for name in SEEDS]
    table = ff.Study.load(*folders).table()
    assert sorted(table["seed"].unique()) == [0, 1, 2] and len(table) == 24 * 41
    focusfl("merge", *SEEDS, "-o", "all")
    for file in ("curves.csv", "table.tex"):
        for name, words in (("one-", ("all",)), ("three-", SEEDS)):
            done = focusfl("export", *words, "-o", name + file)
            assert done.returncode == 0, done.stderr
        assert (tmp_path / ("one-" + file)).read_text() == (
            (tmp_path / ("three-" + file)).read_text()
        )
    done = focusfl("report", *SEEDS, "other", "-o", "page.html")
    assert "pooled: seed-0, seed-1, seed-2 (seeds 0, 1, 2)" in done.stdout
    page = (tmp_path / "page.html").read_text()
    assert page.count('id="study-') == 2 and "3 seeds" in page
    done = focusfl("plot", *SEEDS, "-o", "figure.svg")
    assert done.returncode == 0, done.stderr


def test_pages_show_a_study_before_and_after_a_change_side_by_side(focusfl, tmp_path):
    found = store.Study.load(tmp_path / "seed-1")
    for run in found.runs:
        run.curves["distance"] = 2 * run.curves["distance"]
    copytree(tmp_path / "seed-1/models", tmp_path / "after/models")
    store.save(tmp_path / "after", found.manifest, found.runs, found.participants)
    done = focusfl("report", "seed-1", "after", "-o", "page.html")
    assert done.returncode == 0 and "pooled" not in done.stdout
    assert (tmp_path / "page.html").read_text().count('id="study-') == 2


def test_pooling_nothing_says_so():
    with pytest.raises(ValueError, match="at least one folder"):
        pool([])
