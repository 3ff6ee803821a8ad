"""Checks of stochastic matrices, and their Perron vectors."""

import numpy as np
import pytest

import focusfl as ff
from focusfl import mixing

THIRD = np.full((3, 3), 1 / 3)


def changed(i: int, j: int, value: float) -> np.ndarray:
    matrix = THIRD.copy()
    matrix[i, j] = value
    return matrix


def random_row_stochastic(n: int, seed: int) -> np.ndarray:
    R = np.random.default_rng(seed).random((n, n))
    return R / R.sum(1, keepdims=True)


@pytest.mark.parametrize("active", [[], [2], [0, 1, 3]], ids=str)
def test_the_matrices_of_a_set_pass_their_checks(active):
    mixing.check_row_stochastic(mixing.pull(active, 4))
    mixing.check_row_stochastic(mixing.average(active, 4))
    mixing.check_column_stochastic(mixing.collect(active, 4))
    mixing.check_doubly_stochastic(mixing.gossip(active, 4))


@pytest.mark.parametrize(
    "check, matrix, message",
    [
        (mixing.check_row_stochastic, changed(1, 2, 0.5), "row-.*row 1 sums to 1.1666"),
        (mixing.check_column_stochastic, changed(1, 2, 0.5), "column 2 sums to 1.1666"),
        (mixing.check_doubly_stochastic, mixing.pull([0], 2), "column 0 sums to 2"),
        (mixing.check_doubly_stochastic, mixing.collect([0], 2), "row 0 sums to 2"),
        (mixing.check_row_stochastic, changed(2, 0, -0.1), r"got -0.1 at \[2, 0\]"),
        (mixing.check_row_stochastic, changed(2, 0, np.nan), r"got nan at \[2, 0\]"),
        (mixing.check_column_stochastic, np.ones((2, 3)), r"square; got shape \(2, 3"),
        (mixing.check_doubly_stochastic, np.ones((0, 0)), "square"),
    ],
)
def test_what_is_not_stochastic_is_refused_by_its_worst_line(check, matrix, message):
    with pytest.raises(ValueError, match=message):
        check(matrix, "M")


def test_a_gap_just_above_the_tolerance_can_be_read_in_the_message():
    with pytest.raises(ValueError, match="row 0 sums to 1.00000001"):
        mixing.check_row_stochastic(changed(0, 0, 1 / 3 + 1e-8))


@pytest.mark.parametrize("seed", range(3))
def test_powers_lead_to_the_perron_vectors(seed):
    R = random_row_stochastic(5, seed)
    pi = mixing.left_perron(R)
    # R^k tends to 1 pi^T, not pi 1^T (an erratum of the paper), at the rate of |l_2|^k
    limit = np.linalg.matrix_power(R, 100)
    assert np.allclose(limit, np.outer(np.ones(5), pi), rtol=0, atol=1e-13)
    assert np.array_equal(mixing.right_perron(R.T), pi)
    assert np.allclose(pi @ R, pi, rtol=0, atol=1e-15)


def test_doubly_stochastic_matrices_owe_everybody_the_same():
    W = mixing.gossip(range(4), 4)
    assert np.allclose(mixing.left_perron(W), 0.25, rtol=0, atol=1e-15)
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])  # its powers do not converge; pi is there
    assert np.allclose(mixing.right_perron(swap), 0.5, rtol=0, atol=1e-15)


def test_in_the_mean_of_pulls_everything_comes_from_the_server():
    marginals = ff.participation.Bernoulli(np.array([0.2, 0.7])).marginals(2)
    assert mixing.left_perron(mixing.mean_pull(marginals)).tolist() == [1, 0, 0]
    assert mixing.right_perron(mixing.mean_collect(marginals)).tolist() == [1, 0, 0]


def test_there_is_no_perron_vector_of_a_disconnected_graph():
    with pytest.raises(ValueError, match=r"disconnected.*nodes \{0\} and \{2\}\."):
        mixing.left_perron(mixing.pull([0], 2))  # client 2 of the paper sleeps
    with pytest.raises(ValueError, match=r"\{0, 1, 2\} and \{3, 4, 5\}"):
        mixing.right_perron(np.kron(np.eye(2), THIRD))


@pytest.mark.parametrize("perron", [mixing.left_perron, mixing.right_perron])
def test_perron_vectors_are_for_stochastic_matrices(perron):
    with pytest.raises(ValueError, match="0 sums to 0.8"):
        perron(np.array([[0.3, 0.5], [0.5, 0.5]]))
