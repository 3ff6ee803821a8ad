"""Where nothing goes wrong, a deployment is `loop`, and it is `loop` after restarts."""

from dataclasses import dataclass

import numpy as np
import pytest
from helpers import ALL, Diary, Nested, gap, quadratic, same, some_masks

import focusfl as ff
from focusfl import keys, participation, tree
from focusfl.algorithms.as_published import AS_PUBLISHED
from focusfl.core import Batch, Round
from focusfl.engines.protocol import ProtocolServer, Site
from focusfl.problems import Objective, Quadratic

every_algorithm = pytest.mark.parametrize(
    "algorithm", [*ALL, Diary(), *(kind() for kind in AS_PUBLISHED.values())], ids=repr
)


def deploy(
    algorithm,
    problem,
    masks,
    folder,
    *,
    batch_of=None,
    restart=False,
    x0=None,
    **options,
):
    """Run the rounds of a schedule; give the server and everybody's memory."""
    objective, num_clients = problem.objective, problem.num_clients
    names = [f"site-{i}" for i in range(num_clients)]
    sites = [Site(algorithm, folder, "job", name) for name in names]
    x0 = problem.x0 if x0 is None else x0
    if problem.weights is not None:
        options["weights"] = dict(zip(names, problem.weights.tolist(), strict=True))

    def grad(i):
        data = tree.map(lambda leaf: np.asarray(leaf[i]), problem.data)
        return lambda x, batch: objective.grad(x, data, batch)

    def opened():
        return ProtocolServer(
            algorithm, x0, names, folder, job="job", lr=0.05, **options
        )

    protocol = opened()

    def play(i):
        request = protocol.request(names[i])
        return sites[i].answer(request, grad(i), batch_of and batch_of(i))

    try:
        schedule = [np.flatnonzero(mask).tolist() for mask in masks]
        if algorithm.starts_warm:
            schedule = [range(num_clients), *schedule]
        for ids in schedule:
            for i in ids:
                assert protocol.receive(names[i], play(i)).applied
            assert protocol.close_round() == tuple(names[i] for i in ids)
            if restart:
                protocol.close()
                protocol = opened()
        return protocol.server, [settled(protocol, site, x0) for site in sites]
    finally:
        protocol.close()


def settled(protocol, site, x0):
    """A site's memory, with what it is told of the round that it was in last."""
    entry = protocol.ledger.entries[site.site]
    if not entry.applied:
        return site.algorithm.init(x0)[1]
    told = protocol._rules.extras(protocol.ledger, site.site).get("settle", {})
    memory = site.memory(entry.applied)
    return site.algorithm.settle(memory, told, Round(*entry.counted_in))


def stacked(trees):
    return tree.map(lambda *leaves: np.stack([np.asarray(a) for a in leaves]), *trees)


@every_algorithm
@pytest.mark.parametrize("restart", [False, True], ids=["", "restarted, weighted"])
def test_it_equals_loop(algorithm, restart, folder, as_a_user):
    problem, masks, x0 = quadratic(), some_masks(rounds=25), np.linspace(-1, 1, 5)
    if restart:
        weights = [0.3, 2, 1, 0.5, 1.7, 0.01]
        problem = Quadratic(problem.H, problem.h, weights=weights)
    masks[-2] = True  # so that everybody has been seen
    server, memories = deploy(
        algorithm, problem, masks, folder, restart=restart, local_steps=3, x0=x0
    )
    expected = ff.loop(
        algorithm, problem, participation.Replay(masks), rounds=25, lr=0.05,
        local_steps=3, x0=x0,
    )  # fmt: skip
    assert gap(server, expected.server) < 1e-12
    assert gap(stacked(memories), expected.clients) < 1e-12


@every_algorithm
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nested_models_keep_their_names_and_dtypes(algorithm, dtype, folder):
    problem, masks = Nested(dtype), some_masks(rounds=4, num_clients=5, p=0.7)
    server, _ = deploy(algorithm, problem, masks, folder, local_steps=2)
    law = participation.Replay(masks)
    expected = ff.loop(algorithm, problem, law, rounds=4, lr=0.05, local_steps=2)
    assert same(tree.map(np.asarray, server), expected.server)


@pytest.mark.parametrize("algorithm", [ff.MIFA(), ff.Focus(), ff.Scaffold()], ids=repr)
def test_an_empty_round_may_move_the_model(algorithm, folder):
    problem, masks = quadratic(), some_masks(rounds=12)
    server, _ = deploy(algorithm, problem, masks, folder, on_empty="step")
    law = participation.Replay(masks)
    options = {"rounds": 12, "lr": 0.05, "on_empty": "step"}
    assert gap(server, ff.loop(algorithm, problem, law, **options).server) < 1e-12


@dataclass(frozen=True)
class Counting(Objective):
    """A quadratic whose gradients know how many came before them."""

    stochastic = True

    def grad(self, x, data, batch):
        return data["H"] @ x - data["h"] + np.cos(np.arange(5) * batch.number)

    def evaluate(self, x, eval_data):
        return {"size": (x * x).sum()}


@dataclass(frozen=True, eq=False)
class Counted(Quadratic):
    @property
    def objective(self):
        return Counting()


def test_batches_are_counted_as_in_loop(folder):
    base = quadratic()
    problem, masks = Counted(base.H, base.h), some_masks(rounds=12)
    key = keys.stream(0, "batch")

    def batch_of(i):
        return lambda number: Batch(keys.fold(key, i), number)

    server, _ = deploy(
        ff.Focus(), problem, masks, folder, batch_of=batch_of, local_steps=3
    )
    law = participation.Replay(masks)
    expected = ff.loop(ff.Focus(), problem, law, rounds=12, lr=0.05, local_steps=3)
    assert gap(server, expected.server) < 1e-12


def test_the_step_size_may_follow_the_round(folder):
    """Halved at round 3: what the sites are told is what the server uses."""
    problem, names = quadratic(2), ["a", "b"]
    sites = [Site(ff.Focus(), folder, "job", name) for name in names]
    x, y, g = np.zeros(5), np.zeros(5), np.zeros((2, 5))
    schedule = [0.1, 0.1, 0.1, 0.05, 0.05, 0.05]
    with ProtocolServer(
        ff.Focus(), np.zeros(5), names, folder, job="job", lr=schedule.__getitem__
    ) as protocol:
        for lr in schedule:
            for i, site in enumerate(sites):
                reply = site.answer(
                    protocol.request(site.site),
                    lambda x, batch, i=i: problem.H[i] @ x - problem.h[i],
                )
                assert protocol.receive(site.site, reply).applied
                grad = problem.H[i] @ x - problem.h[i]
                y, g[i] = y + grad - g[i], grad
            protocol.close_round()
            x = x - lr * y
        assert gap(protocol.x, x) < 1e-14
