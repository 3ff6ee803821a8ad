"""Anchored FOCUS: a stored gradient pushes only so far. Not in any paper.

SAG, which FOCUS is with one local step, applies a stored gradient in every round until
its client is back. Finito (Defazio, Caetano, Domke. ICML 2014) and MISO (Mairal. SIAM
J. Optim. 2015) apply it once. This is what lies between.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from focusfl.algorithms.transported import LineTracker, visited
from focusfl.core import ALGORITHMS, Tree, tree
from focusfl.core.validation import check_share


class Local(NamedTuple):
    z: Tree
    u: Tree  # gradient now minus what is stored
    grad: Tree
    total: Tree  # the sum of this visit's gradients


@ALGORITHMS.register(
    "anchored_focus",
    label="Anchored FOCUS",
    style=26,
    invariant="y(x) = Σ mᵢ + ρᵢ(x − pointᵢ); anchor 0 is FOCUS, 1 Finito",
)
@dataclass(frozen=True)
class AnchoredFocus(LineTracker):
    """Draw the model back to where each stored gradient was taken.

    The server takes a client's gradient for m + rho (x - point): m the mean of its
    local gradients, point the model it pulled then. While it is away m moves the
    model by at most m / (N rho), that is 1/anchor steps, however long it lasts. Where
    everybody was here since the model came to rest, every point is x and the anchors
    vanish. With anchor=0 it is FOCUS with memory="mean"; with anchor=1 and one local
    step it is Finito.
    """

    anchor: float = 0.2  # rho as a share of 1/(N lr): in [0, 1]

    def __post_init__(self):
        check_share("anchor", self.anchor)

    def max_exact_lr(self, L, local_steps):
        # At rest every point is x, and the anchors are gone: FOCUS with mean memory.
        return 2 / L if local_steps > 1 else math.inf

    def pull(self, client, down):
        zero = tree.zeros(down["x"])
        return Local(down["x"], zero, client.grad, zero)

    def step(self, local, grad_fn, batch, rd):
        z = tree.axpy(-rd.lr, local.u, local.z)
        grad = grad_fn(z, batch)
        u = tree.sub(grad, local.grad)
        return Local(z, u, local.grad, tree.add(local.total, grad))

    def push(self, client, down, local, rd):
        grad = tree.scale(1 / rd.local_steps, local.total)
        most = 1 / (rd.num_clients * rd.lr)
        after = visited(client, down["x"], grad, most, self.anchor)
        return after, tree.sub(after.line, client.line)._asdict()
