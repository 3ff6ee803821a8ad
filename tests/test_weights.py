"""Clients that count differently: one of weight 2 is two that always come together."""

from itertools import product

import numpy as np
import pytest
from as_published import AS_PUBLISHED
from helpers import ALL, Nested, gap, loop, quadratic, simulate, some_masks, sweep, walked

import focusfl as ff
from focusfl import problems, theory
from focusfl.core import tree
from focusfl.participation import Bernoulli, Full, Replay, Uniform
from focusfl.problems import Quadratic
from focusfl.studies import runner as studies
from focusfl.studies import spec
from focusfl.studies.runner import Store
from focusfl.studies.summary import tracking_gap

EVERY = [*ALL, *(kind() for kind in AS_PUBLISHED.values())]
WHOLE = np.array([1.0, 2, 1, 3, 1, 1])
TWINS = np.repeat(np.arange(6), WHOLE.astype(int))  # who is whose copy
ODD = np.array([0.013, 13.0, 1.0, 0.4, 2.7, 7.9])  # from 1 to 1000
COINS = np.array([0.3, 0.9, 0.5, 0.25, 0.8, 0.6])
HOW = {"rounds": 25, "lr": 0.02, "local_steps": 3, "on_divergence": "ignore"}


def weighted(weights, base=None):
    base = quadratic() if base is None else base
    return Quadratic(base.H, base.h, base.c, weights)


def twins(problem=None):
    problem = quadratic() if problem is None else problem
    return Quadratic(problem.H[TWINS], problem.h[TWINS], problem.c[TWINS])


@pytest.mark.parametrize("alg", EVERY, ids=repr)
def test_a_client_of_weight_2_is_two_that_always_come_together(alg):
    masks = some_masks(rounds=25, p=0.5)
    two = loop(alg, twins(), Replay(masks[:, TWINS]), **HOW)
    size = 1 + np.abs(two.x).max() / 0.02  # memories may be divided by lr
    for run in (loop, simulate):
        one = run(alg, weighted(WHOLE), Replay(masks), **HOW)
        assert gap(one.server, two.server) < 1e-12 * size
        assert gap(tree.map(lambda a: a[TWINS], one.clients), two.clients) < 1e-12 * size
        for name in ("distance", "loss", "grad_norm"):
            ends = 1 + np.abs(two.metrics[name]).max()
            assert gap(one.metrics[name], two.metrics[name]) < 1e-11 * ends
        # What is counted is messages: a client sends one, whatever it weighs.
        warm = 6 if alg.starts_warm else 0
        assert one.metrics["gradients"].sum() == 3 * masks.sum() + warm


def test_equal_weights_are_none():
    """All 1 is what there was before there were weights, to the bit."""
    plain, law = ff.problems.ridge(4, 5, 8), Uniform(2)
    for weights in ("equal", "samples", np.ones(4), [1, 1, 1, 1]):
        assert ff.problems.ridge(4, 5, 8, weights=weights).weights is None
    how = {"rounds": 10, "lr": 1e-3}
    run = simulate(ff.Focus(), plain, law, **how)
    assert run.weights is None
    again = simulate(ff.Focus(), ff.problems.ridge(4, 5, 8, weights="samples"), law, **how)
    assert np.array_equal(run.x, again.x)


@pytest.mark.parametrize("seed", range(2))
def test_focus_is_exact_under_any_weights_and_any_coins(seed):
    """To rounding, where weights differ by a factor of 1000 and nobody comes alike."""
    rng = np.random.default_rng(seed)
    weights = 10 ** rng.uniform(0, 3, 6)
    weights[:2] = 1, 1000
    problem, law = weighted(weights, quadratic(seed=seed)), Bernoulli(COINS)
    lr = theory.closed_form(theory.constants(problem), COINS, weights).lr
    for run in (loop, simulate):
        found = run(ff.Focus(), problem, law, rounds=1500, lr=lr, local_steps=2, eval_every=500)
        assert found.metrics["distance"][-1] < 1e-12
        error = np.abs(found.x - weighted_solution(problem, weights)).max()
        assert error < 1e-12 * np.abs(found.x).max()
        assert tracking_gap(found) < 1e-14
    equal = quadratic(seed=seed).optimum
    assert np.abs(found.x - equal).max() > 0.01 * np.abs(equal).max()


def weighted_solution(problem, weights):
    H = sum(w * own for w, own in zip(weights, problem.H, strict=True))
    h = sum(w * own for w, own in zip(weights, problem.h, strict=True))
    return np.linalg.solve(H, h)


def test_the_tracker_follows_the_weighted_sum_and_no_other():
    run = simulate(ff.Focus(), weighted(ODD), Bernoulli(0.5), rounds=20, lr=1e-3)
    assert gap(run.server.y, ODD @ run.clients.grad) < 1e-12
    assert tracking_gap(run) < 1e-14
    assert gap(run.server.y, run.clients.grad.sum(0)) > 0.1


