"""Optimizers on the server: those of optax, over whatever algorithm."""

import jax
import numpy as np
import optax
import pytest
from helpers import Nested, gap, quadratic, some_masks

import focusfl as ff
from focusfl.studies import spec

LAW = ff.participation.Replay(some_masks(rounds=50, p=0.6))
ROUNDS = {"rounds": 50, "lr": 0.05, "local_steps": 2, "options": ff.Options(record_models=True)}
AS_OPTAX = {"initial": 0.0, "bias_correction": True}
ADAM = {"beta1": 0.8, "beta2": 0.95, "tau": 1e-3} | AS_OPTAX
OF_OPTAX = [
    (
        ff.ServerOpt(ff.FedAvg(), "momentum", 0.7, beta1=0.8),
        optax.sgd(0.7, momentum=0.8),
    ),
    (
        ff.ServerOpt(ff.FedAvg(), "adam", 0.1, **ADAM),
        optax.adam(0.1, 0.8, 0.95, eps=1e-3),
    ),
    (
        ff.ServerOpt(ff.FedAvg(), "yogi", 0.1, **ADAM),
        # optax.yogi begins m with 1e-6, and v; this is the same from 0.
        optax.chain(
            optax.scale_by_yogi(0.8, 0.95, 1e-3, initial_accumulator_value=0.0),
            optax.scale(-0.1),
        ),
    ),
    (
        # optax adds its eps to the sum of squares: with tau=0, so does `initial`.
        ff.ServerOpt(ff.FedAvg(), "adagrad", 0.1, 0.0, tau=0.0, initial=0.1 + 1e-7),
        optax.adagrad(0.1, initial_accumulator_value=0.1, eps=1e-7),
    ),
]


def moves_of_fedavg(problem, x, mask, lr=0.05, local_steps=2):
    """What FedAvg would add to x, written down apart."""
    ends = []
    for i in np.flatnonzero(mask):
        z = x
        for _ in range(local_steps):
            z = z - lr * (problem.H[i] @ z - problem.h[i])
        ends.append(z)
    return np.mean(ends, 0) - x


@pytest.mark.parametrize("alg, theirs", OF_OPTAX, ids=lambda v: getattr(v, "optimizer", ""))
def test_fifty_rounds_are_those_of_optax(alg, theirs):
    problem, x, found = quadratic(), np.zeros(5), []
    with jax.enable_x64(True):
        state = theirs.init(x)
        for mask in LAW.masks:
            if mask.any():
                grad = -moves_of_fedavg(problem, x, mask)
                step, state = theirs.update(grad, state, x)
                x = x + np.asarray(step)
            found.append(x)
    for run in (ff.loop, ff.simulate):
        ours = run(alg, problem, LAW, **ROUNDS).trajectory[1:]
        assert gap(ours, np.array(found)) < 1e-12
    assert gap(ours[-1], ours[0]) > 0.1


def test_without_correction_it_is_algorithm_2_of_the_paper():
    """FedAdam and FedYogi from their formulas, v being tau^2 before round 0."""
    problem, tau, eta = quadratic(), 1e-2, 0.05
    for kind in (ff.FedAdam, ff.FedYogi):
        x, m, v = np.zeros(5), np.zeros(5), np.full(5, tau**2)
        for mask in LAW.masks:
            if not mask.any():
                continue
            d = moves_of_fedavg(problem, x, mask)
            m = 0.9 * m + 0.1 * d
            if kind is ff.FedAdam:
                v = 0.99 * v + 0.01 * d**2
            else:
                v = v - 0.01 * d**2 * np.sign(v - d**2)
            x = x + eta * m / (np.sqrt(v) + tau)
        found = ff.simulate(kind(server_lr=eta, tau=tau), problem, LAW, **ROUNDS)
        assert gap(found.x, x) < 1e-12 and found.server.count == 48


def test_fedavgm_without_momentum_is_fedavg():
    plain, same = (
        ff.simulate(alg, quadratic(), LAW, **ROUNDS)
        for alg in (ff.FedAvg(server_lr=0.5), ff.FedAvgM(0.5, momentum=0.0))
    )
    assert gap(plain.trajectory, same.trajectory) < 1e-14


def test_a_warm_start_is_no_step_of_the_optimizer():
    """Gradients are gathered, nothing moves, and nothing is forgotten of v."""
    alg = ff.ServerOpt(ff.Focus(warm_start=True), "adam", 0.1, bias_correction=True)
    server = ff.loop(
        alg,
        quadratic(),
        ff.participation.Replay(np.zeros((1, 6), bool)),
        rounds=1,
        lr=0.1,
    ).server
    assert server.count == 0 and np.all(server.v == alg.tau**2) and np.all(server.m == 0)
    assert np.all(server.x == 0) and np.abs(server.inner.y).max() > 1


