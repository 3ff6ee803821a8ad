"""Flax and Equinox models train as the same model written by hand does."""

import sys

import jax
import numpy as np
import pytest
from helpers import gap

import focusfl as ff
from focusfl import participation as who
from focusfl.problems import accuracy, cross_entropy

nnx = pytest.importorskip("flax.nnx")
linen = pytest.importorskip("flax.linen")
eqx = pytest.importorskip("equinox")


def draw(n, rng):
    y = rng.integers(3, size=n)
    x = rng.standard_normal((n, 4)) + 2 * np.eye(3, 4)[y]
    return {"x": x.astype(np.float32), "y": y.astype(np.int32)}


RNG = np.random.default_rng(0)
CLIENTS, EVAL_DATA = [draw(20 + 4 * i, RNG) for i in range(4)], draw(100, RNG)


def loss(model, samples):
    return cross_entropy(model(samples["x"]), samples["y"])


def metrics(model, samples):
    return {"accuracy": accuracy(model(samples["x"]), samples["y"])}


# In fixed order: a shuffle takes long to compile, and is tested elsewhere.
WALK = {"eval_data": EVAL_DATA, "batch_size": 8, "stream": "fixed_order"}
OPTIONS = {**WALK, "metrics_fn": metrics}


class Net(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(4, 6, rngs=rngs), nnx.Linear(6, 3, rngs=rngs)])

    def __call__(self, x):
        return self.layers[1](jax.nn.relu(self.layers[0](x)))


def test_a_mean_is_refused_of_modules_too():
    def mean(model, samples):
        return loss(model, samples).mean()

    eqx_net = eqx.nn.MLP(4, 3, 6, 1, key=jax.random.key(0))
    for make, net in [
        (ff.problems.from_flax, Net(nnx.Rngs(0))),
        (ff.problems.from_equinox, eqx_net),
    ]:
        each = (lambda m, s: mean(jax.vmap(m), s)) if net is eqx_net else mean
        with pytest.raises(ValueError, match=r"loss of each sample.* got shape \(\)"):
            make(net, each, CLIENTS, **OPTIONS)


def with_nnx():
    net = Net(nnx.Rngs(0))
    return ff.problems.from_flax(net, loss, CLIENTS, **OPTIONS), lambda x: [
        (layer["kernel"], layer["bias"]) for layer in x["layers"].values()
    ]


def with_linen():
    net = linen.Sequential([linen.Dense(6), jax.nn.relu, linen.Dense(3)])
    params = net.init(jax.random.key(0), EVAL_DATA["x"][:1])["params"]
    problem = ff.problems.from_flax(net, loss, CLIENTS, params=params, **OPTIONS)
    return problem, lambda x: [(d["kernel"], d["bias"]) for d in x.values()]


def with_equinox():
    net = eqx.nn.MLP(4, 3, 6, 1, key=jax.random.key(0))

    def each(function):  # an Equinox model takes one sample
        return lambda model, samples: function(jax.vmap(model), samples)

    options = {**OPTIONS, "metrics_fn": each(metrics)}
    problem = ff.problems.from_equinox(net, each(loss), CLIENTS, **options)
    return problem, lambda x: [(layer["weight"].T, layer["bias"]) for layer in x["layers"].values()]


def plain(layers):
    return {f"layer{i}": {"w": w, "b": b} for i, (w, b) in enumerate(layers)}


def train(problem, x0=None):
    return ff.simulate(
        ff.Focus(), problem, who.Bernoulli([0.9, 0.3, 0.6, 0.6]), rounds=64, lr=0.02,
        local_steps=2, eval_every=16, x0=x0,
    )  # fmt: skip


@pytest.mark.parametrize("make", [with_nnx, with_linen, with_equinox])
def test_a_model_trains_as_the_same_by_hand(make):
    problem, layers = make()
    assert isinstance(problem.x0, dict)
    assert {type(key) for key in jax.tree.leaves(_names(problem.x0))} == {str}
    result = train(problem)
    assert result.metrics["accuracy"][-1] > 0.8 > result.metrics["accuracy"][0]
    hand = ff.problems.mlp(CLIENTS, classes=3, hidden=(6,), **WALK)
    other = train(hand, plain(layers(problem.x0)))
    assert gap(plain(layers(result.x)), other.x) < 1e-5
    model = ff.problems.rebuilt(problem, result.x)
    scores = jax.vmap(model)(EVAL_DATA["x"])
    assert accuracy(scores, EVAL_DATA["y"]) == pytest.approx(result.metrics["accuracy"][-1])


def _names(tree):
    return [[name, _names(leaf) if isinstance(leaf, dict) else []] for name, leaf in tree.items()]


def test_a_model_comes_back_as_what_it_was():
    problem, _ = with_nnx()
    assert isinstance(ff.problems.rebuilt(problem, problem.x0), Net)
    problem, _ = with_equinox()
    model = ff.problems.rebuilt(problem, problem.x0)
    assert eqx.tree_equal(model, eqx.nn.MLP(4, 3, 6, 1, key=jax.random.key(0)))


class Normed(nnx.Module):
    def __init__(self):
        self.norm = nnx.BatchNorm(4, rngs=nnx.Rngs(0))


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: ff.problems.from_flax(linen.Dense(3), loss, CLIENTS, **OPTIONS),
            "must come with params; got none",
        ),
        (
            lambda: ff.problems.from_flax(Normed(), loss, CLIENTS, **OPTIONS),
            "got running statistics. Use nnx.LayerNorm",
        ),
        (
            lambda: ff.problems.from_flax(loss, loss, CLIENTS, **OPTIONS),
            "module must be a flax.nnx.Module or flax.linen.Module; got",
        ),
        (
            lambda: ff.problems.from_equinox(loss, loss, CLIENTS, **OPTIONS),
            "model must be an equinox.Module; got",
        ),
        (
            lambda: ff.problems.rebuilt(ff.problems.softmax(CLIENTS, classes=3, **WALK), {}),
            "must come from from_flax or from_equinox",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_missing_package_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "equinox", None)
    monkeypatch.setitem(sys.modules, "flax.nnx", None)
    with pytest.raises(ValueError, match="needs equinox; .* pip install equinox"):
        ff.problems.from_equinox(None, loss, CLIENTS, **OPTIONS)
    with pytest.raises(ValueError, match="needs flax; .* pip install flax"):
        ff.problems.from_flax(None, loss, CLIENTS, **OPTIONS)
