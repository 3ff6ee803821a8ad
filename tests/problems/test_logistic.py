"""Logistic regression: gradients, the optimum, and exactness on data with labels."""

import numpy as np
import pytest

import focusfl as ff
from focusfl import participation as who
from focusfl.problems import Logistic


def made(num_clients=6, rows=30, dim=5, seed=0) -> Logistic:
    """Clients with rows of their own law and number, labels that no model separates."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((num_clients, rows, dim)) + rng.standard_normal((num_clients, 1, dim))
    b = np.sign(A @ rng.standard_normal(dim) + rng.standard_normal((num_clients, rows)))
    mask = np.ones(b.shape, bool)
    mask[0, rows // 2 :] = False  # padding
    return Logistic(A, b, penalty=0.1, mask=mask)


def literal_loss(problem, i, x):
    real = problem.b[i] != 0
    margin = problem.b[i][real] * (problem.A[i][real] @ x)
    return np.log1p(np.exp(-margin)).mean() + problem.penalty * x @ x / 2


def test_gradients_are_those_of_the_loss():
    problem, x, step = made(), np.linspace(-1, 1, 5), 1e-6
    for i in range(6):
        data = {name: leaf[i] for name, leaf in problem.data.items()}
        slopes = [
            (literal_loss(problem, i, x + e) - literal_loss(problem, i, x - e)) / (2 * step)
            for e in step * np.eye(5)
        ]
        assert np.allclose(problem.objective.grad(x, data, None), slopes, atol=1e-8)
    F = np.mean([literal_loss(problem, i, x) for i in range(6)])
    found = problem.objective.evaluate(x, problem.eval_data)
    assert found["loss"] == pytest.approx(F, rel=1e-12)


def test_large_margins_do_not_overflow():
    problem = made()
    for scale in (1e3, -1e3, 1e6):
        found = problem.objective.evaluate(scale * np.ones(5), problem.eval_data)
        assert all(np.isfinite(value) for value in found.values())


def test_the_optimum_is_one_to_rounding():
    problem = made()
    found = problem.objective.evaluate(problem.optimum, problem.eval_data)
    assert found["grad_norm"] < 1e-14


def test_constants_bound_the_hessians():
    problem, rng = made(), np.random.default_rng(1)
    for _ in range(20):
        x = rng.standard_normal(5)
        values = np.linalg.eigvalsh(problem.mean_hessian(x))
        assert problem.mu <= values[0] + 1e-12 and values[-1] <= problem.L_F + 1e-12
    assert problem.L >= problem.L_F and problem.mu_F >= problem.mu


def test_exact_methods_are_exact_and_fedavg_is_not():
    problem, law = made(), who.Bernoulli(np.linspace(0.05, 0.9, 6))
    for alg, exact in [(ff.Focus(), True), (ff.Scaffold(), True), (ff.FedAvg(), False)]:
        result = ff.simulate(alg, problem, law, rounds=6000, lr=0.05, local_steps=3)
        error = np.median(result.metrics["distance"][-100:])
        assert (error < 1e-10) == exact and (exact or error > 1e-3)


def test_both_engines_agree():
    slow, fast = (
        run(ff.Focus(), made(), who.Uniform(2), rounds=30, lr=0.1, local_steps=3)
        for run in (ff.loop, ff.simulate)
    )
    assert np.abs(slow.x - fast.x).max() < 1e-12


A, mask = made().A, made().mask
b = np.where(mask, made().b, 1.0)


def textbook(A, y, penalty) -> np.ndarray:
    """Logistic regression of all rows with labels 0 and 1, by plain Newton steps."""
    x = np.zeros(A.shape[1])
    for _ in range(30):
        chance = 1 / (1 + np.exp(-A @ x))
        slope = A.T @ (chance - y) / len(y) + penalty * x
        bend = (A.T * (chance * (1 - chance))) @ A / len(y) + penalty * np.eye(len(x))
        x = x - np.linalg.solve(bend, slope)
    return x


@pytest.mark.parametrize(
    "labels", [b, (b + 1) / 2, ((b + 1) / 2).astype(int), b > 0, ((b + 1) / 2).tolist()]
)
def test_labels_0_and_1_are_those_of_minus_1_and_1(labels):
    """Rounding of two Newton methods: nothing else tells them apart."""
    expected = textbook(A.reshape(-1, 5), (b.ravel() + 1) / 2, 0.1)
    found = Logistic(A, labels, penalty=0.1)
    assert np.array_equal(found.b, b)
    assert np.abs(found.optimum - expected).max() < 1e-13


def test_padding_is_marked_and_nothing_of_it_matters():
    whole = made()
    for filler in (-1.0, 0.0, 1.0, 7.0):
        other = Logistic(A, np.where(mask, b, filler), penalty=0.1, mask=mask)
        assert np.array_equal(other.data["wb"], whole.data["wb"])
        zeros = np.where(mask, (b + 1) / 2, filler)
        other = Logistic(A, zeros, penalty=0.1, mask=mask)
        assert np.array_equal(other.data["wb"], whole.data["wb"])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Logistic(A, b[:, :3]), "got"),
        (lambda: Logistic(A, b + 1), r"labels -1 and \+1, or 0 and 1; got 0, 2"),
        (lambda: Logistic(A, b * mask), "got -1, 0, 1. Mark rows .* by mask"),
        (lambda: Logistic(A, b, mask=mask[:, :3]), r"mask must be .* \(6, 30\)"),
        (lambda: Logistic(A, b, mask=2 * mask), "mask must be true or false"),
        (lambda: Logistic([A[0], A[1, :3]], b), "differing length. focusfl.data.stack"),
        (lambda: Logistic(A * np.nan, b), "A must be finite"),
        (
            lambda: Logistic(A, b, mask=mask & (np.arange(6) != 2)[:, None]),
            "client 2 has no rows",
        ),
        (lambda: Logistic(A, b, penalty=0.0), "penalty must be positive"),
    ],
)
def test_impossible_problems_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
