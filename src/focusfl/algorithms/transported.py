"""What transported trackers share: a client's gradient as a function of the model.

A client that was here takes its gradient for g + rho (x - point), rho being a curvature
it has measured between its last two visits. Where FOCUS and SCAFFOLD add up gradients
that are as old as the last visit, these add up such lines, which follow x.

A line is kept as b + rho x, b = g - rho point, so that it does not mention where the
server was when it was pushed: sums of lines hold at any x, however late one comes and
however the server moves.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.core import Algorithm, Tree, tree


class Line(NamedTuple):
    """A gradient that is linear in the model, or a sum of such: b + rho x."""

    b: Tree
    rho: Any

    def at(self, x: Tree) -> Tree:
        return tree.axpy(self.rho, x, self.b)


class Client(NamedTuple):
    point: Tree  # where the gradient below was taken, or carried to
    grad: Tree
    rho: Any  # this client's curvature, as far as it knows
    seen: Any  # 1 once it has taken part

    @property
    def line(self) -> Line:
        return Line(tree.axpy(-self.rho, self.point, self.grad), self.rho)


class Server(NamedTuple):
    x: Tree
    line: Line  # sum of the lines of all who were here

    @property
    def gradient_sum(self) -> Tree:
        """What all gradients are taken to sum to at x."""
        return self.line.at(self.x)


@dataclass(frozen=True)
class LineTracker(Algorithm[Server, Client, Any]):
    """Base of FOCUS with lines: the server moves by the sum of all lines at its model."""

    accepts_stale_model = True

    def init(self, params):
        line, client = begin(params)
        return Server(params, line), client

    def update(self, server, total, rd):
        line = tree.add(server.line, Line(**total))
        return Server(tree.axpy(-rd.lr, line.at(server.x), server.x), line)

    def tracked(self, server, client):
        return {"line": client.line}


def begin(params: Tree) -> tuple[Line, Client]:
    """The sum of nobody's lines, and a client that has none."""
    kinds = {str(leaf.dtype) for leaf in tree.leaves(params)}
    if len(kinds) > 1:
        raise ValueError(
            "a curvature is one number for the whole model, which must be of one "
            f"dtype; got {', '.join(sorted(kinds))}."
        )
    zero = tree.zeros(params)
    none = tree.dot(zero, zero)  # 0, in the dtype of the model
    return Line(zero, none), Client(zero, zero, none, 0)


def secant(move: Tree, change: Tree, most: Any) -> Any:
    """The curvature along a move in which the gradient changed so, in [0, most].

    0 if there was no move.
    """
    square = tree.dot(move, move)
    rho = tree.dot(move, change) / (square + (square == 0))
    rho = (rho > 0) * rho
    return rho - (rho > most) * (rho - most)


def visited(client: Client, point: Tree, grad: Tree, most: Any, curvature: float | None) -> Client:
    """The memory after a visit: the curvature is that since the last, 0 at the first.

    Or it is this share of the most it may be.
    """
    if curvature is None:
        move, change = tree.sub(point, client.point), tree.sub(grad, client.grad)
        rho = client.seen * secant(move, change, most)
    else:
        rho = 0 * client.rho + curvature * most
    return Client(point, grad, rho, 1 + 0 * client.seen)  # in the dtype it had
