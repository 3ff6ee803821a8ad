"""T-SCAFFOLD: SCAFFOLD whose control variates follow the model. Not in any paper."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.algorithms.transported import Client, Line, begin, secant, visited
from focusfl.core import ALGORITHMS, Algorithm, Tree, tree
from focusfl.core.validation import check_share, shown

OPTIONS = (1, 2, "1-up")


class Server(NamedTuple):
    x: Tree
    line: Line  # sum of the lines of all who were here
    share: Any  # of the clients that take part: a mean, half of it the last round's

    @property
    def gradient_sum(self) -> Tree:
        """What all gradients are taken to sum to at x."""
        return self.line.at(self.x)


class Path(NamedTuple):
    """What option 2 keeps of the local steps."""

    grads: Tree  # the sum of the gradients
    ways: Tree  # the sum of the ways from the pulled model to where each was taken
    grad: Tree  # the last gradient
    way: Tree  # and its way


class Local(NamedTuple):
    x: Tree  # the pulled model
    z: Tree
    move: Tree  # the last step
    y: Tree  # what the gradients of all sum to
    guess: Tree  # what this client was taken for at x
    gamma: Any
    first: Tree  # the gradient at x
    path: Any  # of option 2
    steps: Any


@ALGORITHMS.register(
    "t_scaffold",
    label="T-SCAFFOLD",
    style=25,
    invariant="as T-FOCUS; ρ ≡ 0, γ = 1 and no momentum is SCAFFOLD",
)
@dataclass(frozen=True)
class TScaffold(Algorithm[Server, Client, Local]):
    """Correct local steps by what all gradients sum to where the server is.

    A client's gradient is taken for g + rho (x - point), from its last visit. A local
    step follows y/N + gamma (g - guess) + (gradient now - g), g being the first
    gradient of the visit, and half of the step before. What a client remembers is g
    (option 1), or the mean of its local gradients, carried back to x by the curvature
    of the local path (option 2), or their weighted mean, which the server can work out
    from the change of the model (option "1-up", which sends one vector instead of two).

    For full gradients: of noisy ones a curvature is noise. `momentum`, `gamma` and
    `curvature` are for comparison: with curvature=0 and momentum=0, option 1 at gamma=1
    and option "1-up" are SCAFFOLD I and II.
    """

    option: int | str = 1  # 1, 2 or "1-up"
    momentum: float = 0.5  # how much of a local step the next one repeats, in [0, 1)
    gamma: float | None = None  # root of the share that takes part if None
    curvature: float | None = None  # share of 1/(steps lr), the most; measured if None

    def __post_init__(self):
        if type(self.option) not in (int, str) or self.option not in OPTIONS:
            raise ValueError(f"option must be 1, 2 or '1-up'; got {shown(self.option)}.")
        check_share("momentum", self.momentum, whole=False)
        for name in ("gamma", "curvature"):
            if getattr(self, name) is not None:
                check_share(name, getattr(self, name))
        if self.option == "1-up" and self.gamma not in (None, 1):
            raise ValueError(
                "gamma is 1 with option '1-up', whose server could not work out what "
                f"clients remember; got {shown(self.gamma)}."
            )

    @property
    def cost(self):
        return (2, 1) if self.option == "1-up" else (2, 2)

    def max_exact_lr(self, L, local_steps):
        if local_steps == 1:
            return math.inf
        if self.option != 2:
            # At rest g is the guess, and local steps are gradient descent with momentum
            # on a function of slope y/N at x; below this its energy goes down. They
            # lead back to x ("1-up"), or are level on average (1, for convex f_i).
            return 2 * (1 - self.momentum) / L
        # A memory is off by no more than L times the mean way, and a way is no longer
        # than such a sum of weights times lr times the steepest slope: below this that
        # is too little to make up for y/N, if f_i is convex. See docs/theory.md. It is
        # a bound of the proof, not where false fixed points were found.
        far = [self.weight(t) for t in range(local_steps)]
        return 1 / (L * (far[-1] + 3 * sum(far) / local_steps))

    def weight(self, steps: int) -> float:
        """What the local gradients are multiplied by in the sum of the steps."""
        momentum = self.momentum
        return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)

    @property
    def accepts_stale_model(self):
        return self.option != "1-up"  # whose server infers a line from its own y

    def init(self, params):
        line, client = begin(params)
        return Server(params, line, 1 + line.rho), client

    def broadcast(self, server):
        down = {"x": server.x, "y": server.gradient_sum}
        if self.option != "1-up" and self.gamma is None:
            down["gamma"] = server.share**0.5
        return down

    def pull(self, client, down):
        zero, gamma = tree.zeros(down["x"]), 1.0 if self.gamma is None else self.gamma
        path = Path(zero, zero, zero, zero) if self.option == 2 else {}
        return Local(
            down["x"], down["x"], zero, down["y"], client.line.at(down["x"]),
            down.get("gamma", gamma), zero, path, 0,
        )  # fmt: skip

    def step(self, local, grad_fn, batch, rd):
        grad = grad_fn(local.z, batch)
        first = tree.axpy(1 * (local.steps == 0), grad, local.first)
        slope = tree.axpy(1 / rd.num_clients, local.y, tree.sub(grad, first))
        slope = tree.axpy(local.gamma, tree.sub(first, local.guess), slope)
        move = tree.axpy(self.momentum, local.move, tree.scale(-rd.lr, slope))
        path = local.path
        if self.option == 2:
            way = tree.sub(local.z, local.x)
            grads, ways = tree.add(path.grads, grad), tree.add(path.ways, way)
            path = Path(grads, ways, grad, way)
        z, steps = tree.add(local.z, move), local.steps + 1
        return local._replace(z=z, move=move, first=first, path=path, steps=steps)

    def push(self, client, down, local, rd):
        dx, most = tree.sub(local.z, down["x"]), 1 / (rd.local_steps * rd.lr)
        if self.option == 1:
            grad = local.first
        elif self.option == 2:
            path = local.path
            rho = secant(path.way, tree.sub(path.grad, local.first), most)
            back = tree.axpy(-rho, path.ways, path.grads)
            grad = tree.scale(1 / rd.local_steps, back)
        else:
            new = self._innovation(dx, 1, down["y"], rd)
            grad = tree.add(client.line.at(down["x"]), new)
        after = visited(client, down["x"], grad, most, self.curvature)
        moved = tree.sub(after.line, client.line)
        if self.option == "1-up":
            return after, {"dx": dx, "rho": moved.rho}
        return after, {"dx": dx, **moved._asdict()}

    def update(self, server, total, rd):
        x, rho = server.x, total["rho"]
        if self.option == "1-up":
            new = self._innovation(total["dx"], rd.num_active, server.gradient_sum, rd)
            b = tree.axpy(-rho, x, new)
        else:
            b = total["b"]
        share = (server.share + rd.num_active / rd.num_clients) / 2
        line = tree.add(server.line, Line(b, rho))
        return Server(tree.add(x, rd.mean(total["dx"])), line, share)

    def tracked(self, server, client):
        return {"line": client.line}

    def _innovation(self, dx: Tree, times: Any, y: Tree, rd: Any) -> Tree:
        """The weighted mean of local gradients less the guess, of so many together."""
        mean = tree.scale(-1 / (rd.lr * self.weight(rd.local_steps)), dx)
        return tree.axpy(-times / rd.num_clients, y, mean)
