"""Cox's model: the partial likelihood of the textbook, its optimum, exactness."""

import numpy as np
import pytest

import focusfl as ff
from focusfl import participation as who
from focusfl.problems import Cox


def made(num_clients=5, rows=25, dim=4, seed=0) -> Cox:
    """Survival times in whole days, so that there are ties; clients of other sizes."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((num_clients, rows, dim))
    A += rng.standard_normal((num_clients, 1, dim))
    truth = rng.standard_normal((num_clients, dim))
    hazard = np.exp(np.einsum("crd,cd->cr", A, truth) / 3)
    time = np.ceil(4 * rng.exponential(1 / hazard))
    event = rng.random((num_clients, rows)) < 0.5
    mask = np.ones((num_clients, rows), bool)
    mask[0, rows // 2 :] = False  # padding, of which no entry may matter
    time[0, rows // 2 :], A[0, rows // 2 :] = -7, 1e6
    event[1, 3:] = False  # hardly anybody died
    event[2] = False  # nobody
    return Cox(A, time, event, penalty=0.1, mask=mask)


def literal_loss(problem, i, x):
    """Client i's part of the stratified partial likelihood, death by death."""
    total, real = 0.0, problem.time[i] >= 0
    for j in np.flatnonzero(problem.event[i]):
        risk = real & (problem.time[i] >= problem.time[i, j])
        scores = problem.A[i] @ x
        total += np.log(np.exp(scores[risk]).sum()) - scores[j]
    share = problem.num_clients / problem.event.sum()
    return share * total + problem.penalty * x @ x / 2


def test_gradients_are_those_of_the_partial_likelihood():
    problem, x, step = made(), np.linspace(-1, 1, 4), 1e-5
    for i in range(5):
        data = {name: leaf[i] for name, leaf in problem.data.items()}
        slopes = [
            (literal_loss(problem, i, x + e) - literal_loss(problem, i, x - e)) / (2 * step)
            for e in step * np.eye(4)
        ]
        assert np.allclose(problem.objective.grad(x, data, None), slopes, atol=1e-7)
    F = np.mean([literal_loss(problem, i, x) for i in range(5)])
    found = problem.objective.evaluate(x, problem.eval_data)
    assert found["loss"] == pytest.approx(F, rel=1e-12)


def test_ties_are_there_and_the_risk_set_has_all_of_them():
    problem = made()
    day = problem.time[3][problem.event[3]]
    assert len(np.unique(day)) < len(day)
    risk = problem.data["risk"][3][: len(day)]
    assert np.array_equal(risk.sum(1), [(problem.time[3] >= t).sum() for t in day])


def test_the_optimum_is_one_to_rounding():
    problem = made()
    assert problem.objective.evaluate(problem.optimum, problem.eval_data)["grad_norm"] < 1e-14


def test_the_hessian_is_the_slope_of_the_gradient_and_constants_bound_it():
    problem, rng, step = made(), np.random.default_rng(1), 1e-6

    def grad(x):
        return problem.objective.grad(x, problem.data, None).mean(0)

    for _ in range(5):
        x = rng.standard_normal(4)
        slopes = [(grad(x + e) - grad(x - e)) / (2 * step) for e in step * np.eye(4)]
        assert np.allclose(problem.mean_hessian(x), slopes, atol=1e-7)
        values = np.linalg.eigvalsh(problem.mean_hessian(x))
        assert problem.mu <= values[0] + 1e-12 and values[-1] <= problem.L_F
    assert problem.L >= problem.L_F and problem.mu_F >= problem.mu


def test_who_disagrees_is_known():
    problem = made()
    assert problem.disagreement.shape == (5,)
    # Where nobody died there is the penalty alone.
    assert problem.disagreement[2] == pytest.approx(
        problem.penalty * np.linalg.norm(problem.optimum)
    )


def test_exact_methods_are_exact_and_fedavg_is_not():
    problem, law = made(), who.Bernoulli([0.9, 0.5, 0.3, 0.05, 0.7])
    for alg, exact in [(ff.Focus(), True), (ff.Scaffold(), True), (ff.FedAvg(), False)]:
        result = ff.simulate(alg, problem, law, rounds=3000, lr=0.02, local_steps=3)
        error = np.median(result.metrics["distance"][-100:])
        assert (error < 1e-10) == exact and (exact or error > 1e-3)


def test_both_engines_agree():
    slow, fast = (
        run(ff.Focus(), made(), who.Uniform(2), rounds=30, lr=0.02, local_steps=3)
        for run in (ff.loop, ff.simulate)
    )
    assert np.abs(slow.x - fast.x).max() < 1e-12


A, time, event, mask = made().A, np.abs(made().time), made().event, made().mask


def test_a_negative_time_is_an_error_of_the_data_and_no_padding():
    wrong = time.copy()
    wrong[2, 4] = -3
    with pytest.raises(ValueError, match="got -3 at client 2, row 4. Mark .* by mask"):
        Cox(A, wrong, event)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Cox(A, time[:, :3], event), "got"),
        (lambda: Cox(A, time, event + 1), "event must be true or false; got 2"),
        (lambda: Cox(A * np.nan, time, event), "A must be finite"),
        (lambda: Cox(A, time + np.inf, event), "time must be finite"),
        (
            lambda: Cox(A, time, event, mask=mask & (np.arange(5) != 3)[:, None]),
            "client 3 has no rows",
        ),
        (lambda: Cox(A, time, 0 * event), "event must be true for somebody"),
        (lambda: Cox(A, time, event, penalty=0.0), "penalty must be positive"),
    ],
)
def test_impossible_problems_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
