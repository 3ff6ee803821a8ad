"""Problems, algorithms and schedules that several tests share."""

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import focusfl as ff
from focusfl.algorithms import t_scaffold, transported
from focusfl.core import Algorithm, tree
from focusfl.problems import Objective, Problem


def flat(engine):
    """Make an engine take the words of `ff.Options` one by one, for tests that vary them."""

    def run(*what, checkpoint=None, checkpoint_every=None, **how):
        every = {} if checkpoint_every is None else {"every": checkpoint_every}
        kept = None if checkpoint is None else ff.Checkpoint(checkpoint, **every)
        names = {field.name for field in fields(ff.Options)} & how.keys()
        options = ff.Options(checkpoint=kept, **{name: how.pop(name) for name in names})
        return engine(*what, **how, options=options)

    return run


loop, simulate, sweep = map(flat, (ff.loop, ff.simulate, ff.sweep))

VECTORS = Path(__file__).parent / "vectors"


# A ServerOpt or ClientOpt under a name: nothing that those are not tried with.
NAMED = ff.FedAdagrad, ff.FedAdam, ff.FedAvgM, ff.FedYogi, ff.FedProx


def unnamed(alg: Algorithm) -> Algorithm:
    """The ServerOpt that FedAdam and the like stand for; any other as it is."""
    return alg.original if isinstance(alg, NAMED) else alg


ALL = [
    *(kind() for kind in ff.ALGORITHMS.values()),
    ff.Focus(warm_start=True),
    ff.Focus(memory="last"),
    ff.Focus(warm_start=True, memory="last"),
    ff.FedAvg(server_lr=0.5),
    ff.FedAU(cutoff=3),
    ff.FedAWE(server_lr=0.7),
    ff.MIFA(server_lr=0.5),
    ff.Scaffold(option=1),
    ff.TScaffold(option="1-up"),
    ff.ProxSkip(p=0.5, period=2),
    ff.ServerOpt(ff.Focus(warm_start=True), "yogi", 0.1, bias_correction=True),
    ff.ClientOpt(ff.Scaffold(option=1), weight_decay=0.1, clip_norm=1.0, prox=0.5),
    ff.Compressed(ff.Focus(), ff.Quantize(4, "stochastic")),
    ff.Compressed(ff.Scaffold(), ff.TopK(0.5)),
    ff.Compressed(ff.MIFA(), ff.Chain(ff.RandomK(0.5), ff.Quantize(4))),
    ff.Compressed(ff.FedVARP(), ff.FixedPoint()),
]
# Those that work entry by entry, on the server or, coded, on clients: they know the
# model's coordinates.
ENTRYWISE = [
    alg
    for alg in ALL
    if getattr(unnamed(alg), "optimizer", "momentum") != "momentum" or alg.elementwise
]


