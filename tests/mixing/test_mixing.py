"""The matrices, and the paper's matrix form against the engines."""

import numpy as np
import pytest
from helpers import quadratic, some_masks

import focusfl as ff
from focusfl import mixing

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
    [(ff.FedAvg(), mixing.rounds.fedavg), (ff.Focus(), mixing.rounds.focus)],
)
def test_matrix_form_equals_message_passing(alg, matrix_form, local_steps, run):
    problem, masks, x0 = quadratic(), some_masks(), np.linspace(-1, 1, 5)
    assert (masks.sum(1) == 0).any()  # empty rounds are part of the claim
    expected = matrix_form(problem, masks, 0.05, local_steps, x0)
    result = run(
        alg, problem, ff.participation.Replay(masks), rounds=len(masks), lr=0.05,
        local_steps=local_steps, x0=x0, on_empty="step", record="model",
    )  # fmt: skip
    assert np.abs(result.trajectory - expected).max() < 1e-12
