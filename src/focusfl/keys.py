"""Named random streams from one seed.

Participation, data and initialisation each have a stream of their own: changing how one
of them is drawn leaves the others as they were, and two algorithms under one seed meet
the same clients.
"""

import zlib

import numpy as np


def rng(seed: int, *names: str | int) -> np.random.Generator:
    """Make the generator of one named stream, e.g. rng(0, "participation", 3)."""
    words = [
        name if isinstance(name, int) else zlib.crc32(name.encode()) for name in names
    ]
    return np.random.default_rng([seed, *words])
