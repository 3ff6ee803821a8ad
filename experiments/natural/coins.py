"""Coins for any number of clients: `kind = "coins:falling"` in a study beside it."""

import numpy as np

import focusfl as ff


def falling(clients: int, most: float = 0.9, least: float = 0.05) -> ff.participation.Bernoulli:
    """Chances that fall from `most` to `least`, by the same factor from each client
    to the next, in an order of clients that a seed draws once and for all."""
    chances = np.geomspace(most, least, clients)
    return ff.participation.Bernoulli(np.random.default_rng(0).permutation(chances))
