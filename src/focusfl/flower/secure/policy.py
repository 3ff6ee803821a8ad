"""How many sites must take part in a sum, and how many can open it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from focusfl.algorithms.compressed import Compressed
from focusfl.compression import FixedPoint
from focusfl.core import Algorithm, Message, tree
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_is, shown
from focusfl.flower.protocol.messages import paths
from focusfl.flower.protocol.uplink import trial_push

LEAST = 2  # sites in a sum: that of one is its push
ROOM = 63  # bits of a sum, beside its sign


@dataclass(frozen=True)
class Secure:
    """Sums of pushes are opened, single pushes never. The same value on every side.

    No sum of fewer than `minimum` sites is made. It takes `threshold` sites of a round
    to open its sum, and as many that collude with the server to open one push.
    """

    minimum: int = 3
    threshold: int | None = None  # None: more than two thirds of those in the round

    def __post_init__(self):
        for name in ("minimum", "threshold"):
            number = getattr(self, name)
            if number is None and name == "threshold":
                continue
            check_count(name, number)
            if number < LEAST:
                raise ValueError(
                    f"{name} must be at least {LEAST}: a sum of one site is its push; got {number}."
                )

    def needed(self, sites: int) -> int:
        """How many of so many in a round must stay to its end."""
        return max(self.minimum, self.opening(sites))

    def opening(self, sites: int) -> int:
        """How many shares open a secret that was shared among so many."""
        return max(LEAST, self.threshold or 2 * sites // 3 + 1)

    def check(self, algorithm: Algorithm, up: Message, sites: int) -> None:
        """Raise ValueError unless pushes of so many sites can be summed in secret."""
        for name, number in (("minimum", self.minimum), ("threshold", self.threshold)):
            if number is not None and number > sites:
                raise ValueError(
                    f"{name} of secure sums must be at most the number of sites, "
                    f"{sites}; got {number}."
                )
        if self.threshold is not None and 2 * self.threshold <= sites:
            raise ValueError(
                f"threshold of secure sums must be more than half of {sites} sites, or "
                f"two halves could open two sums; got {self.threshold}."
            )
        compressor = fixed_point(algorithm)
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


def check_job(
    secure: Any,
    algorithm: Algorithm,
    params: Tree,
    sites: int,
    options: Mapping[str, Any],
) -> None:
    """Raise ValueError unless a job with these options can have secure sums."""
    check_is("secure", secure, Secure)
    for name in ("max_norm", "max_memory", "weights"):
        if options.get(name):
            raise ValueError(
                f"{name} needs single pushes, which a secure server never sees; "
                f"got {shown(options[name])}."
            )
    fixed_point(algorithm)
    if algorithm.has_after_update:
        raise ValueError(
            f"{algorithm!r} cannot be summed in secret: the server's answer changes "
            "its clients' states, which a secure server does not have."
        )
    up = trial_push(algorithm, tree.map(np.asarray, params))
    secure.check(algorithm, up, sites)


def fixed_point(algorithm: Algorithm) -> FixedPoint:
    """The compressor of whole numbers that an algorithm sends in; ValueError if none."""
    compressor = algorithm.compressor if isinstance(algorithm, Compressed) else None
    if not isinstance(compressor, FixedPoint):
        raise ValueError(
            "secure sums are of whole numbers: the algorithm must be Compressed(..., "
            f"FixedPoint(...)); got {algorithm!r}."
        )
    return compressor
