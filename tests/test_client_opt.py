"""What is done to gradients on clients: optax's, and where it lets exact runs end."""

import jax
import numpy as np
import optax
import pytest
from helpers import gap, quadratic, some_masks

import focusfl as ff
from focusfl.theory import predict

LAW = ff.participation.Replay(some_masks(rounds=50, p=0.6))
COINS = ff.participation.Bernoulli([0.2, 0.9, 0.4, 0.7, 0.3, 0.6])
SHORT = {"rounds": 50, "lr": 0.05, "local_steps": 3, "options": ff.Options(record_models=True)}
around = ff.ClientOpt
EXACT = [ff.Focus(), ff.Scaffnew()]


def test_nothing_asked_for_changes_nothing_to_the_bit():
    """Nor does a limit that no gradient comes to."""
    plain, same, far = (
        ff.simulate(alg, quadratic(), LAW, **SHORT)
        for alg in (ff.Focus(), around(ff.Focus()), around(ff.Focus(), clip_norm=1e9))
    )
    for other in (same, far):
        assert np.array_equal(plain.trajectory, other.trajectory)
        assert np.array_equal(plain.server.y, other.server.inner.y)


def test_clipping_and_decay_are_those_of_optax():
    """Over the whole tree; the gradient is clipped first."""
    seen = []
    alg = around(ff.FedAvg(), weight_decay=0.3, clip_norm=0.7)
    theirs = optax.chain(optax.clip_by_global_norm(0.7), optax.add_decayed_weights(0.3))
    x = {"out": {"w": np.full((3, 2), 2.0)}, "bias": np.full(2, -1.0)}
    for size in (0.01, 5.0):
        grad = jax.tree.map(lambda a, size=size: size * np.cos(a), x)
        local = alg.pull(alg.init(x)[1], alg.broadcast(alg.init(x)[0]))
        rd = ff.Round(0, 1.0, 1, 1, 1)
        moved = alg.step(local, lambda x, batch, g=grad: g, None, rd).inner.x
        with jax.enable_x64(True):
            want, _ = theirs.update(grad, theirs.init(x), x)
        seen.append(gap(jax.tree.map(np.subtract, x, moved), want))
    assert max(seen) < 1e-14


def test_fedprox_takes_gradient_steps_on_the_proximal_objective():
    problem, x = quadratic(), np.zeros(5)
    for mask in LAW.masks:
        ends = []
        for i in np.flatnonzero(mask):
            z = x
            for _ in range(3):
                z = z - 0.05 * (problem.H[i] @ z - problem.h[i] + 2.0 * (z - x))
            ends.append(z)
        x = np.mean(ends, 0) if ends else x
    assert gap(ff.simulate(ff.FedProx(mu=2.0), problem, LAW, **SHORT).x, x) < 1e-13
    assert gap(ff.simulate(ff.FedAvg(), problem, LAW, **SHORT).x, x) > 1e-3


def run(alg, lr=0.03, problem=None, **options):
    options = {"rounds": 3000, "local_steps": 3, "eval_every": 3000} | options
    return ff.simulate(alg, problem or quadratic(), COINS, lr=lr, **options)


@pytest.mark.parametrize("inner", EXACT, ids=repr)
def test_a_proximal_pull_leaves_exact_algorithms_exact(inner):
    problem, alg = quadratic(), around(inner, prox=2.0)
    assert alg.max_exact_lr(3.0, 3) == inner.max_exact_lr(5.0, 3)
    assert alg.max_exact_lr(3.0, 1) == np.inf
    assert gap(run(alg).x, problem.optimum) < 1e-11


@pytest.mark.parametrize("inner", EXACT, ids=repr)
def test_weight_decay_ends_at_the_optimum_of_the_regularised_problem(inner):
    problem, alg = quadratic(), around(inner, weight_decay=0.5)
    H, h = problem.H.mean(0) + 0.5 * np.eye(5), problem.h.mean(0)
    found = run(alg).x
    assert gap(found, np.linalg.solve(H, h)) < 1e-11
    assert gap(found, problem.optimum) > 0.01
    assert alg.max_exact_lr(3.0, 3) == 0  # of F it promises nothing


def test_clipping_has_a_bias_but_where_no_gradient_at_the_optimum_is_clipped():
    problem = quadratic()
    own = np.einsum("nij,j->ni", problem.H, problem.optimum) - problem.h
    longest = np.linalg.norm(own, axis=1).max()
    near, far = (
        gap(run(around(ff.Focus(), clip_norm=size * longest)).x, problem.optimum)
        for size in (1.01, 0.5)
    )
    assert near < 1e-11 and far > 0.05
    assert around(ff.Focus(), clip_norm=1.0).max_exact_lr(3.0, 1) == 0


def test_nothing_is_predicted_of_what_is_biased():
    how = {"lr": 0.01, "local_steps": 3}
    plain, decayed, pulled = (
        predict(alg, quadratic(), COINS, **how)
        for alg in (ff.Focus(), around(ff.Focus(), 0.5), around(ff.Focus(), prox=1.0))
    )
    assert plain.bias == pulled.bias == 0 and decayed.bias is None
    blocks = ff.participation.Cyclic(2)
    assert predict(around(ff.Scaffnew()), quadratic(), blocks, **how).bias is None


def test_wrappers_go_inside_each_other_in_either_order():
    """The one works on clients, the other on the server."""
    one = ff.ServerOpt(around(ff.Focus(), prox=1.0), "adam", 0.01)
    other = around(ff.ServerOpt(ff.Focus(), "adam", 0.01), prox=1.0)
    a, b = (ff.simulate(alg, quadratic(), LAW, **SHORT) for alg in (one, other))
    assert np.array_equal(a.trajectory, b.trajectory)
    for wrong in (lambda: around(other), lambda: around(ff.FedProx())):
        with pytest.raises(ValueError, match="must not hold a ClientOpt already"):
            wrong()
