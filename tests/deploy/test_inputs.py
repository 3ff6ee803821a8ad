"""Bad input to the deploy commands: one line, exit code 2, and nothing begun."""

import shlex

import pytest

from focusfl.cli import main
from focusfl.deploy import apps, study

STUDY = """
rounds = 20
lr = 0.3
seeds = 3
[problem]
kind = "random_quadratic"
[participation.rare]
kind = "bernoulli"
p = [0.1, 0.5]
[algorithms.focus]
[algorithms.scaffold]
"""
HOSPITALS = """
rounds = 20
lr = 0.3
[problem]
kind = "heart_disease"
[participation.full]
[algorithms.focus]
"""
WRONG = {
    "local study.toml --clients 0": "--clients must be a whole number of at least 1",
    "local study.toml --clients -3": "at least 1; got -3",
    "local study.toml --clients 100000": "--clients must be at most 256",
    "local study.toml --set problem.num_clients=1000": "at most 256",
    "local missing.toml": "cannot read missing.toml",
    "local broken.toml": "broken.toml is not TOML",
    "local latin.toml": "not UTF-8",
    "local study.toml --out file": "--out must be a folder; file is a file",
    "local study.toml --out file/x": "cannot use file",
    "local study.toml --set lr=[0.1,0.2]": "--set algorithms.focus.lr=0.1",
    "local study.toml --set local_steps=[1,2]": "algorithms.focus.local_steps=1",
    "local study.toml --algorithm foucs": "Did you mean 'focus'",
    "local study.toml --target 0": "minimum and target must satisfy",
    "local study.toml --target 99": "minimum and target must satisfy",
    "local study.toml --deadline 0": "deadline must be positive",
    "local study.toml --deadline nan": "deadline must be positive",
    "local study.toml --deadline -5": "deadline must be positive",
    "local 'my study.toml'": "Choose one with --set name=NAME",
    "local study.toml --set rounds=0": "at least 1 and below 2^31; got 0",
    "local study.toml --set rounds": "--set takes key=value",
    "local study.toml --set participation=3": "[participation] must be a table",
    "local study.toml --set algorithms={}": "at least one table",
    "local study.toml --set problem.kind=ridgee --clients 2": "Did you mean 'ridge'",
    "local study.toml --clients 4 --secure 5": "at most the number of sites, 4; got 5",
    "local study.toml --secure 0": "secure.minimum must be a whole number of at",
    "local study.toml --clients 4 --secure --set compression.kind=quantize": "fixed_point",
    "local study.toml --set compression.kind=low_rank": "fits no array of this model",
    "local hospitals.toml --clients 3": "--clients must be 4, or left out",
    "local study.toml --clients 3 --set problem.weights=[1,2]": "must be 3 numbers",
    "local study.toml --set problem.weights=samples": "no samples to count by",
    "local .": "must be the folder of a Flower app",
    "local app --clients 3": "--clients is for studies; app has its settings in",
    "local app --deadline 3 --set lr=1": "--set, --deadline are for studies",
    "local app --set rounds=3": "--set is for studies",
    "init app": "new or empty",
    "init file": "new or empty",
    "init file/x": "cannot use file",
    "status missing": "missing must be a folder",
    "status file": "file must be a folder",
    "status damaged": "does not say what was started there",
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("study.toml", "my study.toml"):
        (tmp_path / name).write_text(STUDY)
    (tmp_path / "hospitals.toml").write_text(HOSPITALS)
    (tmp_path / "broken.toml").write_text("rounds = ")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    (tmp_path / "file").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "processes.json").write_text("[1")
    apps.init(tmp_path / "app")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(each, marks=pytest.mark.needs("data")) if "hospitals" in each
        else each
        for each in WRONG
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_nothing_is_begun(command, here, capsys):
    before = sorted(here.rglob("*"))
    assert main(["deploy", *shlex.split(command)]) == 2
    said = capsys.readouterr().err
    assert WRONG[command] in said and said.count("\n") == 1, said
    assert sorted(here.rglob("*")) == before


def test_without_flower_one_line_says_what_to_install(here, capsys, monkeypatch):
    monkeypatch.setattr("focusfl.cli.options.find_spec", lambda name: None)
    for command in (["local", "study.toml"], ["status"], ["stop"], ["watch"]):
        assert main(["deploy", *command]) == 2
        said = capsys.readouterr().err
        assert "deploying needs Flower" in said and said.count("\n") == 1


def test_nothing_started_yet_is_no_error(here, capsys):
    assert main(["deploy", "status"]) == 0
    assert "nothing was started in runs" in capsys.readouterr().out


@pytest.mark.needs("data")
def test_sites_of_a_study_weigh_what_its_clients_do(tmp_path):
    (tmp_path / "hospitals.toml").write_text(HOSPITALS)
    loaded = [
        study.load(tmp_path / "hospitals.toml", changes, None, None)
        for changes in ([], ["problem.weights=samples"])
    ]
    study.write(loaded[1], tmp_path / "study.json")
    again = study.read(tmp_path / "study.json")
    plain, mine, theirs = (each.job("").weights for each in (*loaded, again))
    assert plain is None and mine == theirs
    assert [*mine] == [f"site-{i}" for i in range(4)]
    assert sum(mine.values()) == pytest.approx(4) and max(mine.values()) > 1.5
