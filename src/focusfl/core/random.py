"""Named random streams from one seed.

Participation, data, initialisation and batches have a stream of their own each:
changing how one is drawn leaves the others as they were, and two algorithms under one
seed meet the same clients on the same batches.
"""

import zlib
from typing import Any

import numpy as np

from focusfl.core.validation import check_count


def rng(seed: int, *names: str | int) -> np.random.Generator:
    """Make the generator of one named stream, e.g. rng(0, "participation", 3)."""
    check_count("seed", seed, least=0)
    words = [_word(name) for name in names]
    # The length last: numpy pads with zeros, and ("a",) would be the same as ("a", 0).
    return np.random.default_rng([seed, *words, len(words)])


def stream(seed: int, *names: str | int) -> Any:
    """Make the jax key of one named stream; `fold` goes on from it."""
    import jax

    return fold(jax.random.key(seed), *(_word(name) for name in names))


def fold(key: Any, *numbers: Any) -> Any:
    """Go on to the stream of, say, one round, one client and one step of it."""
    import jax

    for number in numbers:
        key = jax.random.fold_in(key, number)
    return key


def _word(name: str | int) -> int:
    return name if isinstance(name, int) else zlib.crc32(name.encode())
