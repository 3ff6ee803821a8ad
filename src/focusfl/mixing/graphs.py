"""Weights from networkx graphs: row i is the i-th of graph.nodes.

An edge from j to i carries what j says to i, so it fills entry [i, j]. Every node also
listens to itself, whether the graph has self-loops or not.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl.core.extras import missing
from focusfl.mixing.matrices import Mixing

if TYPE_CHECKING:
    from networkx import DiGraph, Graph  # type: ignore[import-untyped]


def metropolis(graph: "Graph") -> Mixing:
    """W[i, j] = 1 / (1 + the larger degree), the rest on the diagonal.

    Symmetric and doubly stochastic, and each node need only know its neighbours.
    """
    nx = _networkx()
    if graph.is_directed():
        raise ValueError(
            "metropolis needs edges that go both ways; got a directed graph. "
            "Use row_weights and column_weights, or graph.to_undirected()."
        )
    _one_piece(list(nx.connected_components(graph)) if graph else [], "connected")
    edges = _adjacency(graph)
    degree = edges.sum(1)
    W = edges / (1 + np.maximum(degree[:, None], degree))
    return W + np.diag(1 - W.sum(1))


def row_weights(graph: "DiGraph | Graph") -> Mixing:
    """R[i, j]: every node takes the plain mean of itself and those it hears."""
    return _row_normalised(_digraph_adjacency(graph))


def column_weights(graph: "DiGraph | Graph") -> Mixing:
    """C[i, j]: every node shares out equally to itself and those who hear it."""
    return _row_normalised(_digraph_adjacency(graph).T).T


def _row_normalised(edges: np.ndarray) -> Mixing:
    return (edges + np.eye(len(edges))) / (1 + edges.sum(1, keepdims=True))


def _digraph_adjacency(graph: Any) -> np.ndarray:
    nx = _networkx()
    pieces = nx.strongly_connected_components(graph.to_directed(as_view=True))
    _one_piece(list(pieces), "strongly connected")
    return _adjacency(graph)


def _adjacency(graph: Any) -> np.ndarray:
    """1.0 at [i, j] where an edge leads from j to i, and 0 on the diagonal."""
    row = {node: i for i, node in enumerate(graph)}
    edges = np.zeros((len(row), len(row)))
    for j, heard_by in graph.adjacency():
        edges[[row[i] for i in heard_by], row[j]] = 1
    np.fill_diagonal(edges, 0)
    return edges


def _one_piece(components: list[Collection], wanted: str) -> None:
    if not components:
        raise ValueError("the graph must have at least one node; got an empty graph.")
    if len(components) > 1:
        names = _listed("{" + _listed(map(str, c)) + "}" for c in components)
        raise ValueError(
            f"the graph must be {wanted}; got {len(components)} components: {names}. "
            "Add edges between them."
        )


def _listed(items: Iterable[str], shown: int = 6) -> str:
    names = list(items)
    return ", ".join(names[:shown] + ["..."] * (len(names) > shown))


def _networkx() -> Any:
    try:
        import networkx
    except ImportError:
        raise ValueError(missing("graphs need", "networkx", "graphs")) from None
    return networkx
