"""Networks on data sets: what is dealt out, what is computed, what is refused."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command_line import in_process

import focusfl as ff
from focusfl.problems import models

DIGITS = importlib.util.find_spec("sklearn") is not None
needs_digits = pytest.mark.skipif(not DIGITS, reason="scikit-learn is not installed")

STUDY = """
rounds = 2
lr = 0.1
[problem]
kind = "mlp"
data = "mine.npz"
hidden = [4]
num_clients = 3
batch_size = 2
[participation.full]
[algorithms.fedavg]
"""


def arrays(count=60, shape=(5,), classes=3, **more):
    rng = np.random.default_rng(0)
    y = np.arange(count) % classes
    return {"x": rng.normal(7, 3, (count, *shape)), "y": y, **more}


@pytest.fixture
def mine(tmp_path):
    """A study of a file of one's own; called with what the file holds."""

    def write(**content):
        np.savez(tmp_path / "mine.npz", **content)
        (tmp_path / "study.toml").write_text(STUDY)
        return tmp_path

    return write


@needs_digits
def test_digits_are_those_of_scikit_learn():
    found = ff.data.digits()
    assert found.x.shape == (1797, 8, 8, 1) and found.x.max() == 16
    assert np.bincount(found.y).tolist() == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180,
    ]  # fmt: skip
    assert found.x.sum() == 561_718 and found.y[:5].tolist() == [0, 1, 2, 3, 4]


@needs_digits
@pytest.mark.parametrize("model", ["softmax", "mlp", "cnn"])
def test_every_digit_is_with_one_client_or_held_out_and_its_gradient_is_downhill(model):
    problem = ff.problems.digits(model, num_clients=4, alpha=0.1, batch_size=32)
    held = problem.eval_data
    whole = np.concatenate(
        [x[:n] for x, n in zip(problem.samples["x"], problem.lengths, strict=True)] + [held["x"]]
    )
    assert sorted(map(bytes, whole)) == sorted(map(bytes, ff.data.digits().x))
    assert 0.19 < len(held["y"]) / 1797 < 0.21
    assert np.ptp(problem.lengths) <= 1  # balanced
    mean = jax.jit(lambda x: problem.objective.loss_fn(x, held).mean())
    x = jax.tree.map(lambda a, b: a - 0.1 * b, problem.x0, jax.grad(mean)(problem.x0))
    assert mean(x) < mean(problem.x0) == pytest.approx(np.log(10), abs=0.1)


def test_the_papers_cnn_has_the_weights_it_had():
    rng, params = ff.core.random.rng(3, "cnn"), models.cnn_params(3)
    shapes = [(3, 3, 3, 16), (3, 3, 16, 32), (3, 3, 32, 64), (1024, 500), (500, 10)]
    for name, shape in zip(params, shapes, strict=True):
        bound = 1 / np.sqrt(np.prod(shape[:-1]))
        for part, size in (("w", shape), ("b", shape[-1])):
            drawn = rng.uniform(-bound, bound, size).astype(np.float32)
            assert np.array_equal(params[name][part], drawn)


def test_features_are_standardised_channel_by_channel_by_what_is_trained_on(mine):
    x = np.stack([arrays(60, (4, 4))["x"], np.full((60, 4, 4), 3.5)], -1)
    file = mine(x=x, y=arrays()["y"]) / "mine.npz"
    problem = ff.problems.mlp_on(str(file), num_clients=3, batch_size=2, hidden=[2])
    scores = problem.objective.loss_fn.scores
    seen = models.Standardised(lambda params, x: x, scores.mean, scores.std)
    values = np.asarray(seen(problem.x0, {"x": problem.samples["x"].reshape(-1, 4, 4, 2)}))
    assert values[..., 0].mean() == pytest.approx(0, abs=1e-5)
    assert values[..., 0].std() == pytest.approx(1, abs=1e-5)
    assert not values[..., 1].any()  # it never varies


def test_an_mlp_of_a_file_is_the_mlp_of_its_arrays(mine):
    file = mine(**arrays(client=np.repeat(["ost", "west"], 30))) / "mine.npz"
    problem = ff.problems.mlp_on(str(file), batch_size=4, seed=2)
    assert problem.num_clients == 2 and problem.lengths.tolist() == [24, 24]
    scores = problem.objective.loss_fn.scores

    def plain(samples):
        return {**samples, "x": (samples["x"] - scores.mean) / scores.std}

    clients = [
        plain({"x": problem.samples["x"][i], "y": problem.samples["y"][i]}) for i in range(2)
    ]
    same = ff.problems.mlp(
        clients, classes=3, eval_data=plain(problem.eval_data), seed=2, batch_size=4
    )
    ours, theirs = (p.objective.evaluate(p.x0, p.eval_data) for p in (problem, same))
    assert ours["loss"] == pytest.approx(float(theirs["loss"]), rel=1e-5)
    batch = ff.core.Batch(jax.random.key(1), 0)
    ours, theirs = (
        p.objective.grad(p.x0, jax.tree.map(lambda a: a[1], p.data), batch) for p in (problem, same)
    )
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert np.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("count", [700, 2000, 2345])
def test_metrics_are_those_of_all_samples_however_many_are_taken_at_once(count):
    rng = np.random.default_rng(0)
    samples = {"x": rng.normal(size=(count, 3)), "y": rng.integers(0, 3, count)}
    samples = jax.tree.map(jnp.asarray, samples)
    plain = models.Standardised(lambda params, x: x, (0.0,) * 3, (1.0,) * 3)
    found = models.ImageMetrics(models.AccuracyAndLoss(plain))({"w": jnp.ones(1)}, samples)
    right = (samples["x"].argmax(1) == samples["y"]).mean()
    assert float(found["accuracy"]) == pytest.approx(float(right), abs=1e-6)
    losses = ff.problems.cross_entropy(samples["x"], samples["y"])
    assert float(found["loss"]) == pytest.approx(float(losses.mean()), rel=1e-5)


