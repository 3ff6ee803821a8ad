"""Softmax regression and the multilayer perceptron on arrays a user brings."""

import jax
import numpy as np
import pytest

import focusfl as ff
from focusfl import participation as who


def rings(num_clients=4, seed=0):
    """Two classes no line parts, one inside the other; images of 1 x 2 pixels."""
    rng = np.random.default_rng(seed)

    def draw(n):
        y = rng.integers(2, size=n)
        turn = rng.uniform(0, 2 * np.pi, n)
        x = (1 + 2 * y[:, None]) * np.stack([np.cos(turn), np.sin(turn)], 1)
        return {"x": (x + 0.1 * rng.standard_normal((n, 2)))[:, None], "y": y}

    return [draw(30 + 5 * i) for i in range(num_clients)], draw(200)


def train(problem, rounds=600):
    law = who.Bernoulli([0.9, 0.9, 0.2, 0.9])
    return ff.simulate(
        ff.Focus(),
        problem,
        law,
        rounds=rounds,
        lr=0.05,
        local_steps=3,
        eval_every=50,
        options=ff.Options(on_divergence="ignore"),  # a line cannot part rings: its loss rises
    ).metrics


def test_an_mlp_learns_what_softmax_regression_cannot():
    clients, eval_data = rings()
    options = {
        "classes": 2,
        "eval_data": eval_data,
        "batch_size": 10,
        "stream": "fixed_order",
    }
    line = train(ff.problems.softmax(clients, **options))
    net = train(ff.problems.mlp(clients, hidden=(16,), seed=1, **options))
    assert line["accuracy"][-1] < 0.7 and net["accuracy"][-1] > 0.95
    assert net["loss"][-1] < line["loss"][-1]


def test_softmax_starts_from_zero_and_its_loss_is_the_textbooks():
    clients, eval_data = rings()
    problem = ff.problems.softmax(clients, classes=3, eval_data=eval_data, batch_size=10)
    assert jax.tree.map(np.shape, problem.x0) == {"layer0": {"w": (2, 3), "b": (3,)}}
    found = problem.objective.evaluate(problem.x0, eval_data)
    assert found["loss"] == pytest.approx(np.log(3), rel=1e-6)
    scores = np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 0.5]])
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    loss = ff.problems.cross_entropy(jax.numpy.asarray(scores), np.array([2, 1]))
    assert np.allclose(loss, -np.log(chances[[0, 1], [2, 1]]), rtol=1e-6)


def test_layers_have_the_widths_asked_for():
    clients, eval_data = rings()
    x0 = ff.problems.mlp(clients, classes=2, eval_data=eval_data, hidden=(8, 5), batch_size=10).x0
    assert [x0[f"layer{i}"]["w"].shape for i in range(3)] == [(2, 8), (8, 5), (5, 2)]
    assert 0 < np.abs(x0["layer1"]["w"]).max() < 1 / np.sqrt(8)


def change(i, **arrays):
    clients, eval_data = rings()
    clients[i] |= arrays
    return clients, eval_data


@pytest.mark.parametrize(
    "data, options, message",
    [
        (change(2, y=np.full(40, 2)), {}, r"client 2: labels must lie in 0..1; got 2"),
        (change(1, y=np.full(35, -1)), {}, r"client 1: labels must .* got -1"),
        (
            change(1, y=np.ones(35)),
            {},
            r"client 1, data\['y'\]: .* got .*float64",
        ),
        (rings(), {"classes": 1}, "labels must lie in 0..0; got 1"),
        (rings(), {"classes": 0}, "classes must be .* got 0"),
        (rings(), {"hidden": (8, 0)}, "hidden widths must be .* got 0"),
        (([{"a": np.ones(3)}], rings()[1]), {}, "client 0 must be a dict with x and y"),
        ((rings()[0], {"y": np.ones(3, int)}), {}, "eval_data must be a dict .* got y"),
        (change(3, x=np.zeros((0, 1, 2)), y=np.zeros(0, int)), {}, "client 3 has no"),
    ],
)
def test_bad_input_is_refused(data, options, message):
    clients, eval_data = data
    with pytest.raises(ValueError, match=message):
        ff.problems.mlp(clients, eval_data=eval_data, **{"classes": 2, "batch_size": 10, **options})
