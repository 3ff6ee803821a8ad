"""Decentralized methods: against the vectors, and by what is proven about them."""

from itertools import islice, pairwise

import numpy as np
import pytest
from helpers import VECTORS

import focusfl as ff
from focusfl import mixing
from focusfl.mixing.decentralized import (
    METHODS,
    dgd_fixed_point,
    diffusion_fixed_point,
    gradients,
    run,
    states,
)

with np.load(VECTORS / "decentralized.npz") as file:
    VECTOR = dict(file)

PROBLEM = ff.problems.Quadratic(VECTOR["H"], VECTOR["h"])
GRADS = gradients(PROBLEM)
Z0, LR, XSTAR = VECTOR["Z0"], float(VECTOR["eta"]), VECTOR["xstar"]
N = PROBLEM.num_clients

EXACT = [name for name, method in METHODS.items() if method.exact]
TRACKING = [name for name, method in METHODS.items() if method.vectors == 2]
DUAL = ["extra", "exact_diffusion", "nids"]


def weights(method: str) -> dict:
    given = VECTOR | {"local_steps": 4}
    return {name: given[name] for name in METHODS[method].takes}


def distance(Z: np.ndarray) -> float:
    return float(np.abs(Z - XSTAR).max())


@pytest.mark.parametrize("name", [k for k in VECTOR if k.startswith("traj_")])
def test_every_vector_is_met(name):
    method, expected = name.removeprefix("traj_"), VECTOR[name]
    Z = run(method, GRADS, Z0, LR, len(expected) - 1, **weights(method))
    assert np.abs(Z - expected).max() < 1e-10


@pytest.mark.parametrize("method", EXACT)
def test_exact_methods_reach_the_optimum_and_stay(method):
    # 265 iterations lead to 1e-12; the two-step form of EXTRA would be at 4e-12 by now
    Z = run(method, GRADS, Z0, LR, 3000, **weights(method))
    assert distance(Z[400:]) < 1e-13


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(EXACT)))
def test_the_others_stop_somewhere_else(method):
    Z = run(method, GRADS, Z0, LR, 2000, **weights(method))
    assert distance(Z[-1]) > 0.1
    assert np.abs(Z[-1] - Z[-5]).max() < 1e-13  # local_steps 4: a period of 4


@pytest.mark.parametrize("method", TRACKING)
def test_the_tracked_gradients_sum_to_the_sum_of_the_gradients(method):
    for Z, Y in islice(states(method, GRADS, Z0, LR, **weights(method)), 300):
        assert np.abs(Y.sum(0) - GRADS(Z).sum(0)).max() < 1e-12


