"""Clipped gradients with noise: what they are, what they cost, and who is stopped."""

import math

import jax
import numpy as np
import pytest
from helpers import quadratic

import focusfl as ff
from focusfl import privacy
from focusfl.core import Batch
from focusfl.participation import schedule
from focusfl.privacy import Private
from focusfl.privacy.budgets import Limited, check_one_gradient
from focusfl.privacy.clipping import clipped_gradient
from focusfl.studies import runner as studies
from focusfl.studies.spec import parse

RNG = np.random.default_rng(5)
A, B = RNG.normal(size=(4, 9, 3)), np.sign(RNG.normal(size=(4, 9)))
PLAIN = ff.problems.Logistic(A, B)
COINS = ff.participation.Bernoulli([0.1, 0.5, 0.9, 1.0])
RUN = {"rounds": 12, "lr": 0.1, "local_steps": 2}


def loss_fn(x, samples):
    margin = samples["b"] * (samples["a"] @ x["w"])
    return jax.numpy.logaddexp(0.0, -margin)


def learned(**options):
    rows = [{"a": a, "b": b} for a, b in zip(A, B, strict=True)]
    return ff.problems.from_loss(
        loss_fn, {"w": np.zeros(3)}, rows, eval_data=rows[0], dtype="float64",
        **{"batch_size": None, **options},
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["pld", "rdp"])
@pytest.mark.parametrize("noise, count", [(2.0, 1), (20.0, 24), (60.0, 900)])
def test_epsilon_is_what_dp_accounting_says(kind, noise, count):
    from dp_accounting import GaussianDpEvent, pld, rdp

    direct = {"pld": pld.PLDAccountant, "rdp": rdp.RdpAccountant}[kind]()
    direct.compose(GaussianDpEvent(noise), count)
    found = privacy.epsilon(noise, count, 1e-6, kind)
    # The grid of ours is a thousandth of epsilon, and errs upwards; theirs is 1e-4.
    assert found == pytest.approx(direct.get_epsilon(1e-6), rel=2e-3, abs=1e-4)


def test_a_run_counts_the_gradients_of_each_client():
    problem = Private(PLAIN, clip=1.0, noise=20.0)
    result = ff.simulate(ff.Focus(warm_start=True), problem, COINS, **RUN)
    rounds = schedule(COINS, 4, 12, 0)
    visits = np.bincount(np.concatenate(list(rounds)), minlength=4)
    own = [privacy.epsilon(20.0, 1 + 2 * int(k)) for k in visits]
    np.testing.assert_array_equal(result.clients_metrics["epsilon"], own)
    assert len({*own}) > 2
    assert result.metrics["epsilon"][0] == privacy.epsilon(20.0, 1)
    assert result.metrics["epsilon"][-1] == max(own)
    assert result.metrics["epsilon/median"][-1] == sorted(own)[2]
    assert (np.diff(result.metrics["epsilon"]) >= 0).all()


@pytest.mark.parametrize("level", ["record", "client"])
@pytest.mark.parametrize("plain", [PLAIN, learned(batch_size=4)], ids=["rows", "loss"])
def test_engines_draw_the_same_noise(plain, level):
    problem = Private(plain, clip=0.5, noise=1.0, level=level)
    one = ff.simulate(ff.Scaffold(), problem, COINS, **RUN)
    other = ff.loop(ff.Scaffold(), problem, COINS, **RUN)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12),
                 one.x, other.x)  # fmt: skip
    for name in ("epsilon", "epsilon/median"):
        np.testing.assert_array_equal(one.metrics[name], other.metrics[name])


def test_a_record_changes_a_gradient_by_no_more_than_is_said():
    row, x = {"A": A[0], "wb": B[0] / 9}, np.array([3.0, -2.0, 4.0])
    objective, clip = PLAIN.objective, 0.3
    whole, most = clipped_gradient(objective, "record", clip, x, row, None)
    assert most == pytest.approx(clip / 9)
    for i in range(9):
        without = {**row, "wb": np.where(np.arange(9) == i, 0.0, row["wb"])}
        change = clipped_gradient(objective, "record", clip, x, without, None)[0] - whole
        assert np.linalg.norm(change) <= most * (1 + 1e-12)
    far = {**row, "A": 1e6 * row["A"]}
    assert np.linalg.norm(clipped_gradient(objective, "record", clip, 0 * x, far, None)[0]) <= (
        clip * (1 + 1e-12)
    )