@pytest.mark.parametrize("optimizer", ["adam", "yogi", "adagrad"])
def test_it_keeps_the_type_of_a_model_in_float32(optimizer):
    alg = ff.ServerOpt(ff.Focus(), optimizer, 0.01)
    run = ff.simulate(alg, Nested("float32"), ff.participation.Full(), rounds=5, lr=0.1)
    leaves = jax.tree.leaves((run.server.x, run.server.m, run.server.v))
    assert {str(leaf.dtype) for leaf in leaves} == {"float32"}


FEDAVG = ff.FedAvg()


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda: ff.ServerOpt("adam"), r"ServerOpt\(FedAvg\(\), 'adam'\); got 'adam'"),
        (lambda: ff.ServerOpt("adam", FEDAVG), "the optimizer comes second"),
        (lambda: ff.ServerOpt(ff.FedAvg, "adam"), "inner must be a Algo.*; call it"),
        (lambda: ff.ServerOpt(FEDAVG, "sgd"), "one of momentum, adam.*got 'sgd'"),
        (lambda: ff.ServerOpt(FEDAVG, "adam", tau=0), "tau or initial must be pos"),
        (lambda: ff.ServerOpt(FEDAVG, "adam", initial=np.nan), "initial must be"),
        (lambda: ff.ServerOpt(bias_correction=True), "is for adam and yogi"),
        (lambda: ff.ServerOpt(ff.ServerOpt()), "must not hold a ServerOpt already"),
        (lambda: ff.ServerOpt(ff.FedAdam()), "must not hold a ServerOpt already"),
        (lambda: ff.FedAvgM(momentum="much"), r"momentum must lie in \[0, 1\)"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(wrong, words):
    with pytest.raises(ValueError, match=words) as told:
        wrong()
    assert "\n" not in str(told.value)


def test_no_step_size_is_chosen_for_it():
    alg = ff.ServerOpt(ff.Focus())
    with pytest.raises(ValueError, match="Focus only; got ServerOpt"):
        ff.simulate(alg, quadratic(), LAW, rounds=1, lr="auto")


STUDY = {
    "rounds": 5,
    "lr": 1e-3,
    "problem": {"kind": "ridge", "num_clients": 4, "dim": 2, "rows": 3},
    "participation": {"full": {}},
}


def parsed(**algorithms):
    return spec.parse({**STUDY, "algorithms": algorithms}, "study").algorithms


def test_a_study_names_the_algorithm_inside():
    inner = {"kind": "focus", "warm_start": True}
    own = {"kind": "server_opt", "inner": inner, "optimizer": "adam", "lr": 0.1}
    found = parsed(mine=own, fedyogi={"tau": 0.1})
    assert found["mine"].algorithm == ff.ServerOpt(ff.Focus(warm_start=True), "adam")
    assert found["mine"].lrs == (0.1,)
    assert found["fedyogi"].algorithm == ff.FedYogi(tau=0.1)


@pytest.mark.parametrize(
    "inner, words",
    [
        ("focus", r"\[algorithms.mine.inner\] must be a table; got 'focus'"),
        ({}, r"\[algorithms.mine.inner\] must name its kind: one of "),
        ({"kind": "focs"}, "unknown kind: 'focs'. Did you mean 'focus'"),
        (
            {"kind": "focus", "lr": 1.0},
            "unknown key in .*mine.inner.*: 'lr'",
        ),
        ({"kind": "fedadam"}, "must not hold a ServerOpt already"),
    ],
)
def test_a_study_that_names_it_wrongly_is_told_where(inner, words):
    with pytest.raises(ValueError, match=words):
        parsed(mine={"kind": "server_opt", "inner": inner})


def test_around_proxskip_it_promises_nothing_for_it_is_biased():
    """The corrections of its clients sum to 0 only if the model is their average."""
    alg = ff.ServerOpt(ff.ProxSkip(), "momentum", 0.5, beta1=0.0)
    assert alg.max_exact_lr(3.0, 1) == 0 < ff.ProxSkip().max_exact_lr(3.0, 1)
    assert ff.ServerOpt(ff.Focus()).max_exact_lr(4.0, 5) == 2 / 4
    problem, full = quadratic(), ff.participation.Full()
    run = ff.simulate(alg, problem, full, rounds=2000, lr=0.1, eval_every=2000)
    assert gap(run.x, problem.optimum) > 0.01
    assert np.abs(run.clients.h.sum(0)).max() > 0.1