def quadratic(num_clients=6, dim=5, seed=0) -> ff.problems.Quadratic:
    """A random, well-conditioned, heterogeneous quadratic."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((num_clients, dim, dim))
    H = A @ A.swapaxes(1, 2) / dim + 0.5 * np.eye(dim)
    return ff.problems.Quadratic(H, rng.standard_normal((num_clients, dim)))


def some_masks(rounds=40, num_clients=6, p=0.35, seed=1) -> np.ndarray:
    """A schedule with empty rounds in it."""
    masks = np.random.default_rng(seed).random((rounds, num_clients)) < p
    masks[[0, rounds // 2]] = False
    return masks


@dataclass(frozen=True)
class Springs(Objective):
    """f(x) = stiffness * |x - rest|^2 / 2 over a nested model."""

    def grad(self, x, data, batch):
        return tree.map(lambda a, rest: data["stiffness"] * (a - rest), x, data["rest"])

    def evaluate(self, x, eval_data):
        return {"size": (x["out"]["w"] ** 2).sum() + (x["bias"] ** 2).sum()}


@dataclass(frozen=True, eq=False)
class Nested(Problem):
    """A problem whose model is a nested dict, in a dtype of choice."""

    dtype: str = "float64"
    num_clients: int = 5

    @property
    def objective(self):
        return Springs()

    @property
    def data(self):
        rng = np.random.default_rng(0)

        def draw(*shape):
            return rng.standard_normal((self.num_clients, *shape)).astype(self.dtype)

        rest = {"out": {"w": draw(3, 2)}, "bias": draw(2)}
        return {"rest": rest, "stiffness": 1 + draw() ** 2}

    @property
    def eval_data(self):
        return {}

    @property
    def x0(self):
        return {
            "out": {"w": np.ones((3, 2), self.dtype)},
            "bias": np.zeros(2, self.dtype),
        }


class Entry(NamedTuple):
    rounds: Any  # sum of (1 + index) over the rounds taken part in
    answer: Any  # the last answer of the server


class Model(NamedTuple):
    x: Any


class Listener(Algorithm):
    """Averages models after local steps; clients keep the answer they get."""

    def broadcast(self, server):
        return {"x": server.x}

    def pull(self, client, down):
        return Model(down["x"])

    def step(self, local, grad_fn, batch, rd):
        return Model(tree.axpy(-rd.lr, grad_fn(local.x, batch), local.x))

    def push(self, client, down, local, rd):
        return client, {"x": local.x}

    def after_update(self, client, down, rd):
        return client._replace(answer=down["x"])


@dataclass(frozen=True)
class Diary(Listener):
    """Uses every hook: clients write down the rounds they saw and what they heard."""

    def init(self, params):
        return Model(params), Entry(0.0, tree.zeros(params))

    def update(self, server, total, rd):
        return Model(tree.axpy(0.5, server.x, tree.scale(0.5, rd.mean(total["x"]))))

    def push(self, client, down, local, rd):
        seen = client._replace(rounds=client.rounds + 1 + rd.index)
        return super().push(seen, down, local, rd)


@dataclass(frozen=True)
class Told(Listener):
    """Starts warm, from a model that this moves; clients keep the answer they get."""

    @property
    def starts_warm(self):
        return True

    def init(self, params):
        return Model(params), Entry(1.0, tree.zeros(params))

    def update(self, server, total, rd):
        return Model(tree.scale(0.9, rd.mean(total["x"], of_nobody=server.x)))


def squares(x, samples):
    return (samples["a"] @ x["w"] + x["b"] - samples["y"]) ** 2


@cache
def walked(
    num_clients=20,
    loss=squares,
    begin=1.0,
    eval_data=10,
    dtype="float32",
    stream="epochs",
):
    """Clients with 5 to 8 samples, walked three at a time: epochs have a short end."""
    rng = np.random.default_rng(0)

    def samples(rows):
        a, y = rng.standard_normal((rows, 4)), rng.standard_normal(rows)
        return {"a": a.astype(dtype), "y": y.astype(dtype)}

    return ff.problems.from_loss(
        loss,
        {"w": np.full(4, begin), "b": np.full((), begin)},
        [samples(5 + i % 4) for i in range(num_clients)],
        batch_size=3,
        eval_data=samples(eval_data),
        dtype=dtype,
        stream=stream,
    )


def bits(result):
    """Everything a result holds, to the bit."""
    named = jax.tree_util.tree_leaves_with_path(vars(result))
    arrays = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in named}
    return {name: (str(a.dtype), a.shape, a.tobytes()) for name, a in arrays.items()}


class Stopped(Exception):
    pass


def stop_after(rounds):
    """Make a `progress` that ends a run the hard way."""

    def progress(done, _):
        if done > rounds:
            raise Stopped

    return progress


def same(a, b) -> bool:
    """Whether two trees are equal to the bit, in structure and dtype."""
    equal = []
    tree.map(
        lambda a, b: equal.append(
            np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b)
        ),
        a,
        b,
    )
    return type(a) is type(b) and all(equal)


def gap(a, b) -> float:
    """The largest absolute difference between two trees, curvatures aside."""
    gaps = [0.0]
    tree.map(
        lambda a, b: gaps.append(float(np.max(np.abs(np.asarray(a) - np.asarray(b))))),
        _without_curvature(a),
        _without_curvature(b),
    )
    return max(gaps)


def _without_curvature(a):
    """A curvature measured between two points is as uncertain as they are close: what a
    tracker made of them says at x is not."""
    if isinstance(a, transported.Server | t_scaffold.Server):
        return a._replace(line=a.line.at(a.x))
    return a._replace(rho=0) if isinstance(a, transported.Client) else a