def test_rows_and_samples_are_clipped_alike():
    """The same loss by its formula and sample by sample, but for the penalty."""
    x, batch = np.array([1.0, -2.0, 0.5]), Batch(jax.random.key(0), 0)
    data = {"A": A[1], "wb": B[1] / 9}
    one, most = clipped_gradient(PLAIN.objective, "record", 0.4, x, data, None)
    other = learned()
    row = {"samples": {"a": A[1], "b": B[1]}, "length": np.int32(9)}
    by_sample, same = clipped_gradient(other.objective, "record", 0.4, {"w": x}, row, batch)
    np.testing.assert_allclose(by_sample["w"], one - PLAIN.penalty * x, atol=1e-14)
    assert float(same) == pytest.approx(float(most))
    free, _ = clipped_gradient(PLAIN.objective, "record", 1e6, x, data, None)
    np.testing.assert_allclose(free, PLAIN.objective.grad(x, data, None), atol=1e-14)


def test_a_gradient_that_is_not_finite_shows_nothing():
    found, _ = clipped_gradient(
        quadratic().objective, "client", 1.0, np.ones(2),
        {"H": np.full((2, 2), np.inf), "h": np.ones(2)}, None,
    )  # fmt: skip
    np.testing.assert_array_equal(found, np.zeros(2))


def test_noise_is_new_in_every_gradient_and_as_large_as_said():
    problem = Private(PLAIN, clip=1.0, noise=3.0)
    data = {"A": A[0], "wb": B[0] / 9}
    key, x = jax.random.key(1), np.zeros(3)
    drawn = np.array([
        problem.objective.grad(x, data, Batch(key, k)) for k in range(400)
    ])  # fmt: skip
    assert len(np.unique(drawn[:, 0])) == 400
    # 1200 draws: a deviation is known to some 2 %.
    assert drawn.std(0).mean() == pytest.approx(3.0 / 9, rel=0.08)


def test_a_spent_budget_stops_a_client_and_focus_keeps_its_memory():
    problem = Private(PLAIN, clip=1.0, noise=20.0, budget=0.8)
    within = privacy.gradients_within(0.8, 20.0)
    assert privacy.epsilon(20.0, within) <= 0.8 < privacy.epsilon(20.0, within + 1)
    for run in (ff.simulate, ff.loop):
        with pytest.warns(ff.BudgetWarning, match="of 4 clients have spent"):
            result = run(ff.Focus(), problem, COINS, **RUN)
        assert (result.clients_metrics["epsilon"] <= 0.8).all()
        left = result.clients_metrics["visits_left"]
        assert left[3] == 0 and left[0] > 0
        np.testing.assert_allclose(result.server.y, result.clients.grad.sum(0), atol=1e-12)
        assert result.metrics["gradients"][-1] < 2 * 4


def test_a_limited_law_is_the_law_until_its_clients_are_spent():
    some = [ids.tolist() for ids in schedule(Limited(COINS, 3), 4, 200, 1)]
    law = [ids.tolist() for ids in schedule(COINS, 4, 200, 1)]
    assert some[:3] == law[:3]
    assert np.bincount(sum(some, [])).tolist() == [3, 3, 3, 3]


def test_every_algorithm_asks_for_one_gradient_in_a_step():
    """Two in one step would carry the same noise, and their difference none."""
    for kind in ff.ALGORITHMS.values():
        check_one_gradient(kind(), np.zeros(3))


def test_many_numbers_of_gradients_are_rounded_up():
    counts = np.arange(1, 2000)
    found = privacy.epsilons(50.0, counts, accountant="rdp")
    own = np.array([privacy.epsilon(50.0, int(k), accountant="rdp") for k in counts])
    assert (found >= own).all() and found[-1] == own[-1]
    assert (np.diff(found) >= 0).all()


