"""A study that asks who is served: its files, its table, its stops."""

import numpy as np
import pytest

from focusfl.cli import main
from focusfl.studies import runner, spec
from focusfl.studies.report import compare, export

STUDY = """
rounds = 30
lr = [1e-3, 2e-3]
local_steps = 2
seeds = 2
eval_every = 10
per_client = true

[problem]
kind = "ridge"
num_clients = 12
dim = 4
rows = 6

[participation.some]
kind = "bernoulli"
p = 0.4

[algorithms.focus]
"""


UNHEARD = """
import focusfl as ff
import numpy as np


def make():
    samples = {"x": np.ones((4, 2))}
    return ff.problems.from_loss(
        lambda x, s: s["x"] @ x, np.zeros(2), [samples] * 2, batch_size=2,
        eval_data=samples, metrics_fn=lambda x, s: {"gini": (s["x"] @ x).sum()},
    )
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("served") / "study.toml"
    file.write_text(STUDY)
    return file


@pytest.fixture(scope="module")
def found(file):
    return runner.run_in_folder(spec.load(file), file.parent / "out")


def test_a_study_keeps_what_every_last_model_is_to_each_client(file, found):
    problem = spec.load(file).problem
    table = found.clients()
    assert len(table) == 4 * 12 and table["client"].tolist() == [*range(12)] * 4
    for run in found.runs:
        own = table[(table["lr"] == run.row["lr"]) & (table["seed"] == run.row["seed"])]
        x = found.model(lr=run.row["lr"], seed=run.row["seed"])
        by_hand = ((problem.A @ x - problem.b) ** 2).sum(1) + problem.penalty * x @ x
        assert np.allclose(own["loss"], by_hand, rtol=1e-10)
        assert np.array_equal(own["loss"], run.clients["loss"])
        assert np.isclose(run.curves["loss/worst"][-1], by_hand.max(), rtol=1e-10)


def test_finished_runs_come_back_with_their_clients(file, found):
    ran = []
    again = runner.run_in_folder(spec.load(file), found.folder, finished=ran.extend)
    assert not ran
    for one, other in zip(found.runs, again.runs, strict=True):
        assert np.array_equal(one.clients["loss"], other.clients["loss"])


def test_a_study_that_does_not_ask_shares_nothing_with_one_that_does(file, tmp_path):
    out, small = tmp_path / "out", ["lr=1e-3", "seeds=1"]
    runner.run_in_folder(spec.load(file, small), out)
    ran: list = []
    plain = spec.load(file, [*small, "per_client=false"])
    found = runner.run_in_folder(plain, out, finished=ran.extend)
    assert len(ran) == 1 and not found.runs[0].clients
    assert "loss/worst" not in found.runs[0].curves
    assert found.clients().empty


def test_tables_tell_the_worst_client(found):
    header = export.table_csv(found).splitlines()[0].split(",")
    assert {"loss/worst", "loss/worst_tenth_q1", "loss/spread_q3"} <= set(header)
    assert "loss, worst client" in export.latex(found)
    told = {change.what: change for change in compare.compare(found, found).changes}
    assert told["loss/worst"].word == "same"


def test_a_word_or_a_target_that_is_not_known_is_one_line(file, tmp_path, capsys):
    def refused(*changes):
        more = [word for change in changes for word in ("--set", change)]
        assert main(["run", str(file), "--out", str(tmp_path / "no"), *more]) == 2
        assert not (tmp_path / "no").exists()
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "per_client must be true or false; got" in refused("per_client=each")
    (file.parent / "mine.py").write_text(UNHEARD)
    words = refused("problem={ kind = 'mine:make' }")
    assert "line 7: " in words and "whether more of 'gini' is better" in words
    words = refused('stop.below={"loss/worse" = 1.0}')
    assert "unknown metric: 'loss/worse'. Did you mean 'loss/worst'" in words


def test_a_study_stops_by_its_worst_client(file, found):
    curve = found.runs[0].curves["loss/worst"]
    assert curve[1] < curve[0]
    stop = f'stop.below={{"loss/worst" = {1.001 * curve[1]}}}'
    study = spec.load(file, [stop, "lr=1e-3", "seeds=1"])
    early = runner.run_in_folder(study, file.parent / "early")
    assert early.runs[0].row["rounds"] == 10
