"""What one can do with a result: read it, table it, draw it, keep it."""

import numpy as np
import pytest
import safetensors.numpy
from helpers import quadratic, walked

import focusfl as ff
from focusfl.core.models import read_model, save_model


@pytest.fixture(scope="module")
def result():
    return ff.simulate(
        ff.Focus(), quadratic(), ff.participation.Bernoulli(0.6), rounds=30, lr=0.05,
        eval_every=7,
    )  # fmt: skip


def test_it_reads_in_three_lines(result):
    first, second, third = repr(result).splitlines()
    assert first == "Result after 30 rounds at lr=0.05"
    assert second.startswith("  distance ") and "gradients" in third


def test_a_frame_has_a_row_for_every_evaluated_round(result):
    frame = result.to_frame()
    assert frame["round"].tolist() == [0, 7, 14, 21, 28, 30]
    assert frame["distance"].iloc[-1] == result.metrics["distance"][-1]


def test_it_is_read_back_as_it_was_saved(result, tmp_path):
    file = result.save(tmp_path / "run.safetensors")
    back = ff.Result.load(file)
    assert np.array_equal(back.x, result.x) and repr(back) == repr(result)
    for name, curve in result.metrics.items():
        assert np.array_equal(back.metrics[name], curve, equal_nan=True)


def test_others_find_the_model_alone_in_its_file(tmp_path):
    run = ff.simulate(ff.FedAvg(), walked(), ff.participation.Full(), rounds=2, lr=0.01)
    theirs = safetensors.numpy.load_file(run.save(tmp_path / "model.safetensors"))
    assert theirs.keys() == {"w", "b"} and np.array_equal(theirs["w"], run.x["w"])
    assert np.array_equal(read_model(tmp_path / "model.safetensors")["b"], run.x["b"])


def test_it_draws_the_metric_asked_for(result):
    axes = result.plot("loss", label="FOCUS")
    (line,) = axes.lines
    assert line.get_xdata().tolist() == [0, 7, 14, 21, 28, 30]
    assert axes.get_ylabel() == "loss"
    with pytest.raises(ValueError, match="unknown metric: 'los'. Did you mean 'loss'?"):
        result.plot("los")


def test_a_model_is_not_taken_for_a_result(tmp_path):

    file = save_model(tmp_path / "m.safetensors", np.ones(3))
    with pytest.raises(ValueError, match="a model and no result; use core.models.read_model"):
        ff.Result.load(file)


def test_the_front_door_lists_what_there_is():
    assert set(ff.__all__) < set(dir(ff)) and "importlib" not in dir(ff)


def test_its_summary_says_when_the_target_was_reached_and_what_that_took(result):
    row = result.summary(target=0.5)
    distance, at = result.metrics["distance"], row["rounds_to_target"]
    assert distance[at] <= 0.5 and row["measure"] == "distance" and row["rounds"] == 30
    before = [r for r in result.evaluated if r < at]
    assert (distance[before] > 0.5).all()
    sent = result.metrics["down"] + result.metrics["up"]
    assert row["vectors_to_target"] == sent[: at + 1].sum() and row["vectors"] == sent.sum()
    assert row["distance"] == distance[-1] and row["gradients"] == row["vectors"] / 2
    never = result.summary(target=1e-300)
    assert never["rounds_to_target"] is None and never["vectors_to_target"] is None
