"""Quadratics: gradients, constants and the optimum against their definitions."""

import numpy as np
import pytest
from helpers import quadratic

import focusfl as ff
from focusfl.problems import LeastSquares, Quadratic, ridge
from focusfl.problems.quadratic import Gram, Rows


def literal_loss(problem: LeastSquares, i: int, x) -> float:
    residual = problem.A[i] @ x - problem.b[i]
    return residual @ residual + problem.penalty * x @ x


@pytest.mark.parametrize("rows, objective", [(20, Gram()), (3, Rows(0.3))])
def test_ridge_is_the_papers_loss(rows, objective):
    problem = ridge(num_clients=4, dim=8, rows=rows, penalty=0.3)
    assert problem.objective == objective  # the cheaper of the two ways
    x, step = np.linspace(-1, 1, 8), 1e-5
    for i in range(4):
        data = {name: leaf[i] for name, leaf in problem.data.items()}
        A, b = problem.A[i], problem.b[i]
        expected = 2 * A.T @ (A @ x - b) + 2 * 0.3 * x
        assert np.allclose(problem.objective.grad(x, data, None), expected, rtol=1e-12)
        slopes = [
            (literal_loss(problem, i, x + e) - literal_loss(problem, i, x - e)) / (2 * step)
            for e in step * np.eye(8)
        ]
        assert np.allclose(slopes, expected, rtol=1e-6)
    F = np.mean([literal_loss(problem, i, x) for i in range(4)])
    assert problem.objective.evaluate(x, problem.eval_data)["loss"] == pytest.approx(F)


@pytest.mark.parametrize("rows", [20, 3])
def test_constants_and_optimum_are_those_of_the_hessians(rows):
    problem = ridge(num_clients=5, dim=8, rows=rows, penalty=0.3, seed=3)
    H = 2 * problem.A.swapaxes(1, 2) @ problem.A + 2 * 0.3 * np.eye(8)
    eigenvalues, of_mean = np.linalg.eigvalsh(H), np.linalg.eigvalsh(H.mean(0))
    assert problem.L == pytest.approx(eigenvalues.max())
    assert problem.mu == pytest.approx(eigenvalues.min())
    assert (problem.mu_F, problem.L_F) == pytest.approx((of_mean[0], of_mean[-1]))
    grads = [
        2 * A.T @ (A @ problem.optimum - b) + 0.6 * problem.optimum
        for A, b in zip(problem.A, problem.b, strict=True)
    ]
    assert np.abs(np.mean(grads, 0)).max() < 1e-12


def test_the_papers_setting_has_the_constants_of_the_specification():
    problem = ridge()
    assert problem.L == pytest.approx(824, rel=0.05)
    assert problem.mu == pytest.approx(0.02, rel=0.01)
    assert problem.L_F == pytest.approx(302, rel=0.05)
    assert problem.mu_F == pytest.approx(112, rel=0.1)


def test_without_heterogeneity_everybody_agrees():
    problem = ridge(num_clients=3, dim=4, rows=9, heterogeneity=0.0, noise=0.0, penalty=0.0)
    for A, b in zip(problem.A, problem.b, strict=True):
        assert np.allclose(A @ problem.optimum, b)


@pytest.mark.parametrize("rows", [12, 2])
def test_rows_and_gram_give_the_same_run(rows):
    A, b = (
        ridge(num_clients=4, dim=6, rows=rows).A,
        ridge(num_clients=4, dim=6, rows=rows).b,
    )
    H = 2 * A.swapaxes(1, 2) @ A + 0.2 * np.eye(6)
    h = 2 * np.einsum("nki,nk->ni", A, b)
    runs = [
        ff.simulate(
            ff.Focus(),
            p,
            ff.participation.Uniform(2),
            rounds=50,
            lr=1e-3,
            local_steps=4,
        )
        for p in (LeastSquares(A, b, 0.1), Quadratic(H, h))
    ]
    assert np.abs(runs[0].x - runs[1].x).max() < 1e-12


def test_quadratic_optimum_minimises():
    problem = quadratic()
    H, h, _ = problem.mean
    assert np.abs(H @ problem.optimum - h).max() < 1e-13


H, h = quadratic().H, quadratic().h


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: Quadratic(H[0], h),
            r"H must have .* got \(5, 5\)",
        ),
        (lambda: Quadratic(H, h[:, :4]), r"got \(6, 5, 5\) and \(6, 4\)"),
        (lambda: Quadratic(H + np.triu(np.ones((5, 5)), 1), h), "symmetric"),
        (
            lambda: Quadratic(np.where(H > 1, np.nan, H), h),
            "H must be finite; got nan at",
        ),
        (lambda: Quadratic(-H, h), "positive definite"),
        (lambda: Quadratic(H, h, np.zeros(2)), r"c must have shape \(6,\)"),
        (lambda: LeastSquares(np.ones((2, 3, 4)), np.ones((2, 4))), "got"),
        (
            lambda: LeastSquares(np.ones((2, 1, 4)), np.ones((2, 1))),
            "positive definite",
        ),
        (lambda: ridge(penalty=-1.0), "penalty must be .* at least 0; got -1"),
        (lambda: ridge(num_clients=0), "num_clients must be .* at least 1; got 0"),
        (lambda: ridge(noise=-1.0), "noise must be .* at least 0; got -1"),
    ],
)
def test_impossible_problems_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
