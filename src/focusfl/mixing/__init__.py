"""Stochastic matrices of a set of participants, and methods written with them."""

from focusfl.mixing import decentralized, rounds
from focusfl.mixing.graphs import column_weights, metropolis, row_weights
from focusfl.mixing.matrices import (
    average,
    collect,
    gossip,
    mean_average,
    mean_collect,
    mean_pull,
    pull,
)
from focusfl.mixing.stochastic import (
    check_column_stochastic,
    check_doubly_stochastic,
    check_row_stochastic,
    left_perron,
    right_perron,
)

__all__ = [
    "average",
    "check_column_stochastic",
    "check_doubly_stochastic",
    "check_row_stochastic",
    "collect",
    "column_weights",
    "decentralized",
    "gossip",
    "left_perron",
    "mean_average",
    "mean_collect",
    "mean_pull",
    "metropolis",
    "pull",
    "right_perron",
    "rounds",
    "row_weights",
]
