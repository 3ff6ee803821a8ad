"""Non-convex problems: gradients, constants and optima against their definitions."""

import numpy as np
import pytest

import focusfl as ff
from focusfl import participation as who
from focusfl.problems import Robust, Wavy, robust, wavy
from focusfl.problems.nonconvex import ROBUST_L, WAVE_L, WAVE_PL

SMALL = {"num_clients": 4, "dim": 5}
BOTH = [wavy(**SMALL), wavy(**SMALL, rows=3), robust(**SMALL)]
POINTS = [np.linspace(-1, 2, 5), np.random.default_rng(0).normal(0, 5, 5)]


def loss(problem, i, x):
    """f_i by its definition; F for i = None."""
    if i is None:
        return np.mean([loss(problem, j, x) for j in range(problem.num_clients)])
    if isinstance(problem, Robust):
        t = problem.A[i] @ x - problem.b[i]
        return np.mean(t**2 / (1 + t**2))
    t = problem.A @ x - problem.b
    return problem.w[i] @ (t**2 + 3 * np.sin(t) ** 2) + problem.c[i] @ x


def grad(problem, i, x):
    data = {name: leaf[i] for name, leaf in problem.data.items()}
    return problem.objective.grad(x, data, None)


@pytest.mark.parametrize("problem", BOTH)
@pytest.mark.parametrize("x", POINTS)
def test_gradients_are_slopes_of_the_loss(problem, x):
    step = 1e-5
    for i in range(4):
        slopes = [
            (loss(problem, i, x + e) - loss(problem, i, x - e)) / (2 * step)
            for e in step * np.eye(5)
        ]
        assert np.allclose(grad(problem, i, x), slopes, rtol=1e-6, atol=1e-8)
    found = problem.objective.evaluate(x, problem.eval_data)
    assert found["loss"] == pytest.approx(loss(problem, None, x))
    mean = np.mean([grad(problem, i, x) for i in range(4)], 0)
    assert found["grad_norm"] == pytest.approx(np.linalg.norm(mean))


@pytest.mark.parametrize("problem", BOTH)
def test_no_two_points_exceed_the_smoothness_and_no_client_is_convex(problem):
    rng = np.random.default_rng(1)
    steepest, most_concave = np.zeros(4), np.zeros(4)
    for _ in range(300):
        x, move = rng.normal(0, 3, 5), rng.normal(0, 0.05, 5)
        for i in range(4):
            change = grad(problem, i, x + move) - grad(problem, i, x)
            slope = np.linalg.norm(change) / np.linalg.norm(move)
            steepest[i] = max(steepest[i], slope)
            curve = change @ move / (move @ move)
            most_concave[i] = min(most_concave[i], curve)
    assert steepest.max() <= problem.L and steepest.max() > problem.L / 10
    assert most_concave.max() < 0
    assert problem.L_F <= problem.L


def test_the_scalar_constants_hold():
    t = np.linspace(-3, 3, 600_000)  # 1e-5 apart, and never at 0
    g, slope = t**2 + 3 * np.sin(t) ** 2, 2 * t + 3 * np.sin(2 * t)
    ratio = slope**2 / (2 * g)
    assert WAVE_PL < ratio.min() < 1.01 * WAVE_PL
    far = np.linspace(3, 1000, 10_000)
    assert ((2 * far - 3) ** 2 / (2 * far**2 + 6)).min() > WAVE_PL
    assert np.abs(2 + 6 * np.cos(2 * t)).max() <= WAVE_L
    wide = np.linspace(-10, 10, 100_001)
    second = 2 * (1 - 3 * wide**2) / (1 + wide**2) ** 3
    assert np.abs(second).max() == pytest.approx(ROBUST_L)
    assert second.min() == pytest.approx(-1 / 2)


@pytest.mark.parametrize("rows", [5, 3])
def test_wavy_has_the_pl_condition_and_its_optimum(rows):
    problem = wavy(**SMALL, rows=rows)
    at = problem.objective.evaluate(problem.optimum, problem.eval_data)
    assert max(at.values()) < 1e-12
    # clients disagree there, and their sum does not
    grads = np.array([grad(problem, i, problem.optimum) for i in range(4)])
    assert np.linalg.norm(grads, axis=1).min() > 0.1
    assert np.abs(grads.sum(0)).max() < 1e-12
    rng = np.random.default_rng(2)
    for x in problem.optimum + rng.normal(0, 4, (500, 5)):
        found = problem.objective.evaluate(x, problem.eval_data)
        assert found["grad_norm"] ** 2 >= 2 * problem.beta * found["loss"]


def test_distance_is_from_the_nearest_minimiser():
    problem = wavy(**SMALL, rows=3)
    flat = np.linalg.svd(problem.A)[2][3]  # a direction that A does not see
    moved = problem.optimum + 7 * flat
    assert problem.objective.evaluate(moved, problem.eval_data)["distance"] < 1e-13


@pytest.mark.parametrize("problem", BOTH)
def test_engines_agree_on_it(problem):
    a, b = (
        run(
            ff.Focus(), problem, who.Uniform(2), rounds=20, lr=0.1 / problem.L,
            local_steps=3,
        )
        for run in (ff.loop, ff.simulate)
    )  # fmt: skip
    assert np.abs(a.x - b.x).max() < 1e-12


def test_focus_is_exact_on_wavy_and_fedavg_is_not():
    problem, law = wavy(), who.Bernoulli(np.linspace(0.3, 0.9, 8))
    lr = 0.1 / problem.L
    ends = [
        ff.simulate(alg, problem, law, rounds=2000, lr=lr, local_steps=3)
        for alg in (ff.Focus(), ff.FedAvg())
    ]
    focus, fedavg = (end.metrics["distance"][-1] for end in ends)
    assert focus < 1e-12 and fedavg > 1e-3


def test_focus_comes_to_rest_on_robust():
    problem, law = robust(), who.Uniform(3)
    lr = 0.3 / (problem.L_F * problem.num_clients)
    result = ff.simulate(ff.Focus(), problem, law, rounds=3000, lr=lr, local_steps=3)
    assert result.metrics["grad_norm"][-1] < 1e-12
    assert "distance" not in result.metrics


ONE = np.ones((2, 3))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Wavy(np.eye(3), np.ones(2), ONE, 0 * ONE), r"got \(3, 3\), \(2,\)"),
        (lambda: Wavy(0 * np.eye(3), np.ones(3), ONE, 0 * ONE), "full row rank"),
        (lambda: Wavy(np.eye(3), np.ones(3), 2 * ONE, 0 * ONE), "mean 1 over clients"),
        (lambda: Wavy(np.eye(3), np.ones(3), ONE, ONE), "c must have mean 0"),
        (
            lambda: Robust(np.ones((2, 3)), np.ones(2)),
            r"A must have .* got \(2, 3\)",
        ),
        (lambda: wavy(dim=3, rows=4), "rows must lie in 1..dim; got 4 with dim = 3"),
        (lambda: wavy(condition=0.5), "condition must be at least 1; got 0.5"),
        (lambda: robust(outliers=2.0), r"outliers must lie in \[0, 1\]; got 2.0"),
        (lambda: robust(rows=0), "rows must be .* at least 1; got 0"),
    ],
)
def test_impossible_problems_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
