"""The image experiment: what is run, what is kept, what is drawn."""

import json

import numpy as np
import pytest

import focusfl as ff
from focusfl.cli import main
from focusfl.experiment import images
from focusfl.experiment.summary import tracking_gap
from focusfl.problems import vision
from focusfl.report import images as report


@pytest.fixture
def tiny(monkeypatch):
    """The experiment on eight random images a client; counts what is run."""
    rng = np.random.default_rng(0)

    def draw(count):
        x = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        return {"x": x, "y": rng.integers(0, 10, count, dtype=np.int32)}

    problem = ff.problems.from_loss(
        vision.image_loss, vision.cnn_params(), [draw(8) for _ in range(32)],
        batch_size=4, eval_data=draw(10), metrics_fn=vision.image_metrics,
    )  # fmt: skip
    ran = []
    run_group = images._carry_out
    monkeypatch.setattr(images, "_problem", lambda seed, dtype: problem)
    monkeypatch.setattr(
        images, "_carry_out", lambda run, *a: ran.append(run) or run_group(run, *a)
    )
    monkeypatch.setattr(images, "TUNE_ROUNDS", 2)
    return ran


def test_a_second_call_runs_nothing_again(tiny, tmp_path):
    first = list(images.reproduce(tmp_path, algorithms=("focus",), rounds=3))
    assert len(tiny) == 1
    again = list(images.reproduce(tmp_path, algorithms=("focus", "fedavg"), rounds=3))
    assert again[0] == first[0]
    assert [run.algorithm for run in tiny] == ["focus", "fedavg"]
    assert not list(tmp_path.glob("unfinished/*"))


def test_tuning_takes_the_best_of_the_steps_it_tried(tiny, tmp_path):
    paper, tuned = images.reproduce(
        tmp_path, algorithms=("fedavg",), rounds=2, tune=True
    )
    tried = {c.run.lr: c.final for c in images.load(tmp_path / "results.json")
             if c.run.step == "tuning"}  # fmt: skip
    assert len(tried) >= 3
    assert tried[tuned.run.lr] == max(tried.values())
    assert (paper.run.step, tuned.run.step) == ("paper", "tuned")


def test_the_command_writes_a_table_and_two_pictures(tiny, tmp_path, capsys):
    asked = ["reproduce", "cifar10", "--out", str(tmp_path), "--rounds", "2"]
    asked += ["--algorithms", "focus,mifa", "--participation", "bernoulli,markov"]
    assert main(asked) == 0
    assert "FOCUS" in capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["curves"]) == 4
    assert found["curves"][0]["tracking_gap"] < 1e-5
    for name in ("accuracy.png", "clients.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "asked, told",
    [
        (["cifar10", "--participation", "markof"], "Did you mean 'markov'"),
        (["cifar10", "--algorithms", "focs"], "Did you mean 'focus'"),
        (["cifar10", "--rounds", "0"], "rounds must be a whole number"),
    ],
)
def test_bad_input_is_one_line(asked, told, tiny, tmp_path, capsys):
    assert main(["reproduce", *asked, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("asked", [["cifar10", "--set", "lr=1"], ["ridge", "--tune"]])
def test_an_experiment_has_its_own_options_alone(asked, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *asked, "--out", str(tmp_path / "out")])
    assert ended.value.code == 2 and not (tmp_path / "out").exists()
    assert f"unrecognized arguments: {asked[1]}" in capsys.readouterr().err


def test_results_of_something_else_are_refused(tiny, tmp_path, capsys):
    (tmp_path / "results.json").write_text("{}")
    assert main(["reproduce", "cifar10", "--out", str(tmp_path)]) == 2
    assert "cannot read" in capsys.readouterr().err
    assert (tmp_path / "results.json").read_text() == "{}"


def test_chances_are_those_of_the_paper():
    p = images.chances()
    assert ((p[:-4] >= 0.1) & (p[:-4] <= 0.3)).all()
    assert ((p[-4:] >= 0.1) & (p[-4:] <= 0.9)).all()
    same = images.participation("markov", images.SEED).marginals(32).p
    assert same == pytest.approx(p)


def test_a_tracker_that_lost_a_push_shows():
    masks = np.array([[True, True], [True, False]])
    result = ff.simulate(
        ff.Focus(), ff.problems.random_quadratic(2, 3, seed=0),
        ff.participation.Replay(masks), rounds=2, lr=0.01, local_steps=2,
    )  # fmt: skip
    assert tracking_gap(result) < 1e-15
    lost = result.server._replace(y=0 * result.server.y)
    object.__setattr__(result, "server", lost)
    assert tracking_gap(result) > 0.1


def test_the_paper_is_run_on_the_real_images(tmp_path):
    try:
        ff.data.cifar10()
    except ValueError as missing:
        pytest.skip(str(missing))
    (curve,) = images.reproduce(tmp_path, algorithms=("focus",), rounds=2)
    assert 0.02 < curve.final < 0.3 and curve.loss[-1] < 3
    assert (images.counts().sum(1) == 1562).all()
    assert report.lines([curve])[0][1] == "FOCUS"