@pytest.mark.parametrize("where", ["device", "host", "disk"])
def test_wherever_clients_are_it_is_the_run_of_the_loop(where):
    problem, law = weighted(ODD), Uniform(2)
    how = HOW | {"rounds": 12, "lr": 1e-3}
    slow = loop(ff.Focus(warm_start=True), problem, law, **how)
    how["client_state"] = where
    fast = simulate(ff.Focus(warm_start=True), problem, law, **how)
    assert gap(slow.server, fast.server) < 1e-12
    assert gap(slow.clients, tree.map(np.asarray, fast.clients)) < 1e-12


def test_a_sweep_has_the_weights_of_single_runs():
    problem, law = weighted(ODD), Bernoulli(0.4)
    lrs, seeds, how = [1e-3, 3e-3], [3, 4], {"rounds": 12, "local_steps": 3}
    alone = [
        loop(ff.Scaffold(), problem, law, lr=lr, seed=seed, **how)
        for seed, lr in product(seeds, lrs)
    ]
    together = sweep(ff.Scaffold(), problem, law, lrs=lrs, seed=seeds, **how)
    for one, other in zip(alone, together, strict=True):
        assert gap(one.server, other.server) < 1e-12


def test_models_that_are_trees_and_gradients_that_are_drawn_have_weights_too():
    class Heavy(Nested):
        weights = np.array([0.5, 1, 2, 4, 8])

    slow, fast = (
        run(ff.Scaffold(), Heavy("float32"), Bernoulli(0.5), rounds=5, lr=0.02)
        for run in (loop, simulate)
    )
    assert gap(slow.server, fast.server) < 1e-4
    assert fast.x["bias"].dtype == slow.x["bias"].dtype == "float32"
    drawn = walked(num_clients=4, dtype="float64")
    samples = {"a": drawn.samples["a"], "y": drawn.samples["y"]}
    clients = [tree.map(lambda a, i=i: a[i][: drawn.lengths[i]], samples) for i in range(4)]
    problem = ff.problems.from_loss(
        drawn.mean_loss.loss_fn, drawn.x0, clients, batch_size=3,
        eval_data=drawn.eval_data, dtype="float64", weights="samples",
    )  # fmt: skip
    assert np.allclose(problem.weights, drawn.lengths / drawn.lengths.mean())
    slow, fast = (
        run(ff.FedAvg(), problem, Bernoulli(0.5), rounds=5, lr=0.02) for run in (loop, simulate)
    )
    assert gap(slow.server, fast.server) < 1e-12
    plain = loop(ff.FedAvg(), drawn, Bernoulli(0.5), rounds=5, lr=0.02)
    assert gap(slow.server, plain.server) > 1e-3


# Problems: what is evaluated is the weighted F.

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((3, 6, 2)), RNG.standard_normal((3, 6))
MASK = np.arange(6) < np.array([[6], [2], [4]])
TIMES, DIED = np.abs(B) + 0.1, RNG.random((3, 6)) < 0.7
MAKE = {
    "quadratic": lambda w: Quadratic(A.swapaxes(1, 2) @ A, A.sum(1), B[:, 0], w),
    "least_squares": lambda w: problems.LeastSquares(A, B, 0.1, w),
    "logistic": lambda w: problems.Logistic(A, np.sign(B), 0.1, MASK, w),
    "cox": lambda w: problems.Cox(A, TIMES, DIED, 0.1, None, w),
    "robust": lambda w: problems.Robust(A, B, w),
    "noisy": lambda w: problems.Noisy(problems.LeastSquares(A, B, 0.1, w), 0.0),
}


