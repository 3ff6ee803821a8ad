"""T-FOCUS: FOCUS whose stored gradients follow the model. Not in any paper."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from focusfl.algorithms.transported import LineTracker, visited
from focusfl.core import ALGORITHMS, Tree, tree
from focusfl.core.validation import check_share


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
class TFocus(LineTracker):
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
