"""The worst schedule in which everybody is seen once in `gap` rounds."""

from dataclasses import dataclass

import numpy as np

from focusfl.core.registry import PARTICIPATION
from focusfl.core.validation import check_count, numeric, shown
from focusfl.participation.model import Marginals, Participation


@PARTICIPATION.register("adversarial")
@dataclass(frozen=True, eq=False)
class Adversarial(Participation):
    """All but the hidden clients every round; the hidden ones only when the gap forces.

    `hidden` is how many, counted from the last client, or a list of them. They come
    together, in rounds gap - 1, 2 gap - 1, ..., when everybody else is there as well.
    No schedule that shows every client once in any `gap` rounds gives a client less
    weight in a mean than these get, 1 / (gap N), or leaves what is known of it to age
    for longer.
    """

    gap: int  # rounds from one visit of the hidden to the next
    hidden: int | list | np.ndarray = 1  # how many, from the last client, or which

    def __post_init__(self):
        check_count("gap", self.gap)
        if not isinstance(self.hidden, list | tuple | np.ndarray):
            check_count("hidden", self.hidden)
            return
        ids = numeric("hidden", self.hidden)
        unique = np.unique(ids)
        whole = ids.ndim == 1 and ids.dtype.kind in "iu"
        if not whole or not len(ids) or len(unique) != len(ids):
            raise ValueError(
                "hidden must be a number of clients or a list of different clients, "
                f"by their whole numbers; got {shown(self.hidden)}."
            )
        object.__setattr__(self, "hidden", unique)

    def check(self, num_clients):
        check_count("num_clients", num_clients)
        hidden = self._hidden(num_clients)
        if len(hidden) >= num_clients:
            raise ValueError(
                f"hidden must leave somebody to take part; got {len(hidden)} of "
                f"{num_clients} clients. Use Cyclic where nobody is always there."
            )
        if hidden.min() < 0 or hidden.max() >= num_clients:
            raise ValueError(
                f"hidden clients must lie in 0 to {num_clients - 1}; "
                f"got {hidden.min()} to {hidden.max()}."
            )

    def draw(self, state, rounds, num_clients, rng):
        del rng  # deterministic
        everybody = np.arange(num_clients)
        others = np.delete(everybody, self._hidden(num_clients))
        return state, [everybody if (r + 1) % self.gap == 0 else others for r in rounds]

    def marginals(self, num_clients):
        """Average over `gap` rounds."""
        self.check(num_clients)
        n, gap, hidden = num_clients, self.gap, self._hidden(num_clients)
        p = np.ones(n)
        q = np.full(n, ((gap - 1) / (n - len(hidden)) + 1 / n) / gap)
        p[hidden], q[hidden] = 1 / gap, 1 / (gap * n)
        return Marginals(p, q)

    def _hidden(self, num_clients):
        if np.ndim(self.hidden) == 0:
            return np.arange(num_clients - self.hidden, num_clients)
        return self.hidden
