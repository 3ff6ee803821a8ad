"""What a job must come to, found without the protocol: by knowing everything.

No numbers, no acknowledgements, no disk: when the server counts a push, the site's
memory moves, and only then.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any

from focusfl import tree
from focusfl.core import Algorithm, Batch, GradFn, Round
from focusfl.engines.client_round import client_round


class Oracle:
    """The server and the memory of every client, as if nothing could get lost."""

    def __init__(
        self,
        algorithm: Algorithm,
        x0: Any,
        grads: Sequence[GradFn],
        lr: float,
        local_steps: int,
        weights: Sequence[float] | None = None,
    ):
        self.algorithm, self.grads = algorithm, grads
        self.lr, self.local_steps = lr, local_steps
        self.num_clients, self.weights = len(grads), weights
        self.numbers = [0] * self.num_clients
        self.gone: set[int] = set()
        self.barred: set[int] = set()  # those of them who were left out
        self.asked: dict[int, tuple] = {}  # what went out under a number, for ever
        self.epoch = 0
        self.begin(x0)

    def begin(self, x: Any) -> None:
        """Start an epoch."""
        self.server, client = self.algorithm.init(x)
        self.index = -1 if self.algorithm.starts_warm else 0
        self.memory = [client] * self.num_clients
        self.pushed = [None] * self.num_clients
        self.digests = [""] * self.num_clients
        self.copied = [False] * self.num_clients
        self.counted: list[int] = []
        self.total = None
        self.contributed: set[int] = set()
        self.epoch += 1

    def copy(self) -> "Oracle":
        """The same, to go on from when the other has: what was asked is shared."""
        other = copy.copy(self)
        shared = ("asked", "grads", "weights")
        vars(other).update(
            {
                name: value.copy()
                for name, value in vars(self).items()
                if isinstance(value, list | set) and name not in shared
            }
        )
        return other

    def restarted(self) -> "Oracle":
        """The same, with everybody's memory emptied."""
        other = self.copy()
        other.begin(self.server.x)
        return other

    def unbarred(self) -> "Oracle":
        """The same, where those who were left out have another chance."""
        other = self.copy()
        other.gone -= self.barred
        other.barred.clear()
        return other

    @property
    def key(self) -> tuple:
        """What a ledger says of the same moment."""
        return (
            self.epoch, self.index, self.counted, self.digests, self.gone,
            self.contributed,
        )  # fmt: skip

    def rd(self, num_active: float = math.nan) -> Round:
        warm = self.index < 0
        return Round(
            self.index, 0.0 if warm else self.lr, 1 if warm else self.local_steps,
            self.weight_of(range(self.num_clients)), num_active,
        )  # fmt: skip

    def weight_of(self, ids: Sequence[int]) -> float:
        if self.weights is None:
            return len(ids)
        return math.fsum(self.weights[i] for i in ids)

    def ask(self, seq: int) -> None:
        self.asked[seq] = self.algorithm.broadcast(self.server), self.rd()

    def count(self, i: int, seq: int, digest: str, goodbye: bool = False) -> None:
        """The server has counted what client i was asked for under this number."""
        down, rd = self.asked[seq]
        numbers = range(self.numbers[i], self.numbers[i] + rd.local_steps)
        client, up = client_round(
            self.algorithm, self.memory[i], down, _zero if goodbye else self.grads[i],
            [Batch(None, number) for number in numbers], rd,
        )  # fmt: skip
        self.numbers[i] += 0 if goodbye else rd.local_steps
        if self.weights is not None:
            up = tree.scale(self.weights[i], up)
        self.pushed[i] = self.memory[i] = client
        self.digests[i] = digest
        self.total = tree.add(tree.zeros(up) if self.total is None else self.total, up)
        self.counted.append(i)
        self.contributed.add(i)
        self.barred.discard(i)
        (self.gone.add if goodbye else self.gone.discard)(i)

    @property
    def waits(self) -> bool:
        """Whether everybody must be counted before the round may close, and was not."""
        here = {*range(self.num_clients)} - self.gone
        return self.index < 0 and bool(here - {*self.counted})

    def close(self) -> None:
        rd = self.rd(self.weight_of(self.counted))
        if self.counted:
            self.server = self.algorithm.update(self.server, self.total, rd)
        answer = self.algorithm.broadcast(self.server)
        for i in self.counted:
            self.memory[i] = self.algorithm.settle(self.memory[i], answer, rd)
        self.index += 1
        self.counted, self.total = [], None

    def play(self, ids: Sequence[int]) -> None:
        """A round in which these take part and nothing goes wrong."""
        self.ask(0)
        for i in ids:
            self.count(i, 0, "")
        self.close()


def _zero(x: Any, batch: Any) -> Any:
    return tree.zeros(x)
