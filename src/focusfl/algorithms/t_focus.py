"""T-FOCUS: FOCUS whose stored gradients follow the model. Not in any paper."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from focusfl.algorithms.transported import Client, Line, begin, visited
from focusfl.core import Algorithm, tree
from focusfl.core.registry import ALGORITHMS
from focusfl.core.tree import Tree
from focusfl.core.validation import check_share


class Server(NamedTuple):
    x: Tree
    line: Line  # sum of the lines of all who were here

    @property
    def gradient_sum(self) -> Tree:
        """What all gradients are taken to sum to at x."""
        return self.line.at(self.x)


class Local(NamedTuple):
    z: Tree
    u: Tree  # gradient now minus what this client was taken for
    grad: Tree
    guess: Tree  # what this client was taken for at the pulled model


@ALGORITHMS.register(
    "t_focus",
    label="T-FOCUS",
    style=24,
    invariant='y(x) = Σ gᵢ + ρᵢ(x − pointᵢ); ρ ≡ 0 is `Focus(memory="last")`',
)
@dataclass(frozen=True)
class TFocus(Algorithm[Server, Client, Local]):
    """Track the sum of gradients where the server is, not where each was taken.

    A client's gradient is taken for g + rho (x - point), from its last visit; it pushes
    how that changed, one vector and one number. For full gradients: of noisy ones the
    curvature is noise. `curvature` is for comparison: 0 is FOCUS, and 1 with one local
    step is Finito.
    """

    curvature: float | None = None  # as a share of 1/(N lr), the most; measured if None

    def __post_init__(self):
        if self.curvature is not None:
            check_share("curvature", self.curvature)

    def max_exact_lr(self, L, local_steps):
        # At rest the last gradient less the guess, r, is rho times the way from x to
        # where it was taken: they point the same way, or vanish. But the way is -lr
        # times a sum of such r, and for convex f_i none is longer than the first, so
        # that with b = lr L (local_steps - 1) the last turns by arcsin b at most and
        # their sum by arcsin(b / 2), together less than a right angle if 5 b^2 < 4.
        if local_steps == 1:
            return math.inf
        return 2 / (math.sqrt(5) * (local_steps - 1) * L)

    accepts_stale_model = True

    def init(self, params):
        line, client = begin(params)
        return Server(params, line), client

    def broadcast(self, server):
        return {"x": server.x}

    def pull(self, client, down):
        zero = tree.zeros(down["x"])
        return Local(down["x"], zero, zero, client.line.at(down["x"]))

    def step(self, local, grad_fn, batch, rd):
        z = tree.axpy(-rd.lr, local.u, local.z)
        grad = grad_fn(z, batch)
        return Local(z, tree.sub(grad, local.guess), grad, local.guess)

    def push(self, client, down, local, rd):
        most = 1 / (rd.num_clients * rd.lr)
        after = visited(client, local.z, local.grad, most, self.curvature)
        return after, tree.sub(after.line, client.line)._asdict()

    def update(self, server, total, rd):
        line = tree.add(server.line, Line(**total))
        y = line.at(server.x)
        return Server(tree.axpy(-rd.lr, y, server.x), line)

    def tracked(self, server, client):
        return {"line": client.line}
