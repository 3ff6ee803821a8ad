"""The laws that every algorithm keeps, over the one list of algorithms."""

import copy
import pickle

import jax
import numpy as np
import pytest
from helpers import ALL, ENTRYWISE, Nested, gap, quadratic, same, some_masks

import focusfl as ff
from focusfl.core import Algorithm, Round, tree

every_algorithm = pytest.mark.parametrize("alg", ALL, ids=repr)
RD = Round(index=3, lr=0.05, local_steps=2, num_clients=5, num_active=2)


def frozen(a):
    """A copy of a tree that raises when written to."""

    def lock(leaf):
        if isinstance(leaf, int | float):  # a counter: Python's own are immutable
            return leaf
        leaf = np.array(leaf)
        leaf.setflags(write=False)
        return leaf

    return tree.map(lock, a)


def one_round(alg: Algorithm, server, client, rd=RD, dtype="float64"):
    """Everything the contract has, called once, on inputs that cannot be written."""
    problem = Nested(dtype)
    data = frozen(tree.map(lambda a: a[0], problem.data))

    def grad_fn(x, batch):
        return problem.objective.grad(x, data, batch)

    down = frozen(alg.broadcast(server))
    local = frozen(alg.pull(client, down))
    for _ in range(rd.local_steps):
        local = frozen(alg.step(local, grad_fn, None, rd))
    pushed, up = alg.push(client, down, local, rd)
    updated = alg.update(server, frozen(up), rd)
    settled = alg.after_update(frozen(pushed), frozen(alg.broadcast(updated)), rd)
    return down, local, up, updated, settled


def start(alg, dtype="float64"):
    server, client = alg.init(frozen(Nested(dtype).x0))
    return frozen(server), frozen(client)


@every_algorithm
def test_law_1_methods_are_pure(alg):
    server, client = start(alg)
    before = copy.deepcopy((server, client))
    first, second = one_round(alg, server, client), one_round(alg, server, client)
    assert all(same(a, b) for a, b in zip(first, second, strict=True))
    assert same(before[0], server) and same(before[1], client)


@every_algorithm
def test_law_2_an_algorithm_is_a_value(alg):
    assert copy.deepcopy(alg) == alg and hash(copy.deepcopy(alg)) == hash(alg)
    assert pickle.loads(pickle.dumps(alg)) == alg
    parts = (*ff.ALGORITHMS.values(), *ff.compression.COMPRESSORS.values())
    assert eval(repr(alg), {part.__name__: part for part in parts}) == alg
    with pytest.raises(AttributeError):
        alg.new = 1


@every_algorithm
def test_law_3_dicts_travel_and_named_tuples_stay(alg):
    server, client = start(alg)
    down, local, up, updated, settled = one_round(alg, server, client)
    assert type(down) is dict and type(up) is dict
    for state in (server, client, local, updated, settled):
        assert isinstance(state, tuple) and hasattr(state, "_fields")
    assert "x" in server._fields


@every_algorithm
def test_law_4_the_server_needs_no_more_than_the_sum(alg):
    """Adding the pushes up in another order, in parts, changes nothing but rounding."""
    problem, masks = quadratic(), some_masks(p=0.6)
    order = [4, 1, 5, 0, 3, 2]
    shuffled = ff.problems.Quadratic(problem.H[order], problem.h[order])
    runs = [
        ff.loop(alg, who, ff.participation.Replay(m), rounds=40, lr=0.05, local_steps=2)
        for who, m in [(problem, masks), (shuffled, masks[:, order])]
    ]
    assert gap(runs[0].server, runs[1].server) < 1e-13


