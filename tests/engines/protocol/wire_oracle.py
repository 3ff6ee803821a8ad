"""What a job must come to, found without the protocol: by knowing everything.

No numbers, no acknowledgements, no disk: when the server counts a push, the site's
memory moves, and only then.
"""

import copy
import math

from focusfl import tree
from focusfl.core import Algorithm, Batch, Round


class Oracle:
    """The server and the memory of every client, as if nothing could get lost."""

    def __init__(self, algorithm: Algorithm, x0, grads, lr, local_steps, weights=None):
        self.algorithm, self.grads = algorithm, grads
        self.lr, self.local_steps = lr, local_steps
        self.num_clients, self.weights = len(grads), weights
        self.numbers = [0] * self.num_clients
        self.asked = {}  # what went out under a number, for ever
        self.begin(x0)
        self.save()

    def begin(self, x):
        """Start an epoch."""
        self.server, client = self.algorithm.init(x)
        self.index = -1 if self.algorithm.starts_warm else 0
        self.memory = [client] * self.num_clients
        self.pushed = [None] * self.num_clients
        self.counted = []
        self.total = None
        self.contributed = set()

    def rd(self, num_active=float("nan")):
        warm = self.index < 0
        return Round(
            self.index, 0.0 if warm else self.lr, 1 if warm else self.local_steps,
            self.weight_of(range(self.num_clients)), num_active,
        )  # fmt: skip

    def weight_of(self, ids):
        if self.weights is None:
            return len(ids)
        return math.fsum(self.weights[i] for i in ids)

    def ask(self, seq):
        self.asked[seq] = self.algorithm.broadcast(self.server), self.rd()

    def count(self, i, seq, gradient=None):
        """The server has counted what client i was asked for under this number."""
        down, rd = self.asked[seq]
        client, grad = self.memory[i], gradient or self.grads[i]
        local = self.algorithm.pull(client, down)
        for k in range(rd.local_steps):
            batch = Batch(None, self.numbers[i] + k)
            local = self.algorithm.step(local, grad, batch, rd)
        client, up = self.algorithm.push(client, down, local, rd)
        if gradient is None:
            self.numbers[i] += rd.local_steps
        if self.weights is not None:
            up = tree.scale(self.weights[i], up)
        self.pushed[i] = client
        self.memory = [*self.memory[:i], client, *self.memory[i + 1 :]]
        total = tree.zeros(up) if self.total is None else self.total
        self.total = tree.add(total, up)
        self.counted = [*self.counted, i]
        self.contributed = self.contributed | {i}

    def close(self):
        rd = self.rd(self.weight_of(self.counted))
        if self.counted:
            self.server = self.algorithm.update(self.server, self.total, rd)
        answer = self.algorithm.broadcast(self.server)
        self.memory = [
            self.algorithm.settle(client, answer, rd) if i in self.counted else client
            for i, client in enumerate(self.memory)
        ]
        self.index += 1
        self.counted, self.total = [], None

    def save(self):
        """Remember the present, for a server that dies."""
        self.saved = {
            name: copy.copy(value)
            for name, value in vars(self).items()
            if name not in ("saved", "asked")
        }

    def roll_back(self):
        vars(self).update({name: copy.copy(a) for name, a in self.saved.items()})
