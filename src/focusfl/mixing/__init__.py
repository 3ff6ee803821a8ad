"""Stochastic matrices of a set of participants, and rounds written with them."""

from focusfl.mixing import rounds
from focusfl.mixing.matrices import average, collect, gossip, pull

__all__ = ["average", "collect", "gossip", "pull", "rounds"]
