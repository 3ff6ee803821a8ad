"""Models on the federations of pip packages: what they fit, whom they are tested on."""

import numpy as np
import pytest

import focusfl as ff


def pooled_fit(table, penalty):
    """Cox's model on everybody's patients in one place, by statsmodels."""
    from statsmodels.duration.hazard_regression import PHReg

    x = (table.x - table.x.mean(0)) / table.x.std(0)
    model = PHReg(
        table.time, x, status=table.event.astype(int), strata=table.region,
        ties="breslow",
    )  # fmt: skip
    fit, deaths, ridge = np.zeros(x.shape[1]), table.event.sum(), penalty * np.eye(6)
    for _ in range(20):  # Newton's method, with a penalty that it has no word for
        slope = np.asarray(model.score(fit)) / deaths - penalty * fit
        bend = np.asarray(model.hessian(fit)) / deaths - ridge
        fit = fit - np.linalg.solve(bend, slope)
    return fit


def test_67_centres_under_coins_find_the_pooled_fit():
    problem = ff.problems.dialysis(penalty=1e-3)
    fit = pooled_fit(ff.data.dialysis(), 1e-3)
    assert np.linalg.norm(problem.optimum - fit) < 1e-12 * np.linalg.norm(fit)
    chances = ff.participation.by_rarity(problem.disagreement, p_min=0.05, p_max=0.9)
    run = ff.simulate(
        ff.Focus(), problem, ff.participation.Bernoulli(chances), rounds=1000, lr=0.025,
        local_steps=5, eval_every=1000,
    )  # fmt: skip
    assert np.linalg.norm(np.asarray(run.x) - fit) < 1e-10 * np.linalg.norm(fit)


def test_patients_for_tests_have_no_say_in_training():
    train, test = (ff.problems.dialysis(part=part) for part in ("train", "test"))
    assert train.num_clients == test.num_clients == 67
    real = train.A[train.mask]
    assert np.allclose(real.mean(0), 0, atol=1e-12) and np.allclose(real.std(0), 1)
    assert train.mask.sum() + test.mask.sum() == 6805
    with pytest.raises(ValueError, match="part must be one of all, train, test"):
        ff.problems.dialysis(part="half")


def table(classes=()):
    """Two clients with other slopes: 1 and 3, or labels by the sign of x."""
    rng, sets = np.random.default_rng(0), []
    for slope in (1.0, 3.0):
        x = rng.normal(size=(40, 1)).astype(np.float32)
        y = (x[:, 0] > 0).astype(np.int32) if classes else slope * x[:, 0] + 5
        sets.append({"x": x, "y": y})
    return ff.data.Federation(sets, sets, ("a", "b"), classes)


def test_a_linear_model_finds_the_ridge_regression_of_all_clients():
    found, penalty = table(), 0.1
    problem = ff.problems.linear(found, penalty, weights="samples")
    run = ff.simulate(
        ff.Focus(), problem, ff.participation.Bernoulli(0.6), rounds=300, lr=0.02,
        local_steps=3, eval_every=300, per_client=True,
    )  # fmt: skip
    x, y = (np.concatenate([own[k] for own in found.train]) for k in ("x", "y"))
    A, b = np.c_[x, np.ones(len(x))].astype(float), (y - y.mean()) / y.std()
    best = np.linalg.solve(2 * A.T @ A / len(A) + penalty * np.eye(2), 2 * A.T @ b / 80)
    layer = run.x["layer0"]
    assert np.allclose([layer["w"][0, 0], layer["b"][0]], best, atol=1e-5)
    assert np.isclose(run.metrics["loss"][0], 1.0, atol=1e-5)  # as good as the mean
    errors = [np.mean((A[k] @ best - b[k]) ** 2) for k in np.split(np.arange(80), 2)]
    assert np.allclose(run.clients_metrics["loss"], errors, atol=1e-4)
    assert np.isclose(run.metrics["loss/worst"][-1], max(errors), atol=1e-4)


def test_a_linear_model_of_classes_is_judged_by_accuracy():
    problem = ff.problems.linear(table(("no", "yes")), batch_size=8)
    run = ff.simulate(
        ff.FedAvg(), problem, ff.participation.Full(), rounds=60, lr=0.5, eval_every=60,
        per_client=True,
    )  # fmt: skip
    assert run.metrics["accuracy/worst"][-1] > 0.9 > run.metrics["accuracy"][0]


@pytest.mark.parametrize(
    "kind, clients, better",
    [("star", 80, 0.7), ("chem97", 2248, 0.75), ("watch", 10, None)],
)
def test_a_named_federation_learns(kind, clients, better):
    problem = ff.problems.PROBLEMS[kind]()
    assert problem.num_clients == clients
    run = ff.simulate(
        ff.FedAvg(), problem, ff.participation.Full(), rounds=20, lr=0.01 if better else
        0.1, local_steps=5, eval_every=20, per_client=True,
    )  # fmt: skip
    if better:  # of the error that the mean of all answers has
        assert run.metrics["loss"][-1] < better < 0.99 < run.metrics["loss"][0]
    else:
        assert run.metrics["accuracy/worst"][-1] > 0.4 > run.metrics["accuracy"][0]