@pytest.mark.parametrize("kind", MAKE)
def test_what_is_evaluated_is_the_weighted_mean(kind):
    """Gradient and loss are those of sum w_i f_i / sum w_i, by the f_i themselves."""
    w = np.array([3.0, 0.25, 1.1])
    problem, plain = MAKE[kind](w), MAKE[kind](None)
    exact = getattr(problem, "exact", problem)
    x = np.array([0.3, -0.7])

    def mean_gradient(x):
        each = [
            exact.objective.grad(x, tree.map(lambda a, i=i: a[i], exact.data), None)
            for i in range(3)
        ]
        return w @ each / w.sum()

    found = problem.objective.evaluate(x, problem.eval_data)
    slope = mean_gradient(x)
    assert found["grad_norm"] == pytest.approx(np.linalg.norm(slope), rel=1e-12)
    step = 1e-6 * slope
    above, below = (
        problem.objective.evaluate(x + s * step, problem.eval_data)["loss"] for s in (1, -1)
    )
    assert (above - below) / 2 == pytest.approx(slope @ step, rel=1e-6)
    other = plain.objective.evaluate(x, plain.eval_data)
    assert other["loss"] != pytest.approx(found["loss"], rel=1e-3)
    assert problem.total_weight == pytest.approx(4.35) and plain.total_weight == 3
    if hasattr(exact, "optimum"):
        assert np.abs(mean_gradient(exact.optimum)).max() < 1e-12
        assert np.abs(exact.optimum - getattr(plain, "exact", plain).optimum).max() > 0.01
        curve = np.array([mean_gradient(exact.optimum + 1e-6 * e) for e in np.eye(2)])
        values = np.linalg.eigvalsh((curve + curve.T) / 2e-6)
        assert exact.mu_F <= values[0] * (1 + 1e-4)
    if hasattr(exact, "L_F"):
        near = np.array([mean_gradient(x + 1e-6 * e) for e in np.eye(2)]) - slope
        assert np.linalg.norm(near, 2) / 1e-6 <= exact.L_F * (1 + 1e-4)


def test_samples_are_those_that_are_there():
    problem = problems.Logistic(A, np.sign(B), 0.1, MASK, "samples")
    assert np.allclose(problem.weights, [1.5, 0.5, 1.0]) and problem.total_weight == 3
    pooled = problems.Logistic(A[MASK][None], np.sign(B)[MASK][None], 0.1)
    assert gap(problem.optimum, pooled.optimum) < 1e-12  # as if all were in one place


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: MAKE["quadratic"]("samples"), "no samples to count by"),
        (
            lambda: problems.random_quadratic(weights="samples"),
            "no samples to count by",
        ),
        (lambda: MAKE["cox"]("samples"), "count by their deaths already"),
        (lambda: MAKE["logistic"]("sample"), "one of samples, equal; got 'sample'"),
        (lambda: MAKE["logistic"]([1, 2]), "3 numbers, one for each client"),
        (lambda: MAKE["logistic"]([1, 2, 0]), "got 0 for client 2"),
        (lambda: MAKE["logistic"]([1, -2, 1]), "got -2 for client 1"),
        (lambda: MAKE["logistic"]([np.nan, 2, 1]), "got nan for client 0"),
    ],
)
def test_impossible_weights_are_one_clear_line(make, words):
    with pytest.raises(ValueError, match=words) as error:
        make()
    assert "\n" not in str(error.value) and str(error.value).startswith("weights must")


def test_weights_of_a_problem_of_ones_own_are_checked_before_a_run():
    class Wrong(Nested):
        weights = np.ones((5, 2))

    for run in (loop, simulate):
        with pytest.raises(ValueError, match="weights must be 5 numbers"):
            run(ff.Focus(), Wrong(), Full(), rounds=1, lr=0.1)


# Theory.


def test_fedavg_ends_where_its_limit_says():
    problem = weighted(ODD)
    run = simulate(ff.FedAvg(), problem, Full(), rounds=800, lr=0.05, local_steps=3, eval_every=800)
    limit = theory.fedavg_limit(problem, Full(), 0.05, 3)
    assert gap(run.x, limit) < 1e-12
    assert gap(limit, theory.fedavg_limit(quadratic(), Full(), 0.05, 3)) > 0.01
    mifa = simulate(
        ff.MIFA(), problem, Bernoulli(0.8), rounds=800, lr=0.05, local_steps=3,
        eval_every=800,
    )  # fmt: skip
    assert gap(mifa.x, theory.fedavg_fixed_point(problem, 0.05, 3)) < 1e-12
    told = theory.predict(ff.FedAvg(), problem, Full(), lr=0.05, local_steps=3)
    assert told.bias == pytest.approx(run.metrics["distance"][-1], rel=1e-9)


@pytest.mark.parametrize("coins", [COINS, np.array([1.0, 0.9, 0.5, 0.01, 0.8, 1.0])])
def test_mean_shares_of_coins_are_those_of_all_sets(coins):
    shares = np.zeros(6)
    for there in product([0, 1], repeat=6):
        there = np.array(there)
        chance = np.prod(np.where(there, coins, 1 - coins))
        if there.any():
            shares += chance * ODD * there / (ODD @ there)
    found = theory.limits.mean_shares(weighted(ODD), Bernoulli(coins))
    assert np.abs(found - shares).max() < 1e-13
    nearly = weighted(np.full(6, 1 + 1e-13))
    q = Bernoulli(coins).marginals(6).q
    assert np.abs(theory.limits.mean_shares(nearly, Bernoulli(coins)) - q).max() < 1e-12