@pytest.mark.parametrize("method", DUAL)
def test_the_dual_sums_to_zero_and_ends_in_minus_the_gradients_at_the_optimum(method):
    for _, Y in islice(states(method, GRADS, Z0, LR, **weights(method)), 400):
        assert np.abs(Y.sum(0)).max() < 1e-13
    assert np.allclose(Y, -LR * GRADS(np.tile(XSTAR, (N, 1))), rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", [m for m in METHODS if "W" in METHODS[m].takes])
def test_with_doubly_stochastic_weights_the_mean_model_descends_along_the_mean(method):
    every = run(method, GRADS, Z0, LR, 100, **weights(method))
    for before, after in pairwise(every):
        expected = before.mean(0) - LR * GRADS(before).mean(0)
        assert np.abs(after.mean(0) - expected).max() < 1e-13


def test_gradient_tracking_is_push_pull_with_the_same_matrix_twice():
    W = VECTOR["W"]
    for form, name in {"atc": "push_pull_atc", "cta": "ab_cta"}.items():
        tracking = run(f"gradient_tracking_{form}", GRADS, Z0, LR, 50, W=W)
        assert np.array_equal(tracking, run(name, GRADS, Z0, LR, 50, R=W, C=W))


def test_nids_is_a_gradient_step_and_then_exact_diffusion():
    nids = run("nids", GRADS, Z0, LR, 50, W=VECTOR["W"])
    later = run("exact_diffusion", GRADS, nids[1], LR, 49, W=VECTOR["W"])
    assert np.array_equal(nids[1:], later)
    assert np.allclose(nids[1], Z0 - LR * GRADS(Z0), rtol=0, atol=1e-15)


@pytest.mark.parametrize("local_steps", [1, 4])
def test_local_sgd_with_everybody_averaging_is_fedavg(local_steps):
    rounds, x0 = 10, Z0[0]
    Z = run(
        "local_sgd", GRADS, np.tile(x0, (N, 1)), LR, rounds * local_steps,
        W=mixing.gossip(range(N), N), local_steps=local_steps,
    )  # fmt: skip
    fedavg = ff.loop(
        ff.FedAvg(), PROBLEM, ff.participation.Full(), rounds=rounds, lr=LR,
        local_steps=local_steps, x0=x0, options=ff.Options(record_models=True),
    )  # fmt: skip
    assert np.abs(Z[::local_steps] - fedavg.trajectory[:, None]).max() < 1e-13


def test_local_sgd_that_mixes_every_time_is_diffusion():
    W = VECTOR["W"]
    often = run("local_sgd", GRADS, Z0, LR, 40, W=W, local_steps=1)
    assert np.allclose(often, run("diffusion", GRADS, Z0, LR, 40, W=W), atol=1e-13)


def test_local_sgd_goes_through_a_stack_of_matrices_in_turn():
    pairs = np.stack([mixing.gossip(pair, N) for pair in ([0, 1], [2, 3], [4, 5])])
    Z = run("local_sgd", GRADS, Z0, LR, 24, W=pairs, local_steps=2)
    for k in range(25):
        just_averaged = [k and k % 2 == 0 and k // 2 % 3 == turn for turn in (1, 2, 0)]
        agree = [np.array_equal(Z[k, i], Z[k, i + 1]) for i in (0, 2, 4)]
        assert agree == just_averaged


@pytest.mark.parametrize(
    "method, fixed_point",
    [("dgd", dgd_fixed_point), ("diffusion", diffusion_fixed_point)],
)
def test_descent_ends_in_its_fixed_point(method, fixed_point):
    Z = run(method, GRADS, Z0, LR, 1000, W=VECTOR["W"])
    assert np.abs(Z[-1] - fixed_point(PROBLEM, VECTOR["W"], LR)).max() < 1e-13


@pytest.mark.parametrize("fixed_point", [dgd_fixed_point, diffusion_fixed_point])
def test_the_bias_of_descent_is_as_derived_to_first_order(fixed_point):
    W, H = VECTOR["W"], PROBLEM.H
    at_optimum = GRADS(np.tile(XSTAR, (N, 1)))
    mix = W if fixed_point is diffusion_fixed_point else np.eye(N)
    spread = np.linalg.pinv(np.eye(N) - W) @ mix @ at_optimum
    shift = np.linalg.solve(H.sum(0), np.einsum("nij,nj->i", H, spread))
    errors = []
    for lr in (1e-3, 5e-4, 2.5e-4):
        bias = fixed_point(PROBLEM, W, lr) - XSTAR
        mean = bias.mean(0)
        errors.append(
            [
                np.linalg.norm(mean - lr * shift) / np.linalg.norm(mean),
                np.linalg.norm(bias - mean + lr * spread) / np.linalg.norm(bias - mean),
            ]
        )
    ratios = np.array(errors)[:-1] / np.array(errors)[1:]
    assert np.max(errors[0]) < 0.02
    assert np.allclose(ratios, 2, atol=0.1)  # what is left out is of second order


def test_descent_with_row_stochastic_weights_serves_the_perron_vector():
    R = VECTOR["R"]
    pi = mixing.left_perron(R)
    weighted = np.linalg.solve(
        np.einsum("n,nij->ij", pi, PROBLEM.H), np.einsum("n,ni->i", pi, PROBLEM.h)
    )
    gaps = [np.abs(dgd_fixed_point(PROBLEM, R, lr) - weighted).max() for lr in (2e-4, 1e-4)]
    assert np.abs(weighted - XSTAR).max() > 50 * gaps[1]  # not a method for F
    assert gaps[0] / gaps[1] == pytest.approx(2, abs=0.05)


def test_a_run_that_diverges_ends_in_numbers_that_say_so():
    Z = run("dgd", GRADS, Z0, 100.0, 400, W=VECTOR["W"])
    assert not np.isfinite(Z[-1]).any()


def test_no_iterations_is_the_start():
    assert np.array_equal(run("dgd", GRADS, Z0, LR, 0, W=VECTOR["W"]), Z0[None])


@pytest.mark.parametrize(
    "method, changes, message",
    [
        ("exact_difusion", {}, "Did you mean 'exact_diffusion'"),
        ("dgd", {"R": VECTOR["R"]}, "dgd takes W; got W and R"),
        ("push_pull_atc", {}, "takes R and C; got W"),
        ("dgd", {"W": VECTOR["R"]}, "W must be doubly stochastic; column"),
        ("dgd", {"W": np.eye(5)}, r"each of the 6 rows of Z0; got shape \(5, 5\)"),
        ("dgd", {"W": np.eye(6)[None]}, r"got shape \(1, 6, 6\)"),
        ("local_sgd", {"local_steps": 0}, "local_steps must be a whole number"),
        (
            "local_sgd",
            {"local_steps": 2, "W": np.stack([np.eye(6), VECTOR["R"]])},
            r"W\[1\] must be doubly stochastic",
        ),
        ("dgd", {"lr": 0.0}, "lr must be positive and finite; got 0"),
        ("dgd", {"Z0": np.ones(6)}, r"one row per node; got shape \(6,\)"),
        ("dgd", {"iterations": -1}, "must not be negative; got -1"),
    ],
)
def test_bad_input_is_refused_with_a_reason(method, changes, message):
    given = {"grads": GRADS, "Z0": Z0, "lr": LR, "iterations": 1, "W": VECTOR["W"]}
    with pytest.raises(ValueError, match=message):
        run(method, **(given | changes))


def test_fixed_points_need_the_matrices_of_a_quadratic():
    rows = ff.problems.ridge(num_clients=6, dim=9, rows=2)
    assert rows.through_rows
    with pytest.raises(ValueError, match=r"LeastSquares\. Use Quadratic"):
        dgd_fixed_point(rows, VECTOR["W"], LR)
