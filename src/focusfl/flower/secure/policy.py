"""Which jobs can have secure sums, and how many pushes a sum must have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from focusfl.algorithms.compressed import Compressed
from focusfl.compression import FixedPoint
from focusfl.core import Algorithm, tree
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_is, shown
from focusfl.flower.protocol.messages import paths
from focusfl.flower.protocol.uplink import trial_push

ROOM = 63  # bits of a sum, beside its sign
# Settings that a job with secure sums cannot have, and what they need.
UNSEEN = {
    "max_norm": "single pushes", "max_memory": "single pushes", "weights": "single pushes",
    "eval_every": "the model",
}  # fmt: skip


@dataclass(frozen=True)
class Secure:
    """The server adds up pushes, and reads no push, no tracker and no model.

    All sites of a job share a key, of which the server knows nothing. See docs/secure.md for what
    it hides from whom: a site that colludes with the server opens everything.

    Attributes:
        minimum: pushes that a sum has at least. Sites open no smaller one, so that no site
            reads another's push.
    """

    minimum: int = 3

    def __post_init__(self):
        check_count("minimum", self.minimum)


def check_job(
    secure: Any,
    algorithm: Algorithm,
    params: Tree,
    sites: int,
    options: Mapping[str, Any],
) -> None:
    """Raise ValueError unless a job with these options can have secure sums."""
    check_is("secure", secure, Secure)
    for name, what in UNSEEN.items():
        if options.get(name):
            raise ValueError(
                f"{name} needs {what}, which a secure server never sees; got "
                f"{shown(options[name])}. Leave it out."
            )
    compressor = fixed_point(algorithm)
    if algorithm.has_after_update:
        raise ValueError(
            f"{algorithm!r} cannot be summed in secret: the server's answer changes "
            "its clients' states, which a secure server cannot read."
        )
    up = trial_push(algorithm, tree.map(np.asarray, params))
    if secure.minimum > sites:
        raise ValueError(
            "minimum of secure sums must be at most the number of sites, "
            f"{sites}; got {secure.minimum}."
        )
    if algorithm.starts_warm:
        raise ValueError(
            f"{algorithm!r} cannot be summed in secret: before round 0 it hears "
            "everybody, one by one if need be. Give warm_start=False."
        )
    plain = [path for path, leaf in paths(up) if getattr(leaf, "shape", ()) == ()]
    if plain:
        raise ValueError(
            f"{algorithm!r} cannot be summed in secret: {', '.join(plain)} is a "
            "single number, which no compressor codes. Give it an axis, or take Focus."
        )
    if compressor.bits + (sites - 1).bit_length() > ROOM:
        raise ValueError(
            f"sums of {sites} numbers of {compressor.bits} bits do not fit 64; give "
            "FixedPoint fewer bits."
        )


def fixed_point(algorithm: Algorithm) -> FixedPoint:
    """The compressor of whole numbers that an algorithm sends in; ValueError if none."""
    compressor = algorithm.compressor if isinstance(algorithm, Compressed) else None
    if not isinstance(compressor, FixedPoint):
        raise ValueError(
            "secure sums are of whole numbers: the algorithm must be Compressed(..., "
            f"FixedPoint(...)); got {algorithm!r}."
        )
    return compressor
