"""Weights from networkx graphs."""

import sys

import networkx as nx
import numpy as np
import pytest
from helpers import VECTORS

from focusfl import mixing

GRAPHS = {
    "path": nx.path_graph(5),
    "star": nx.star_graph(6),
    "grid": nx.grid_2d_graph(3, 4),
    "alone": nx.empty_graph(1),
    "random": nx.connected_watts_strogatz_graph(12, 4, 0.5, seed=0),
}


@pytest.fixture(scope="module")
def vectors():
    with np.load(VECTORS / "decentralized.npz") as file:
        return dict(file)


def digraph(matrix: np.ndarray) -> nx.DiGraph:
    """Entry [i, j] is what i takes from j: an edge from j to i."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(matrix)))
    graph.add_edges_from((int(j), int(i)) for i, j in np.argwhere(matrix))
    return graph


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_metropolis_weights_are_symmetric_doubly_stochastic_and_on_edges(graph):
    W = mixing.metropolis(graph)
    mixing.check_doubly_stochastic(W)
    assert np.array_equal(W, W.T) and (np.diag(W) > 0).all()
    edges = nx.to_numpy_array(graph) + np.eye(len(graph))
    assert np.array_equal(W > 0, edges > 0)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_an_undirected_graph_is_a_digraph_with_edges_both_ways(graph):
    R, C = mixing.row_weights(graph), mixing.column_weights(graph)
    mixing.check_row_stochastic(R)
    assert np.array_equal(C, R.T)


def test_weights_are_those_of_the_vectors(vectors):
    graph = digraph(vectors["R"])
    W = mixing.metropolis(nx.cycle_graph(6))
    assert np.allclose(W, vectors["W"], rtol=0, atol=1e-15)
    assert np.allclose(mixing.row_weights(graph), vectors["R"], rtol=0, atol=1e-15)
    assert np.allclose(mixing.column_weights(graph), vectors["C"], rtol=0, atol=1e-15)


def test_self_loops_and_repeated_edges_change_nothing():
    plain, busy = nx.cycle_graph(4), nx.MultiGraph(nx.cycle_graph(4))
    busy.add_edges_from([(0, 1), (0, 1), (2, 2)])
    for weights in (mixing.metropolis, mixing.row_weights, mixing.column_weights):
        assert np.array_equal(weights(busy), weights(plain))


def test_rows_come_in_the_order_of_the_nodes():
    graph = nx.Graph([("b", "a"), ("a", "c")])
    assert list(graph) == ["b", "a", "c"]
    assert (mixing.metropolis(graph) > 0)[1].all()  # "a" is everybody's neighbour


def test_a_graph_in_pieces_is_refused_by_its_pieces():
    apart = nx.disjoint_union(nx.path_graph(2), nx.cycle_graph(9))
    message = r"connected; got 2 components: \{0, 1\}, \{2, 3, 4, 5, 6, 7, \.\.\.\}\."
    with pytest.raises(ValueError, match=message):
        mixing.metropolis(apart)
    one_way = nx.DiGraph([(0, 1), (1, 0), (1, 2)])
    for weights in (mixing.row_weights, mixing.column_weights):
        with pytest.raises(ValueError, match=r"strongly connected; got 2 components"):
            weights(one_way)


@pytest.mark.parametrize("weights", [mixing.metropolis, mixing.row_weights])
def test_a_graph_of_nobody_is_refused(weights):
    with pytest.raises(ValueError, match="at least one node"):
        weights(nx.Graph())


def test_metropolis_does_not_guess_what_a_direction_means():
    with pytest.raises(ValueError, match=r"directed.*graph\.to_undirected\(\)"):
        mixing.metropolis(nx.DiGraph([(0, 1), (1, 0)]))


def test_without_networkx_there_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(ValueError, match=r"pip install '\.\[graphs\]' in a clone"):
        mixing.metropolis(GRAPHS["path"])
