"""The README to the letter: its commands one after the other, in an empty folder."""

import json
import re
import shlex
from pathlib import Path

import pytest

from focusfl.cli import main
from focusfl.deploy import ownership

README = Path(__file__).parents[2] / "README.md"
SHORT = {  # what makes a command take seconds; the deployment is a real one
    "demo": "--set rounds=10 --algorithms focus",
    "run": "--set rounds=10 --algorithms focus",
    "reproduce": "--set rounds=5 --algorithms focus",
    "deploy": "--set rounds=2",
}


def commands():
    blocks = re.findall(r"```bash\n(.*?)```", README.read_text(), re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [found[1:] for found in words if found[:1] == ["focusfl"]]


def test_the_commands_of_the_readme_work_one_after_the_other(tmp_path, monkeypatch, capsys):
    """Each finds what those before it have left; changes are made by --set alone."""
    monkeypatch.chdir(tmp_path)
    whole = commands()
    assert {"demo", "new", "run", "deploy", "report"} <= {words[0] for words in whole}
    for words in whole:
        more = SHORT.get(words[0], "").split()
        code = main([*words, *more])
        said = capsys.readouterr()
        assert code == 0, f"focusfl {shlex.join(words)}\n{said.err}"
    (row,) = json.loads(Path("runs/deploy-study/manifest.json").read_text())["runs"]
    assert row["counted"] == {f"site-{i}": 2 for i in range(4)}
    assert row["grad_norm"] > 0 and row["tracker_norm"] > 0
    assert not [line for line in ownership.started(Path("runs/deploy-study")) if line.alive]
    for name in ("report", "plot"):  # of the deployment, as of any study
        out = {"report": "deployed.html", "plot": "deployed.pdf"}[name]
        assert main([name, "runs/deploy-study", "-o", out]) == 0
    assert "deployed" in Path("deployed.html").read_text()


@pytest.mark.parametrize("kind", ["bernoulli", "weighted", "markov"])
def test_participation_written_per_client_does_not_stand_in_the_way(kind, tmp_path):
    """A deployment's participants are who is there, however many there are."""
    from focusfl.deploy import study

    assert main(["new", str(tmp_path / "study.toml")]) == 0
    per_client = "[0.1, 0.2, 0.3, 0.4, 0.5]"
    named = {"bernoulli": "p", "weighted": "w", "markov": "p"}[kind]
    changes = [f'participation={{a={{kind="{kind}", {named}={per_client}}}}}']
    for clients in (1, 3, 4):
        file = tmp_path / "study.toml"
        found = study.load(file, changes, None, clients)
        assert len(found.sites) == found.problem.num_clients == clients
        assert list(found.study.participation) == ["deployed"] and found.seed == 0
        study.write(found, tmp_path / study.FILE)
        again = study.read(tmp_path / study.FILE)
        assert again.source == found.source and again.lr == found.lr == 2e-4
