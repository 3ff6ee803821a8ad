"""Problems, algorithms and participation models of one's own, named in a study."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import in_process

import focusfl as ff
from focusfl.deploy import study as deployed
from focusfl.studies import runner, spec
from focusfl.studies.runner import run

OWN = '''
from dataclasses import dataclass

import numpy as np

import focusfl as ff
from beside import SCALE


def least_squares(num_clients: int, heterogeneity=1.0):
    """Rows of their own for every client."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((num_clients, 6, 3))
    return ff.problems.LeastSquares(A, SCALE * heterogeneity * A.sum(2))


@dataclass(frozen=True)
class Slower(ff.FedAvg):
    """FedAvg that goes half way."""

    share: float = 0.5

    def update(self, server, total, rd):
        new = super().update(server, total, rd)
        return new._replace(x=self.share * new.x + (1 - self.share) * server.x)


class Odd(ff.participation.Uniform):
    """Some of them."""


def nothing():
    return 3


def raises():
    return {}["no such column"]


def accurate():
    """It has an accuracy, and no loss."""
    rows = [{"x": np.ones((4, 1))}] * 5
    return ff.problems.from_loss(
        lambda p, s: s["x"][:, 0] * p["w"], {"w": np.ones(())}, rows, batch_size=4,
        eval_data=rows[0], metrics_fn=lambda p, s: {"accuracy": p["w"]},
    )


def spectrum():
    import torch

    class Spectrum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(torch.fft.fft(x).abs())

    one = torch.ones(4, 4), torch.tensor([0, 1, 0, 1])
    return ff.problems.from_torch(Spectrum(), torch.nn.CrossEntropyLoss(), [one] * 5)
'''
STUDY = """
rounds = 20
lr = 1e-3

[problem]
kind = "mine:least_squares"
num_clients = 5

[algorithms.focus]

[algorithms.slower]
kind = "mine:Slower"
share = 0.25

[participation.odd]
kind = "mine:Odd"
m = 2
"""


@pytest.fixture
def study(tmp_path):
    place = tmp_path / "here"
    place.mkdir()
    (place / "mine.py").write_text(OWN)
    (place / "beside.py").write_text("SCALE = 2.0")
    (place / "study.toml").write_text(STUDY)
    return place / "study.toml"


def test_each_runs_with_what_the_study_says(study):
    plan = spec.load(study)
    assert plan.problem.num_clients == 5 and plan.algorithms["slower"].algorithm.share == 0.25
    rows = {one.row["algorithm"]: one.row for one in run(plan)}
    assert rows.keys() == {"focus", "slower"}
    own = plan.algorithms["slower"].algorithm
    law = plan.participation["odd"].participation
    alone = ff.simulate(own, plan.problem, law, rounds=20, lr=1e-3)
    assert rows["slower"]["error"] == pytest.approx(
        float(np.median(alone.metrics["distance"][-2:]))
    )


def test_the_manifest_has_the_hash_of_the_source_and_a_change_is_run_again(study, tmp_path):
    found = runner.run_in_folder(spec.load(study), tmp_path / "out")
    part = found.manifest["parts"]["mine:Slower"]
    assert part["file"] == "mine.py" and len(part["sha256"]) == 64
    again = []
    runner.run_in_folder(spec.load(study), tmp_path / "out", finished=again.append)
    assert not again
    (study.parent / "mine.py").write_text(OWN + "# another\n")
    runner.run_in_folder(spec.load(study), tmp_path / "out", finished=again.append)
    assert len(sum(again, [])) == 2


def test_processes_find_it_too(study, tmp_path):
    found = runner.run_in_folder(spec.load(study), tmp_path / "out", workers=1)
    assert len(found.runs) == 2


def test_two_studies_may_have_modules_of_one_name(study, tmp_path):
    other = tmp_path / "there"
    shutil.copytree(study.parent, other)
    (other / "mine.py").write_text(OWN.replace("share: float = 0.5", "share: float = 0.1"))
    changes = ["algorithms.slower={kind='mine:Slower'}"]
    first, second = (spec.load(p, changes) for p in (study, other / "study.toml"))
    shares = [p.algorithms["slower"].algorithm.share for p in (first, second)]
    assert shares == [0.5, 0.1]


def test_an_app_carries_it(study, tmp_path):
    mine = deployed.load(study, [], "slower", None)
    package = tmp_path / "package"
    package.mkdir()
    (package / "beside.py").write_text("SCALE = 2.0")
    deployed.write(mine, package / deployed.FILE)
    assert (package / "mine.py").read_text() == OWN
    shutil.rmtree(study.parent)
    assert deployed.read(package / deployed.FILE).algorithm.share == 0.25


@pytest.mark.parametrize(
    "kind, words",
    [
        (
            "nowhere:make",
            "cannot find nowhere: there is no .*nowhere.py, and no installed",
        ),
        ("mine:maek", "mine has no class or function 'maek'; it has least_squares"),
        ("mine:nothing", r"\[problem\] must make a focusfl Problem; got int"),
        ("broken:make", "'broken:make' cannot be imported: ZeroDivisionError"),
        ("not a module:x", "must be like my_module:make_problem"),
        ("rigde", "Did you mean 'ridge'"),
        ("mine:raises", r"KeyError: 'no such column' \(mine.py, line \d+\)"),
    ],
)
def test_what_is_wrong_is_one_line(study, kind, words):
    (study.parent / "broken.py").write_text("1 / 0")
    with pytest.raises(ValueError, match=words) as error:
        spec.load(study, [f"problem={{kind='{kind}'}}"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name, words",
    [
        ("spectrum", "Spectrum cannot be translated to jax: no translation of _fft_"),
        ("accurate", "must measure a loss, a grad_norm or a distance; got accuracy"),
    ],
)
def test_what_no_run_could_use_is_one_line_and_nothing_is_written(study, name, words):
    done = in_process(
        "run", study, "--out", study.parent / "out", "--set",
        f"problem={{kind='mine:{name}'}}",
    )  # fmt: skip
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not (study.parent / "out").exists()


def test_it_is_not_looked_for_where_one_happens_to_be(study, monkeypatch, tmp_path):
    """The folder of the study counts, not that of the shell."""
    (tmp_path / "elsewhere.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="cannot find elsewhere"):
        spec.load(study, ["problem.kind='elsewhere:least_squares'"])


def test_what_it_does_not_take_is_refused_like_ours(study):
    with pytest.raises(ValueError, match="heterogenity"):
        spec.load(study, ["problem.heterogenity=2"])


def test_installed_packages_count(study):
    with pytest.raises(ValueError, match="must make a focusfl Problem; got Graph"):
        spec.load(study, ["problem={kind='networkx:path_graph', n=3}"])


def test_the_schema_lets_editors_write_it(study):
    from focusfl.studies.schema import json_schema

    text = json.dumps(json_schema())
    assert r"^[\\w.]+:\\w+$" in text
    assert Path(study).is_file()
