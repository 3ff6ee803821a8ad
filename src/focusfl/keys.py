"""Named random streams from one seed.

Participation, data and initialisation each have a stream of their own: changing how one
of them is drawn leaves the others as they were, and two algorithms under one seed meet
the same clients.
"""

import zlib

import numpy as np


def rng(seed: int, *names: str | int) -> np.random.Generator:
    """Make the generator of one named stream, e.g. rng(0, "participation", 3)."""
    words = [n if isinstance(n, int) else zlib.crc32(n.encode()) for n in names]
    # The length last: numpy pads with zeros, and ("a",) would be the stream of ("a", 0).
    return np.random.default_rng([seed, *words, len(words)])
