"""What the public code of the FOCUS paper does under four names, for its figures only.

None of these is the algorithm it is named after, and none is in ALGORITHMS. The code
was read in https://github.com/BichengYing/FedASL; docs/errata.md says what is wrong.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from focusfl.algorithms.fedau import FedAU
from focusfl.algorithms.mifa import MIFA
from focusfl.algorithms.scaffold import Scaffold
from focusfl.algorithms.wrapped import Wrapped
from focusfl.core import Algorithm, tree
from focusfl.core.tree import Tree


@dataclass(frozen=True)
class PublishedFedAU(Wrapped):
    """FedAU with a cutoff of 10, divided by the participants' weights instead of N."""

    original = FedAU(cutoff=10)

    def push(self, client, down, local, rd):
        weight = self.original.catch_up(client, rd.index).weight
        client, up = self.original.push(client, down, local, rd)
        return client, {**up, "weight": weight}

    def update(self, server, total, rd):
        share = 1 / (total["weight"] + (rd.num_active == 0))
        return server._replace(x=tree.axpy(share, total["dx"], server.x))


@dataclass(frozen=True)
class PublishedScaffold(Wrapped):
    """SCAFFOLD that divides by 10 however many take part: a random server step."""

    original = Scaffold()

    def update(self, server, total, rd):
        updated = self.original.update(server, total, rd)
        return updated._replace(x=tree.axpy(1 / 10, total["dx"], server.x))


class Remembering(NamedTuple):
    """A client that measures from the model it ended its last round with."""

    memory: Tree
    z: Tree


@dataclass(frozen=True)
class PublishedMIFA(Wrapped):
    """MIFA that measures an update from before the pull instead of after it."""

    original = MIFA()

    def init(self, params):
        server, client = self.original.init(params)
        return server, Remembering(client.g, params)

    def push(self, client, down, local, rd):
        g = tree.scale(1 / rd.lr, tree.sub(client.z, local.x))
        return Remembering(g, local.x), {"dg": tree.sub(g, client.memory)}


class Late(NamedTuple):
    h: Tree
    z: Tree  # the model it pushed when it last took part
    seen: Any  # 1 once it has taken part


class LateLocal(NamedTuple):
    z: Tree
    h: Tree
    gap: Tree  # from the model it pushed last to the one it pulls now


class Server(NamedTuple):
    x: Tree


@dataclass(frozen=True)
class PublishedScaffnew(Algorithm[Server, Late, LateLocal]):
    """Scaffnew that corrects h at the next pull, by an average it was not part of."""

    def init(self, params):
        zero = tree.zeros(params)
        return Server(params), Late(zero, zero, 0)

    def broadcast(self, server):
        return {"x": server.x}

    def pull(self, client, down):
        gap = tree.scale(client.seen, tree.sub(down["x"], client.z))
        return LateLocal(down["x"], client.h, gap)

    def step(self, local, grad_fn, batch, rd):
        shift = self._corrected(local, rd)
        grad = tree.sub(grad_fn(local.z, batch), shift)
        return local._replace(z=tree.axpy(-rd.lr, grad, local.z))

    def push(self, client, down, local, rd):
        seen = 1 + 0 * client.seen  # in the dtype it had
        return Late(self._corrected(local, rd), local.z, seen), {"z": local.z}

    def update(self, server, total, rd):
        return Server(rd.mean(total["z"], of_nobody=server.x))

    def _corrected(self, local, rd):
        return tree.axpy(1 / (rd.lr * rd.local_steps), local.gap, local.h)


AS_PUBLISHED: dict[str, type[Algorithm]] = {
    "fedau": PublishedFedAU,
    "scaffold": PublishedScaffold,
    "mifa": PublishedMIFA,
    "scaffnew": PublishedScaffnew,
}