@every_algorithm
def test_law_5_the_engines_agree_on_nested_models_of_float32(alg):
    """Those of float64: simulation/test_engines_agree.py."""
    problem, who = Nested("float32"), ff.participation.Uniform(2)
    kept = ff.Options(record_models=True, on_divergence="ignore")
    how = {"rounds": 50, "local_steps": 3, "options": kept}
    slow, fast = (run(alg, problem, who, lr=0.02, **how) for run in (ff.loop, ff.simulate))
    assert fast.x["out"]["w"].dtype == slow.x["out"]["w"].dtype == "float32"
    size = 1 + np.abs(slow.x["out"]["w"]).max()
    assert gap(slow.x, fast.x) < size * 1e-5
    assert gap(ff.simulate(alg, problem, who, lr=0.01, **how).x, fast.x) > 0
    masks = np.zeros((50, 5), bool)
    masks[49, :2] = True
    alone = ff.simulate(alg, problem, ff.participation.Replay(masks), lr=0.02, **how)
    # A round with nobody changes nothing.
    start = tree.map(lambda a: np.tile(a, (50, *[1] * a.ndim)), problem.x0)
    assert same(tree.map(lambda a: a[:50], alone.trajectory), start)
    assert alone.metrics["up"][1:50].sum() == 0


@every_algorithm
def test_law_6_every_method_traces(alg):
    problem = Nested()
    data = tree.map(lambda a: a[0], problem.data)

    def whole_round(x0, index, lr, num_active):
        rd = Round(index, lr, 2, 5, num_active)
        server, client = alg.init(x0)
        down = alg.broadcast(server)
        local = alg.pull(client, down)
        local = alg.step(local, lambda x, b: problem.objective.grad(x, data, b), None, rd)
        client, up = alg.push(client, down, local, rd)
        server = alg.update(server, up, rd)
        return server, alg.after_update(client, alg.broadcast(server), rd)

    with jax.enable_x64(True):
        traced = jax.jit(whole_round)(problem.x0, 3, 0.05, 2.0)
    assert gap(traced[0], whole_round(problem.x0, 3, 0.05, 2)[0]) < 1e-14


@every_algorithm
def test_law_8_a_round_with_nobody_changes_nothing(alg):
    masks = np.zeros((5, 6), bool)
    masks[4, :3] = True
    result = ff.loop(
        alg, quadratic(), ff.participation.Replay(masks), rounds=5, lr=0.1,
        local_steps=2, x0=np.arange(5.0), options=ff.Options(record_models=True),
    )  # fmt: skip
    assert np.array_equal(result.trajectory[:5], np.tile(np.arange(5.0), (5, 1)))
    assert result.metrics["up"][1:5].sum() == 0


@every_algorithm
def test_law_9_trees_shapes_and_dtypes_are_kept(alg):
    def shape(a):
        return tree.map(lambda leaf: (np.shape(leaf), np.asarray(leaf).dtype), a)

    for dtype in ("float32", "float64"):
        server, client = start(alg, dtype)
        _, _, up, updated, settled = one_round(alg, server, client, dtype=dtype)
        assert shape(updated) == shape(server)
        assert shape(settled) == shape(client)
        parts = shape(server.x), ((), np.dtype(float)), ((), np.dtype(dtype))
        assert all(shape(part) in parts for part in up.values())


@pytest.mark.parametrize("alg", [a for a in ALL if a not in ENTRYWISE], ids=repr)
def test_an_algorithm_knows_no_coordinates(alg):
    """Trees are only combined linearly, by factors that may be inner products, which is
    what lets clients turn their axes.

    The server's are always the model's: what works entry by entry there is let off.
    """
    problem, masks = quadratic(), some_masks(p=0.6)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
    turned = ff.problems.Quadratic(turn @ problem.H @ turn.T, problem.h @ turn.T)
    a, b = (
        ff.loop(alg, p, ff.participation.Replay(masks), rounds=40, lr=0.05, local_steps=2)
        for p in (problem, turned)
    )
    assert gap(turn @ a.x, b.x) < 1e-13


@every_algorithm
def test_a_push_is_as_large_as_its_stated_cost(alg):
    server, client = start(alg)
    _, _, up, *_ = one_round(alg, server, client)
    vectors = [part for part in up.values() if type(part) is type(server.x)]
    assert len(vectors) == int(np.ceil(alg.cost[1]))