def test_the_noise_floor_grows_with_the_square_of_a_weight():
    """By the covariance of the linear recursion itself, one number, two clients."""
    w, p, lr = np.array([5.0, 1.0]), np.array([0.3, 0.9]), 1e-4
    problem = Quadratic(np.ones((2, 1, 1)), np.zeros((2, 1)), weights=w)
    # State (x, g_1, g_2): who comes takes g = x + noise; then x -= lr w·g.
    mean, noise = np.zeros((9, 9)), np.zeros((3, 3))
    for there in product([0, 1], repeat=2):
        there, take = np.array(there), np.eye(3)
        chance = np.prod(np.where(there, p, 1 - p))
        take[1:] = np.column_stack([there, np.diag(1.0 - there)])
        step = np.eye(3)
        step[0, 1:] = -lr * w * there.any()  # a round of nobody is skipped
        mean += chance * np.kron(step @ take, step @ take)
        fresh = np.diag([0, *there])
        noise += chance * step @ fresh @ step.T
    square = np.linalg.solve(np.eye(9) - mean, noise.ravel())[0]
    floor = theory.noise_floor(problem, Bernoulli(p), lr, 1.0)
    # To first order in lr, and rounds of nobody (7 %) stand still: both are small.
    assert floor == pytest.approx(square, rel=0.15)
    equal = theory.noise_floor(weighted(None, problem), Bernoulli(p), lr, 1.0)
    assert floor > 3 * equal


def test_auto_lr_counts_weights():
    problem, law = weighted(ODD), Bernoulli(COINS)
    found = theory.auto_lr(ff.Focus(), problem, law, 2)
    run = loop(ff.Focus(), problem, law, rounds=400, lr="auto", local_steps=2)
    assert run.lr == found.lr and run.metrics["distance"][-1] < 1e-12
    two, one = (
        theory.auto_lr(ff.Focus(), which, Full(), 2).lr for which in (twins(), weighted(WHOLE))
    )
    assert one == pytest.approx(two, rel=1e-12)  # everybody: coming together or not
    (rate,) = theory.rates(theory.constants(problem), 1e-4)
    assert rate.factor == pytest.approx(1 - 1e-4 * ODD.sum() * problem.mu_F)


@pytest.mark.parametrize(
    "ask",
    [
        lambda p: theory.step_sizes(theory.constants(p), Full().marginals(6), 2),
        lambda p: theory.report(p, Full(), lr=0.01),
        lambda p: theory.lyapunov(p, Full(), rounds=2, lr=0.01),
        lambda p: theory.fedavg_limit(p, Uniform(2), 0.01, 2),
        lambda p: ff.mixing.rounds.focus(p, some_masks(3), 0.01, 2, p.x0),
        lambda p: ff.mixing.decentralized.gradients(p),
    ],
)
def test_theory_that_knows_no_weights_says_so(ask):
    with pytest.raises(ValueError, match="weight") as error:
        ask(weighted(ODD))
    assert "\n" not in str(error.value)
    known = theory.predict(ff.FedAvg(), weighted(ODD), Uniform(2), lr=0.01, local_steps=2)
    assert known.bias is None


# What is kept.


def test_a_checkpoint_of_other_weights_is_another_run(tmp_path):
    how = {"rounds": 6, "lr": 1e-3, "checkpoint": tmp_path}
    simulate(ff.Focus(), weighted(ODD), Uniform(2), **how)
    for other in (ODD + 1e-9, None):
        with pytest.raises(ValueError, match="checkpoint of another run: .*weights was"):
            simulate(ff.Focus(), weighted(other), Uniform(2), **how)
    assert simulate(ff.Focus(), weighted(ODD), Uniform(2), **how).x is not None


def study(**more):
    table = {
        "rounds": 30, "lr": 0.001, "algorithms": {"focus": {}},
        "participation": {"bernoulli": {"p": 0.5}},
        "problem": {"kind": "random_quadratic", "num_clients": 6, "dim": 4, **more},
    }  # fmt: skip
    return spec.parse(table, "study")


def test_a_study_says_weights_and_keeps_runs_by_them(tmp_path):
    plain, same, other, more = (
        study(**words)
        for words in (
            {}, {"weights": "equal"}, {"weights": ODD.tolist()},
            {"weights": (ODD + 1e-9).tolist()},
        )
    )  # fmt: skip
    keys = [
        Store(tmp_path, one).key(studies.run_groups(one)[0], 0.01, 0)
        for one in (plain, same, other, more)
    ]
    assert keys[0] == keys[1] and len({*keys}) == 3
    rows = {run.row["algorithm"]: run.row for run in studies.run(other)}
    assert rows["focus"]["tracking_gap"] < 1e-14
    assert rows["focus"]["tracker_norm"] > 0 and rows["focus"]["error"] < 1
    with pytest.raises(ValueError, match=r"\[problem\]: weights must be one of samples"):
        study(weights="many")
