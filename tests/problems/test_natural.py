"""Networks on natural federations: what is computed, whom it is evaluated on."""

import numpy as np
import pytest
from command_line import in_process

import focusfl as ff
from focusfl.problems import models

STUDY = """
rounds = 1
lr = 0.1
per_client = true
[problem]
kind = "{kind}"
[participation.full]
[algorithms.fedavg]
"""


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def test_the_recurrent_network_is_the_one_of_the_formulas():
    params, x = models.gru_params(5, 3, seed=1), np.array([[0, 4, 2], [3, 3, 1]])
    (keep, bias), (out, last) = (params[k].values() for k in ("keep", "out"))
    for row, found in zip(x, np.asarray(models.gru(params, x)), strict=True):
        h = np.zeros(3)
        for sign, scores in zip(row, found, strict=True):
            read, kept = np.split(params["read"][sign], 3), np.split(h @ keep + bias, 3)
            update, reset = (sigmoid(read[k] + kept[k]) for k in (0, 1))
            h = update * h + (1 - update) * np.tanh(read[2] + reset * kept[2])
            assert np.allclose(scores, h @ out + last, atol=1e-6)


def test_speakers_learn_what_they_say_and_are_judged_by_its_end(tmp_path):
    (tmp_path / "shakespeare").mkdir()
    said = {"A": "ab" * 60, "B": "ac" * 60}
    turns = "\n\n".join(f"{name}:\n{words}" for name, words in said.items())
    (tmp_path / "shakespeare" / "input.txt").write_text(turns)
    problem = ff.problems.shakespeare(2, 6, 8, batch_size=4, data_dir=str(tmp_path))
    found = ff.data.shakespeare(2, 6, data_dir=tmp_path)
    run = ff.simulate(
        ff.FedAvg(), problem, ff.participation.Full(), rounds=40, lr=2.0,
        local_steps=3, eval_every=40, per_client=True,
    )  # fmt: skip
    # After an a nobody knows which one speaks before the first b or c.
    assert run.metrics["accuracy"][-1] > 0.85 > run.metrics["accuracy"][0]
    for own, accuracy in zip(found.test, run.clients_metrics["accuracy"], strict=True):
        right = np.asarray(models.gru(run.x, own["x"])).argmax(2) == own["y"]
        assert accuracy == pytest.approx(right.mean(), abs=1e-6)


def images(seed, many, classes=3):
    rng = np.random.default_rng(seed)
    y = np.arange(many) % classes
    x = rng.integers(0, 60, (many, 8, 8), dtype=np.uint8)
    x[np.arange(many), y] += 150  # a bright row tells the class
    return {"x": x, "y": y}


def test_a_cnn_on_anybodys_federation_is_judged_by_each_clients_tests():
    train, test = [images(k, 12) for k in range(2)], [images(9, 6), images(8, 3)]
    found = ff.data.Federation(train, test, ("ann", "bob"), ("a", "b", "c"))
    problem = ff.problems.cnn(found, (4,), 8, batch_size=6, seed=1)
    run = ff.simulate(
        ff.FedAvg(), problem, ff.participation.Full(), rounds=30, lr=0.2,
        local_steps=3, eval_every=30, per_client=True,
    )  # fmt: skip
    assert run.metrics["accuracy"][-1] > 0.85
    scores = problem.mean_loss.metrics_fn.each.scores
    pixels = np.concatenate([own["x"] for own in train])
    assert scores.mean == pytest.approx((pixels.mean(),))
    for own, accuracy in zip(test, run.clients_metrics["accuracy"], strict=True):
        told = scores(run.x, {"x": own["x"][..., None]}).argmax(1)
        assert accuracy == pytest.approx((np.asarray(told) == own["y"]).mean())


def test_what_is_no_image_is_refused():
    flat = {"x": np.ones((4, 5)), "y": np.zeros(4, int)}
    found = ff.data.Federation([flat], [flat], ("a",), ("0",))
    with pytest.raises(ValueError, match="cnn needs images .* got samples of shape"):
        ff.problems.cnn(found, batch_size=2)


@pytest.mark.parametrize("kind", ["spoken_digits", "omniglot", "shakespeare"])
def test_a_study_without_its_data_ends_with_one_line(kind, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY.format(kind=kind))
    done = in_process(
        "run", "study.toml", cwd=tmp_path, FOCUSFL_DATA=str(tmp_path),
        FOCUSFL_CACHE=str(tmp_path / "no"),
    )  # fmt: skip
    assert done.returncode == 2 and f"the data set {kind} is missing" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "runs").exists()
