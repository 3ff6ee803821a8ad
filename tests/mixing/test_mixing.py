"""The matrices, their means, and the paper's matrix forms against the engines."""

from itertools import product

import numpy as np
import pytest
from helpers import quadratic, some_masks

import focusfl as ff
from focusfl import mixing

PAPER = ff.Focus(memory="last")  # the one that its matrices are of
SETS = [[], [0], [1, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize("active", SETS, ids=str)
def test_each_matrix_is_as_stochastic_as_it_should_be(active):
    R, A, C = (f(active, 4) for f in (mixing.pull, mixing.average, mixing.collect))
    W = mixing.gossip(active, 4)
    assert np.allclose(R.sum(1), 1) and np.allclose(A.sum(1), 1)
    assert np.allclose(C.sum(0), 1) and np.array_equal(C, R.T)
    assert np.allclose(W.sum(0), 1) and np.allclose(W.sum(1), 1)


def test_the_matrices_of_the_papers_figure():
    assert mixing.pull([0, 2], 3).tolist() == [
        [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0],
    ]  # fmt: skip
    assert mixing.average([0, 2], 3)[0].tolist() == [0, 0.5, 0, 0.5]
    assert mixing.gossip([0, 2], 3).tolist() == [
        [0.5, 0, 0.5],
        [0, 1, 0],
        [0.5, 0, 0.5],
    ]


@pytest.mark.parametrize("active", [[4], [-1], [1, 1]], ids=str)
def test_clients_that_do_not_exist_are_refused(active):
    with pytest.raises(ValueError, match="distinct clients from 0 to 3"):
        mixing.pull(active, 4)


@pytest.mark.parametrize("run", [ff.loop, ff.simulate])
@pytest.mark.parametrize("local_steps", [1, 2, 5])
@pytest.mark.parametrize(
    "alg, matrix_form",
    [(ff.FedAvg(), mixing.rounds.fedavg), (PAPER, mixing.rounds.focus)],
)
def test_matrix_form_equals_message_passing(alg, matrix_form, local_steps, run):
    problem, masks, x0 = quadratic(), some_masks(), np.linspace(-1, 1, 5)
    assert (masks.sum(1) == 0).any()  # empty rounds are part of the claim
    expected = matrix_form(problem, masks, 0.05, local_steps, x0)
    result = run(
        alg, problem, ff.participation.Replay(masks), rounds=len(masks), lr=0.05,
        local_steps=local_steps, x0=x0, options=ff.Options(record_models=True, on_empty="step"),
    )  # fmt: skip
    assert np.abs(result.trajectory - expected).max() < 1e-12


@pytest.mark.parametrize("local_steps", [1, 2, 5])
def test_the_swapped_form_of_the_proof_is_focus(local_steps):
    problem, masks, x0 = quadratic(), some_masks(), np.linspace(-1, 1, 5)
    masks[-1] = False  # nobody is there to be collected from at the end
    given = problem, masks, 0.05, local_steps, x0
    swapped, plain = mixing.rounds.focus_swapped(*given), mixing.rounds.focus(*given)
    assert np.abs(swapped - plain).max() < 1e-12
    result = ff.loop(
        PAPER, problem, ff.participation.Replay(masks), rounds=len(masks), lr=0.05,
        local_steps=local_steps, x0=x0, options=ff.Options(record_models=True, on_empty="step"),
    )  # fmt: skip
    assert np.abs(swapped - result.trajectory).max() < 1e-12


def test_the_means_are_the_means_over_all_sets():
    p = np.array([0.9, 0.5, 0.3, 0.6])
    expected = dict.fromkeys((mixing.pull, mixing.average, mixing.collect), 0.0)
    for mask in product([False, True], repeat=4):
        chance = np.where(mask, p, 1 - p).prod()
        for matrix in expected:
            expected[matrix] += chance * matrix(np.flatnonzero(mask), 4)
    marginals = ff.participation.Bernoulli(p).marginals(4)
    got = (mixing.mean_pull, mixing.mean_average, mixing.mean_collect)
    for mean, matrix in zip(got, expected.values(), strict=True):
        assert np.allclose(mean(marginals), matrix, rtol=0, atol=1e-15)
    empty = mixing.mean_average(marginals)[0, 0]
    assert empty == pytest.approx(np.prod(1 - p), rel=1e-12)  # 0.014


def test_where_nobody_stays_away_the_mean_average_has_no_server_weight():
    marginals = ff.participation.Uniform(3).marginals(7)
    assert mixing.mean_average(marginals)[0, 0] < 1e-15
    mixing.check_row_stochastic(mixing.mean_average(marginals))
    mixing.check_row_stochastic(mixing.mean_pull(marginals))
    mixing.check_column_stochastic(mixing.mean_collect(marginals))
