"""An optimizer on the server, over what any algorithm would do there.

Reddi et al. ICLR 2021. https://arxiv.org/abs/2003.00295
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.algorithms.fedavg import FedAvg
from focusfl.algorithms.proxskip import ProxSkip
from focusfl.algorithms.wrapped import OwnModel, check_inner, innermost, whole, without_model
from focusfl.core import ALGORITHMS, Algorithm, Tree, tree
from focusfl.core.validation import (
    check_flag,
    check_not_negative,
    check_one_of,
    check_positive,
    check_share,
    shown,
)

OPTIMIZERS = ("momentum", "adam", "yogi", "adagrad")
CORRECTED = ("adam", "yogi")  # whose means can be corrected for where they began


class Server(NamedTuple):
    x: Tree
    inner: Any  # what the inner algorithm's server remembers beside x
    m: Tree  # running mean of the moves; of momentum, their decaying sum
    v: Tree  # of their squares, entry by entry; nothing of momentum
    count: Any  # of the moves


@ALGORITHMS.register(
    "server_opt", style=10, invariant="rests where the inner one does, except ProxSkip"
)
@dataclass(frozen=True)
class ServerOpt(OwnModel):
    """Move the model as an optimizer does, not as the inner algorithm would.

    What the inner algorithm would add to x is `d`, minus a pseudo-gradient. With m and
    v from earlier rounds, and all products entry by entry, x moves by server_lr times

        momentum   m                   m <- beta1 m + d
        adam       m / (sqrt(v) + tau) m <- beta1 m + (1 - beta1) d
                                       v <- beta2 v + (1 - beta2) d^2
        yogi       likewise            v <- v - (1 - beta2) sign(v - d^2) d^2
        adagrad    likewise            v <- v + d^2

    which is Algorithm 2 of the paper, with v = tau^2 before round 0. Unlike Kingma and
    Ba's Adam it does not correct m and v for where they began; `bias_correction`
    divides them by 1 - beta^t, and with initial=0 that is Adam (and optax's adam).

    It comes to rest where the inner algorithm does: m must vanish, and d with it. So an
    exact one stays exact where it converges, as momentum, Yogi and Adagrad did around
    FOCUS on a ridge regression. Adam's steps do not shrink with d unless sqrt(v) is
    below tau: at tau=1e-3 it circled the optimum at a distance that followed server_lr,
    at 0.1 it was exact. ProxSkip becomes biased: its corrections sum to 0 only if x is
    the average. `lr`, a schedule of it too, is the clients' alone: adaptive steps are
    about as long whatever it is. See docs/tuning.md.
    """

    inner: Algorithm = FedAvg()  # whose moves these are
    optimizer: str = "momentum"  # or "adam", "yogi", "adagrad"
    server_lr: float = 1.0  # factor of the server's step, positive
    beta1: float = 0.9  # how much of m is kept, in [0, 1)
    beta2: float = 0.99  # how much of v is kept, in [0, 1)
    tau: float = 1e-3  # added to the root of v; the smaller, the more adaptive
    initial: float | None = None  # v before round 0; tau squared if None
    bias_correction: bool = False  # of adam and yogi: divide m and v by 1 - beta^t

    def __post_init__(self):
        if isinstance(self.inner, str):
            raise ValueError(
                "inner must be an Algorithm, and the optimizer comes second, as in "
                f"ServerOpt(FedAvg(), {self.inner!r}); got {shown(self.inner)}."
            )
        check_inner(self.inner, ServerOpt)
        check_one_of("optimizer", self.optimizer, OPTIMIZERS)
        check_positive("server_lr", self.server_lr)
        check_share("beta1", self.beta1, whole=False)
        check_share("beta2", self.beta2, whole=False)
        check_not_negative("tau", self.tau)
        if self.initial is not None:
            check_not_negative("initial", self.initial)
        if self.tau == 0 and not self.initial:
            raise ValueError(
                "tau or initial must be positive: the first step divides by their sum; "
                f"got tau={self.tau!r} and initial={self.initial!r}."
            )
        check_flag("bias_correction", self.bias_correction)
        if self.bias_correction and self.optimizer not in CORRECTED:
            raise ValueError(
                f"bias_correction is for {' and '.join(CORRECTED)}; got "
                f"optimizer={self.optimizer!r}."
            )

    def max_exact_lr(self, L, local_steps):
        if isinstance(innermost(self.inner), ProxSkip):
            return 0.0
        return self.inner.max_exact_lr(L, local_steps)

    def init(self, params):
        server, client = self.inner.init(params)
        begin = self.tau**2 if self.initial is None else self.initial
        v = {} if self.optimizer == "momentum" else tree.map(lambda a: 0 * a + begin, params)
        return Server(params, without_model(server), tree.zeros(params), v, 0), client

    def update(self, server, total, rd):
        inner = self.inner.update(whole(server), total, rd)
        move = tree.sub(inner.x, server.x)
        has_begun = rd.index >= 0  # nothing moves in the warm-up, which is no step
        count = server.count + has_begun
        m, v, step = self._step(server, move, has_begun, count)
        x = tree.axpy(self.server_lr, step, server.x)
        return Server(x, without_model(inner), m, v, count)

    def _step(self, server, move, has_begun, count):
        """The new m and v, and which way x goes."""
        if self.optimizer == "momentum":
            m = tree.axpy(self.beta1, server.m, move)
            return m, server.v, m
        new, fresh = has_begun * (1 - self.beta1), has_begun * (1 - self.beta2)
        m = tree.map(lambda m, d: (1 - new) * m + new * d, server.m, move)

        def squares(v, d):
            if self.optimizer == "adagrad":
                return v + d * d
            if self.optimizer == "adam":
                return (1 - fresh) * v + fresh * (d * d)
            return v - fresh * ((v > d * d) * (d * d) - (v < d * d) * (d * d))

        v = tree.map(squares, server.v, move)
        first = second = 1.0
        if self.bias_correction:
            first, second = (1 - b**count + (count == 0) for b in (self.beta1, self.beta2))
        step = tree.map(lambda m, v: (m / first) / ((v / second) ** 0.5 + self.tau), m, v)
        return m, v, step