def test_noise_for_an_epsilon_costs_that_and_hardly_less():
    noise = privacy.noise_for(1.0, 300)
    assert 0.995 < privacy.epsilon(noise, 300) <= 1.0


def test_without_noise_epsilon_is_infinite_and_without_gradients_none():
    assert privacy.epsilon(0.0, 3) == math.inf and privacy.epsilon(2.0, 0) == 0.0
    problem = Private(PLAIN, clip=1.0, noise=0.0)
    assert "epsilon" not in ff.loop(ff.Focus(), problem, COINS, **RUN).metrics


STUDY = {
    "rounds": 4, "lr": 0.1, "local_steps": 2,
    "problem": {"kind": "ridge", "num_clients": 4, "dim": 3, "rows": 5},
    "privacy": {"clip": 1.0, "noise": 20.0, "budget": 0.4, "level": "client"},
    "participation": {"full": {}}, "algorithms": {"focus": {}, "fedavg": {}},
}  # fmt: skip


def test_a_study_keeps_epsilon_and_who_may_still_take_part():
    study = parse(STUDY, "private")
    assert isinstance(study.problem, Private) and study.problem.budget == 0.4
    for found in studies.run(study):
        assert found.curves["epsilon"][-1] <= 0.4
        assert (found.clients["visits_left"] == 0).all()
        assert "4 of 4 clients have spent" in found.row["reason"]


@pytest.mark.parametrize(
    "privacy, own, words",
    [
        ({"budget": 0.01}, {}, r"for \[algorithms.focus\]: budget must be at least"),
        ({"clip": 0.0}, {}, "clip must be positive"),
        ({"sigma": 1.0}, {}, "unknown key in .privacy.: 'sigma'"),
        ({}, {"noise": 0.5}, "algorithms.focus.noise cannot stand beside"),
    ],
)
def test_a_study_says_what_is_wrong_with_its_privacy(privacy, own, words):
    said = {
        **STUDY,
        "privacy": STUDY["privacy"] | privacy,
        "algorithms": {"focus": own},
    }
    with pytest.raises(ValueError, match=words):
        parse(said, "private")


@pytest.mark.parametrize(
    "options, words",
    [
        ({"noise": 1.0}, "noise without clipping protects nobody"),
        ({"clip": 0.0}, "clip must be positive"),
        ({"clip": 1.0, "level": "patient"}, "level must be one of record, client"),
        ({"clip": 1.0, "delta": 0.0}, r"delta must lie in \(0, 1\)"),
        ({"clip": 1.0, "noise": 0.0, "budget": 1.0}, "a budget needs noise"),
        ({"clip": 1.0, "accountant": "gdp"}, "accountant must be one of pld, rdp"),
    ],
)
def test_what_protects_nobody_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Private(PLAIN, **options)


def test_a_budget_below_what_one_round_costs_is_refused():
    problem = Private(PLAIN, clip=1.0, noise=1.0, budget=1.0)
    with pytest.raises(ValueError, match=r"at least 6\.\d+, what one round costs"):
        ff.simulate(ff.Focus(), problem, COINS, **RUN)


def test_records_are_told_apart_or_refused():
    with pytest.raises(ValueError, match='level="client" clips any'):
        Private(quadratic(), clip=1.0)
    with pytest.raises(ValueError, match="a record is in a batch once"):
        Private(learned(batch_size=4, stream="with_replacement"), clip=1.0)


def test_nothing_looks_past_the_noise():
    """Whatever would take clipped and noisy gradients for exact ones refuses."""
    problem = Private(quadratic(), clip=1.0, level="client")
    who = ff.participation.Full()
    with pytest.raises(ValueError, match="matrix forms are of gradients as they are"):
        ff.mixing.rounds.gradients(problem)
    with pytest.raises(ValueError, match="must state its smoothness"):
        ff.simulate(ff.Focus(), problem, who, rounds=1, lr="auto")
    with pytest.raises(ValueError, match="quadratic"):
        ff.theory.noise_floor(problem, who, 0.1, 1.0)
    for wrapper in (Private, ff.problems.Noisy):
        with pytest.raises(ValueError, match="without noise"):
            wrapper(problem, 1.0)
