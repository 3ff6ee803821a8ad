"""Who is served: what a model is to each client, and what is told of them."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Nested, Stopped, bits, loop, quadratic, simulate, stop_after, sweep

import focusfl as ff
from focusfl.core.metrics import rises, summarize_clients
from focusfl.problems import evaluation
from focusfl.simulation import plan as layout
from focusfl.simulation import runner as simulation

HOW = {"rounds": 6, "lr": 0.05, "local_steps": 2, "per_client": True}
WHO = ff.participation.Bernoulli(0.6)
LENGTHS = (3, 7, 5, 3, 7, 5, 7, 3, 5, 5, 7, 3)  # of clients' own test sets
both = pytest.mark.parametrize("run", [loop, simulate])


def samples(rng, rows, shift):
    x = (rng.standard_normal((rows, 3)) + shift).astype("float32")
    return {"x": x, "y": (x[:, 0] + shift * x[:, 1] > shift).astype(int)}


def scores(params, x):
    return x @ params["w"] + params["b"]


def losses(params, samples):
    return jnp.logaddexp(0, (1 - 2 * samples["y"]) * scores(params, samples["x"]))


def metrics(params, samples):
    """A mean over samples, and what is none: the root of one, and a worst case."""
    right = (scores(params, samples["x"]) > 0) == (samples["y"] > 0)
    found = losses(params, samples)
    return {"accuracy": right.mean(), "rmse": (found**2).mean() ** 0.5,
            "largest_loss": found.max()}  # fmt: skip


@cache
def hospitals(own=True, metrics_fn=metrics, lengths=LENGTHS):
    rng = np.random.default_rng(0)
    clients = [samples(rng, 8 + i % 3, i / 4) for i in range(len(lengths))]
    tests = [samples(rng, rows, i / 4) for i, rows in enumerate(lengths)]
    return ff.problems.from_loss(
        losses, {"w": np.zeros(3), "b": np.zeros(())}, clients, batch_size=4,
        eval_data=samples(rng, 30, 1.0), client_eval_data=tests if own else None,
        metrics_fn=metrics_fn,
    )  # fmt: skip


QUICK = quadratic(12)


def by_hand(x, sets):
    """The metrics of each set, in numpy and one after the other."""
    found = {"accuracy": [], "rmse": [], "largest_loss": []}
    for one in sets:
        score = one["x"].astype(float) @ x["w"].astype(float) + float(x["b"])
        loss = np.logaddexp(0, (1 - 2 * one["y"]) * score)
        found["accuracy"].append(((score > 0) == (one["y"] > 0)).mean())
        found["rmse"].append((loss**2).mean() ** 0.5)
        found["largest_loss"].append(loss.max())
    return {name: np.array(values) for name, values in found.items()}


@both
def test_metrics_are_those_of_each_clients_own_set_however_long_it_is(run):
    problem = hospitals()
    result = run(ff.Focus(), problem, WHO, **HOW)
    found = by_hand(result.x, problem.clients_evaluated_on)
    assert result.clients_metrics.keys() == found.keys()
    for name, values in found.items():
        assert np.allclose(result.clients_metrics[name], values, rtol=1e-5), name
    ordered = np.sort(found["accuracy"])
    for name, value in {
        "accuracy/worst": ordered[0],
        "accuracy/worst_tenth": ordered[:2].mean(),  # of twelve
        "accuracy/spread": found["accuracy"].std(),
        "rmse/worst": found["rmse"].max(),  # of a loss the highest
        "largest_loss/worst_tenth": np.sort(found["largest_loss"])[-2:].mean(),
    }.items():
        assert np.isclose(result.metrics[name][-1], value, rtol=1e-5), name
    assert len(result.metrics["rmse/spread"]) == HOW["rounds"] + 1


def test_without_sets_of_their_own_clients_are_evaluated_on_their_training_data():
    problem = hospitals(own=False)
    x = {"w": np.array([1.0, -2, 0.5], "float32"), "b": np.float32(0.3)}
    found = problem.objective.evaluate_clients(x, problem.client_eval_data)
    own = evaluation.unstacked(problem.samples, problem.lengths)
    assert [len(one["y"]) for one in own[:3]] == [8, 9, 10]
    for name, values in by_hand(x, own).items():
        assert np.allclose(found[name], values, rtol=1e-5), name


def test_means_over_samples_are_found_of_all_samples_in_a_row(monkeypatch):
    def each(params, samples):
        right = (scores(params, samples["x"]) > 0) == (samples["y"] > 0)
        return {"accuracy": right, "loss": losses(params, samples)}

    monkeypatch.setattr(evaluation, "SAMPLES_AT_ONCE", 10)  # several blocks, the last one padded
    problem = hospitals(metrics_fn=ff.problems.PerSample(each))
    assert problem.client_eval_data["samples"]["x"].shape == (6, 10, 3)
    x = {"w": np.array([1.0, -2, 0.5], "float32"), "b": np.float32(0.3)}
    found = problem.objective.evaluate_clients(x, problem.client_eval_data)
    for i, one in enumerate(problem.clients_evaluated_on):
        for name, value in problem.objective.evaluate(x, one).items():
            assert np.isclose(found[name][i], value, rtol=1e-6)
    plain = hospitals(metrics_fn=None)
    alone = plain.objective.evaluate_clients(x, plain.client_eval_data)
    assert np.allclose(alone["loss"], found["loss"], rtol=1e-6)


@pytest.mark.parametrize("problem", [
    quadratic(), ff.problems.ridge(5, 4, 6), ff.problems.ridge(5, 9, 3),
    ff.problems.wavy(5, 4), ff.problems.robust(5, 4),
    ff.problems.Noisy(quadratic(), 0.1),
    ff.problems.Logistic(np.random.default_rng(0).standard_normal((4, 6, 3)),
                         np.resize([1, -1, 1], (4, 6))),
    ff.problems.Cox(np.random.default_rng(0).standard_normal((4, 6, 3)),
                    np.random.default_rng(1).random((4, 6)), np.ones((4, 6), bool)),
], ids=lambda problem: type(problem).__name__)  # fmt: skip
def test_the_losses_of_clients_have_the_loss_for_their_mean_and_its_slopes(problem):
    """f_i and its gradient belong together, and F is the mean of the f_i."""
    plain = getattr(problem, "exact", problem)
    rng = np.random.default_rng(2)
    x, aside = (rng.standard_normal(len(problem.x0)) for _ in range(2))

    def clients(x):
        return problem.objective.evaluate_clients(x, problem.client_eval_data)["loss"]

    whole = problem.objective.evaluate(x, problem.eval_data)["loss"]
    assert clients(x).shape == (problem.num_clients,)
    assert np.isclose(clients(x).mean(), whole, rtol=1e-12)
    small = 1e-5
    slopes = (clients(x + small * aside) - clients(x - small * aside)) / (2 * small)
    for i, slope in enumerate(slopes):
        data = {name: leaf[i] for name, leaf in plain.data.items()}
        grad = plain.objective.grad(x, data, None)
        assert np.isclose(slope, grad @ aside, rtol=1e-6, atol=1e-6)


def test_least_squares_are_what_they_are_by_hand_in_both_engines():
    problem = ff.problems.ridge(12, 4, 6)
    how = HOW | {"lr": 1e-3, "local_steps": 4}  # in everybody's own coordinates
    slow, fast = (run(ff.Focus(), problem, WHO, **how) for run in (loop, simulate))
    own = ((problem.A @ fast.x - problem.b) ** 2).sum(1)
    own += problem.penalty * fast.x @ fast.x
    for result in (slow, fast):
        assert np.allclose(result.clients_metrics["loss"], own, rtol=1e-10)
        assert np.isclose(result.metrics["loss/worst"][-1], own.max(), rtol=1e-10)
    for name, curve in slow.metrics.items():
        assert np.allclose(curve, fast.metrics[name], rtol=1e-10), name


def test_the_worst_is_the_lowest_of_what_rises_and_the_highest_of_what_falls():
    values = np.arange(1.0, 22.0)  # of 21 clients the worst tenth are three
    found = summarize_clients({"accuracy": values, "loss": values})
    assert found["accuracy/worst"] == 1 and found["accuracy/worst_tenth"] == 2
    assert found["loss/worst"] == 21 and found["loss/worst_tenth"] == 20
    assert found["loss/spread"] == values.std() == found["accuracy/spread"]
    assert rises("test_AUC") and rises("accuracy/worst") and rises("r2-score")
    assert not any(map(rises, ("accuracy/spread", "recall_error", "loss", "unheard")))


def test_by_default_nothing_of_it_is_computed_or_told():
    result = simulate(ff.Focus(), QUICK, WHO, **HOW | {"per_client": False})
    assert not result.clients_metrics
    assert not any("/" in name for name in result.metrics)
    served = simulate(ff.Focus(), QUICK, WHO, **HOW)
    assert np.array_equal(result.x, served.x)  # it only looks
    assert np.array_equal(result.metrics["loss"], served.metrics["loss"])


def test_runs_side_by_side_have_what_each_has_alone():
    how = HOW | {"eval_every": 4}
    lr = how.pop("lr")
    alone = simulate(ff.Focus(), QUICK, WHO, lr=lr, seed=3, **how)
    every = sweep(ff.Focus(), QUICK, WHO, lrs=[0.1, lr], seed=[0, 3], **how)
    same = every[3]
    assert same.lr == lr and same.evaluated.tolist() == [0, 4, 6]
    own = alone.clients_metrics["loss"], same.clients_metrics["loss"]
    assert own[0].shape == (12,) and np.allclose(*own, rtol=1e-12)
    worst = (run.metrics["loss/worst"] for run in (alone, same))
    assert np.allclose(*worst, rtol=1e-12, equal_nan=True)
    assert not np.allclose(every[0].clients_metrics["loss"], own[0])


def test_a_run_stops_by_what_the_worst_client_has():
    worst = simulate(ff.Focus(), QUICK, WHO, **HOW).metrics["loss/worst"]
    first = int(np.argmax(worst >= 0.6))  # it begins at 0
    assert 1 < first < HOW["rounds"]
    stop = ff.Stop(above={"loss/worst": 0.6})
    early = simulate(ff.Focus(), QUICK, WHO, callbacks=stop, **HOW)
    assert len(early.metrics["loss/worst"]) == first + 1
    with pytest.raises(ValueError, match="unknown metric: 'loss/wrst'"):
        wrong = ff.Stop(above={"loss/wrst": 0.5})
        simulate(ff.Focus(), QUICK, WHO, callbacks=wrong, **HOW)


def test_a_checkpoint_knows_what_was_evaluated(tmp_path, monkeypatch):
    policy = layout.ChunkPolicy(8, 50, 3)
    monkeypatch.setattr(simulation, "chunk_policy", lambda *_: policy)
    how = HOW | {"rounds": 20}
    kept = how | {"checkpoint": tmp_path, "checkpoint_every": 0}
    whole = simulate(ff.Focus(), QUICK, WHO, **how)
    with pytest.raises(Stopped):
        simulate(ff.Focus(), QUICK, WHO, callbacks=stop_after(8), **kept)
    assert bits(simulate(ff.Focus(), QUICK, WHO, **kept)) == bits(whole)
    with pytest.raises(ValueError, match="per_client was True, is False"):
        simulate(ff.Focus(), QUICK, WHO, **kept | {"per_client": False})


def test_clients_memory_may_be_elsewhere():
    here, there = (
        simulate(ff.Focus(), QUICK, WHO, client_state=where, **HOW) for where in ("device", "host")
    )
    own = here.clients_metrics["loss"], there.clients_metrics["loss"]
    assert np.array_equal(*own)


def test_a_saved_result_still_says_who_is_served(tmp_path):
    result = simulate(ff.Focus(), hospitals(), WHO, **HOW)
    back = ff.Result.load(result.save(tmp_path / "run.safetensors"))
    for name, values in result.clients_metrics.items():
        assert np.array_equal(back.clients_metrics[name], values)
    assert "accuracy/worst" in result.to_frame()
    assert result.plot("accuracy/worst").get_yscale() == "linear"


TESTS = [samples(np.random.default_rng(0), 4, 0.0) for _ in range(12)]
WRONG = {
    "for each of 12 clients; got 11": TESTS[:11],
    "client 3 of client_eval_data has no data; give it some": [
        *TESTS[:3], {"x": np.zeros((0, 3)), "y": np.zeros(0, int)}, *TESTS[4:],
    ],
    "client 0 of client_eval_data must have the same arrays as client_data, x, y; "
    "got x": [{"x": one["x"]} for one in TESTS],
    r"client 1 of client_eval_data, data\['x'\]: a sample must be of shape \(3,\)": [
        TESTS[0], TESTS[1] | {"x": np.zeros((4, 2), "float32")}, *TESTS[2:],
    ],
    "client_eval_data must be a list": {"x": 1},
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_sets_that_cannot_be_are_refused_before_anything_runs(words):
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=words):
        ff.problems.from_loss(
            losses, {"w": np.zeros(3), "b": np.zeros(())},
            [samples(rng, 8, 0.0)] * 12, batch_size=4, eval_data=TESTS[0],
            client_eval_data=WRONG[words],
        )  # fmt: skip


def test_labels_of_clients_sets_must_be_classes():
    wrong = [*TESTS[:2], TESTS[2] | {"y": np.full(4, 7)}]
    with pytest.raises(ValueError, match="client 2 of client_eval_data: labels"):
        ff.problems.softmax(
            TESTS[:3], classes=2, eval_data=TESTS[0], batch_size=2,
            client_eval_data=wrong,
        )  # fmt: skip


@both
def test_what_cannot_be_served_is_refused_in_a_line(run):
    def refused(problem, words, **how):
        with pytest.raises(ValueError, match=words):
            run(ff.FedAvg(), problem, WHO, **HOW | how)

    refused(quadratic(), "per_client must be true or false", per_client="each")
    refused(Nested(), "needs a problem with client_eval_data.* Nested has none")

    def unheard(params, samples):
        return {"gini": losses(params, samples).mean()}

    refused(hospitals(metrics_fn=unheard), "whether more of 'gini' is better")

    def picky(params, samples):
        return {"loss": losses(params, samples).reshape(-1, 2, 3, 5).mean()}

    refused(
        hospitals(own=False, metrics_fn=picky),
        "metrics_fn fails on a client's 8 samples",
    )

    def taken(params, samples):
        return metrics(params, samples) | {"accuracy/worst": 0 * params["b"]}

    refused(hospitals(metrics_fn=taken), "accuracy/worst is a metric that")


def test_a_metric_of_each_sample_must_have_a_number_for_each():
    each = ff.problems.PerSample(lambda x, s: {"loss": losses(x, s).mean()})
    with pytest.raises(ValueError, match="a number for every sample; 'loss' has shape"):
        hospitals(metrics_fn=each)


def test_large_sets_are_evaluated_some_at_a_time():
    """A thousand samples at once: nothing in the program is of everybody's."""
    problem = hospitals(lengths=(600,) * 12)
    text = jax.jit(problem.objective.evaluate_clients).lower(
        jax.tree.map(jnp.asarray, problem.x0), problem.client_eval_data
    )
    assert "12x600x3xf32" in text.as_text()  # what is given
    assert "12x600xf32" not in text.as_text() and "1x600xf32" in text.as_text()


@both
@pytest.mark.parametrize("name", ["seconds", "down", "a\x1b[31m"])
def test_a_metric_that_would_take_the_place_of_a_column_is_refused(run, name):
    problem = ff.problems.from_loss(
        lambda w, samples: samples["x"] @ w["w"], {"w": np.ones(2)},
        [{"x": np.ones((3, 2))}] * 2, batch_size=3, eval_data={"x": np.ones((3, 2))},
        metrics_fn=lambda w, samples: {name: samples["x"].mean()},
    )  # fmt: skip
    with pytest.raises(ValueError, match="a metric must have a printable name"):
        run(ff.Focus(), problem, ff.participation.Full(), rounds=1, lr=0.1)