def test_a_study_keeps_the_hash_of_its_data_and_a_deployment_the_file(mine, tmp_path):
    from focusfl.deploy import study as deployed

    folder = mine(**arrays())
    done = in_process("run", folder / "study.toml", "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    manifest = ff.Study.load(tmp_path / "out").manifest
    assert manifest["parts"]["mine.npz"]["file"] == "mine.npz"
    assert manifest["study"]["problem"]["data"] == "mine.npz"
    (tmp_path / "app").mkdir()
    ours = deployed.load(folder / "study.toml", [], None, None)
    deployed.write(ours, tmp_path / "app" / deployed.FILE)
    theirs = deployed.read(tmp_path / "app" / deployed.FILE)
    assert np.array_equal(theirs.problem.samples["x"], ours.problem.samples["x"])


BAD = {
    "no x": ({"y": np.arange(4)}, [], "must hold arrays x and y; got y."),
    "no y": ({"x": np.ones((4, 2))}, [], "must hold arrays x and y; got x."),
    "labels below": (arrays() | {"y": np.arange(60) - 1}, [], "from 0, one for each"),
    "labels above": (arrays() | {"y": 10**6 + np.arange(60)}, [], "1000000 to 1000059"),
    "labels from 5": (arrays() | {"y": 5 + np.arange(60) % 3}, [],
        "got 3 labels from 5 to 7, and none is 0. Number them anew: y = np.unique("),
    "labels of words": (arrays() | {"y": np.array(["a"] * 60)}, [], "real numbers"),
    "labels with a point": (arrays() | {"y": np.ones(60)}, [], "float64"),
    "too few labels": (arrays() | {"y": np.arange(9)}, [], "(60, 5) and (9,)"),
    "a hole": (arrays() | {"x": np.full((60, 5), np.nan)}, [], "got nan at sample 0"),
    "too few clients": (arrays(client=np.arange(9)), [], "each of 60 samples"),
    "other clients": (arrays(client=np.arange(60) % 6), [], "num_clients must be 6"),
    "many clients": (arrays(), ["problem.num_clients=50"], "Use at most 48 clients"),
    "alpha": (arrays(), ["problem.alpha=0.0"], "alpha must be positive; got 0.0"),
    "negative alpha": (arrays(), ["problem.alpha=-1.0"], "alpha must be positive"),
    "split": (arrays(), ["problem.split=dirichlt"], "split must be one of by_label"),
    "data": (arrays(), ["problem.data=digts"], "data must be digits, cifar10 or"),
    "file": (arrays(), ["problem.data=your.npz"], "your.npz: No such file"),
    "tests": (arrays(), ["problem.test_share=0.0"], "test_share must leave"),
    "all tests": (arrays(), ["problem.test_share=0.99"], "test_share must leave"),
    "widths": (arrays(), ["problem.hidden=[0]"], "hidden widths must be a whole"),
    "no image": (arrays(), ["problem={kind='cnn', data='mine.npz'}"], "needs images"),
    "model": (arrays(), ["problem={kind='digits', model='cnm'}"], "one of softmax"),
    "key": (arrays(), ["problem.clients=4"], "Did you mean 'num_clients'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_nothing_is_written(case, mine):
    content, changes, words = BAD[case]
    folder = mine(**content)
    sets = [word for change in changes for word in ("--set", change)]
    done = in_process("run", folder / "study.toml", "--out", folder / "out", *sets)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not (folder / "out").exists()


def test_a_study_of_a_network_can_have_its_step_chosen(mine):
    folder = mine(**arrays())
    done = in_process(
        "run", folder / "study.toml", "--out", folder / "out", "--set",
        "algorithms={focus={lr='auto'}}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_what_is_no_archive_is_one_line(mine):
    folder = mine(**arrays())
    (folder / "mine.npz").write_bytes(b"PK\3\4 and then nothing")
    done = in_process("run", folder / "study.toml", "--out", folder / "out")
    assert done.returncode == 2 and "cannot read" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_extra_is_named(monkeypatch, mine):
    folder = mine(**arrays())
    real = importlib.util.find_spec
    gone = lambda name, *a: None if name == "sklearn" else real(name, *a)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", gone)
    done = in_process(
        "run", folder / "study.toml", "--out", folder / "out", "--set",
        "problem={kind='digits'}",
    )  # fmt: skip
    assert done.returncode == 2 and "pip install '.[digits]'" in done.stderr
    assert done.stderr.count("\n") == 1 and not (folder / "out").exists()


def test_a_missing_data_set_is_one_line(mine):
    folder = mine(**arrays())
    done = in_process(
        "run", folder / "study.toml", "--set", "problem.data=cifar10",
        FOCUSFL_DATA=str(folder), FOCUSFL_CACHE=str(folder), cwd=folder,
    )  # fmt: skip
    assert done.returncode == 2 and "the data set cifar10 is missing" in done.stderr
    assert done.stderr.count("\n") == 1 and not Path(folder / "runs").exists()
