"""What is done to every gradient on a client, before any algorithm sees it."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.algorithms.fedavg import FedAvg
from focusfl.algorithms.wrapped import OwnModel, check_inner, whole, without_model
from focusfl.core import ALGORITHMS, Algorithm, Tree, tree
from focusfl.core.validation import check_not_negative, check_positive


class Server(NamedTuple):
    x: Tree
    inner: Any  # what the inner algorithm's server remembers beside x


class Local(NamedTuple):
    inner: Any  # the inner algorithm's
    anchor: Tree  # the server's model as the round began; nothing if prox is 0


@ALGORITHMS.register(
    "client_opt", style=16, invariant="prox keeps exactness; weight decay and clipping do not"
)
@dataclass(frozen=True)
class ClientOpt(OwnModel):
    """Clip gradients, add weight decay, pull local steps back to the server's model.

    Wherever the inner algorithm asks for the gradient at x, it gets

        min(1, clip_norm / |g|) g + weight_decay x + prox (x - x_server),

    g being the client's gradient and |g| its norm over the whole model.

    - `prox` leaves exact algorithms exact: it vanishes where local steps begin, and
      with one local step it does nothing at all. The step up to which that is certain,
      `max_exact_lr`, becomes that of L + prox.
    - `weight_decay` is the gradient of |x|^2 / 2: an exact algorithm ends exactly at
      the optimum of F + weight_decay |x|^2 / 2, which is another one.
    - `clip_norm` has a bias in general: clipped gradients that sum to 0 are not
      gradients that do. There is none once no client's gradient at the optimum is
      longer than clip_norm.

    `distance` and `grad_norm` are still of F.
    """

    inner: Algorithm = FedAvg()  # whose gradients these are
    weight_decay: float = 0.0  # factor of x in every gradient
    clip_norm: float | None = None  # of the longest gradient; any may pass if None
    prox: float = 0.0  # factor of x - x_server in every gradient; mu of FedProx

    def __post_init__(self):
        check_inner(self.inner, ClientOpt)
        check_not_negative("weight_decay", self.weight_decay)
        check_not_negative("prox", self.prox)
        if self.clip_norm is not None:
            check_positive("clip_norm", self.clip_norm)

    def max_exact_lr(self, L, local_steps):
        if self.weight_decay or self.clip_norm is not None:
            return 0.0
        # At rest x_server stays, so that prox is part of a fixed f_i, of the same
        # gradient there.
        return self.inner.max_exact_lr(L + self.prox, local_steps)

    def init(self, params):
        server, client = self.inner.init(params)
        return Server(params, without_model(server)), client

    def pull(self, client, down):
        if self.prox and "x" not in down:
            raise ValueError(
                f"prox needs an algorithm that broadcasts x; {self.inner!r} broadcasts "
                f"{', '.join(down)}."
            )
        return Local(self.inner.pull(client, down), down["x"] if self.prox else {})

    def step(self, local, grad_fn, batch, rd):
        def changed(x, batch):
            grad = grad_fn(x, batch)
            if self.clip_norm is not None:
                past = tree.dot(grad, grad) ** 0.5 / self.clip_norm - 1
                grad = tree.scale(1 / (1 + (past > 0) * past), grad)
            if self.weight_decay:
                grad = tree.axpy(self.weight_decay, x, grad)
            if self.prox:
                grad = tree.axpy(self.prox, tree.sub(x, local.anchor), grad)
            return grad

        return local._replace(inner=self.inner.step(local.inner, changed, batch, rd))

    def push(self, client, down, local, rd):
        return self.inner.push(client, down, local.inner, rd)

    def update(self, server, total, rd):
        inner = self.inner.update(whole(server), total, rd)
        return Server(inner.x, without_model(inner))
