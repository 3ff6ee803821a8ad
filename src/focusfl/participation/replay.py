"""A schedule that is already known."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from focusfl.core.registry import PARTICIPATION
from focusfl.core.validation import check_count, numeric
from focusfl.participation.model import Marginals, Participation, ids_of


@PARTICIPATION.register("replay")
@dataclass(frozen=True, eq=False)
class Replay(Participation):
    """The schedule given: masks[r, i] says whether client i takes part in round r."""

    masks: Bool[np.ndarray, "rounds clients"]  # true where a client takes part

    def __post_init__(self):
        masks = numeric("masks", self.masks)
        if masks.ndim != 2 or not masks.size or not np.isin(masks, (0, 1)).all():
            raise ValueError(
                "masks must be a (rounds, clients) matrix of true and false; "
                f"got shape {masks.shape} of {masks.dtype}."
            )
        object.__setattr__(self, "masks", masks.astype(bool))

    def check(self, num_clients):
        check_count("num_clients", num_clients)
        if self.masks.shape[1] != num_clients:
            raise ValueError(
                f"masks must have one column per client; got {self.masks.shape[1]} "
                f"for {num_clients} clients."
            )

    def draw(self, state, rounds, num_clients, rng):
        del rng  # deterministic
        if rounds.stop > len(self.masks):
            raise ValueError(
                f"masks hold {len(self.masks)} rounds; round {len(self.masks)} "
                "was asked for. Run fewer rounds or give more masks."
            )
        return state, ids_of(self.masks[rounds.start : rounds.stop])

    def marginals(self, num_clients):
        self.check(num_clients)
        active = np.maximum(self.masks.sum(1, keepdims=True), 1)
        return Marginals(self.masks.mean(0), (self.masks / active).mean(0))
