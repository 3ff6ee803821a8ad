"""The contract between algorithms and engines. Imports no array library."""

import abc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from focusfl.core import tree
from focusfl.core.tree import Tree

Message = dict[str, Any]  # what travels: named trees
Server = Any  # NamedTuple of trees with a field `x`, the model
Client = Any  # NamedTuple of trees that a client keeps between rounds
Local = Any  # NamedTuple of trees that live for one round on one client
GradFn = Callable[[Tree, Any], Tree]  # (model, batch) -> gradient

# The three of one algorithm: an editor completes the fields of its own.
S = TypeVar("S")  # Server
C = TypeVar("C")  # Client
L = TypeVar("L")  # Local


class Batch(NamedTuple):
    """Which of its gradients a client is about to compute: its own random stream, and
    how many it has computed before, over all rounds it took part in."""

    key: Any
    number: Any


class Round(NamedTuple):
    """What server and clients both know about one round. Scalars only."""

    index: Any
    lr: Any
    local_steps: Any
    num_clients: Any  # N
    num_active: Any  # |S_r|

    def mean(self, total: Tree, of_nobody: Tree = None) -> Tree:
        """Turn a sum over the participants into their mean; of nobody, zero or this."""
        nobody = self.num_active == 0
        mean = tree.scale(1 / (self.num_active + nobody), total)
        return mean if of_nobody is None else tree.axpy(1 * nobody, of_nobody, mean)


class CannotForget(ValueError):
    """What a client has contributed cannot be taken back from the server's state."""


@dataclass(frozen=True)
class Algorithm(abc.ABC, Generic[S, C, L]):
    """A federated algorithm: pure functions over trees, and its constants as fields.

    An engine runs one round as

        down = algorithm.broadcast(server)                       # on the server
        for each participant:                                    # on the client
            local = algorithm.pull(client, down)
            for batch in batches:
                local = algorithm.step(local, grad_fn, batch, rd)
            client, up = algorithm.push(client, down, local, rd)
        server = algorithm.update(server, sum of up, rd)         # on the server
        for each participant:
            client = algorithm.after_update(client, algorithm.broadcast(server), rd)

    Messages are dicts of trees. The states of server and client, and what lives for one round on a
    client, are NamedTuples of trees. A worked example: average what the participants moved to.

    >>> class State(NamedTuple):
    ...     x: Any
    >>> class Toy(Algorithm):
    ...     def init(self, params): return State(params), State({})  # a client keeps nothing
    ...     def pull(self, client, down): return State(down["x"])
    ...     def step(self, local, grad_fn, batch, rd):
    ...         return State(tree.axpy(-rd.lr, grad_fn(local.x, batch), local.x))
    ...     def push(self, client, down, local, rd):
    ...         return client, {"dx": tree.sub(local.x, down["x"])}
    ...     def update(self, server, total, rd):
    ...         return State(tree.add(server.x, rd.mean(total["dx"])))

    One round of two clients that hold (x - 0)^2 / 2 and (x - 2)^2 / 2, from x = 5:

    >>> toy, rd = Toy(), Round(index=0, lr=0.5, local_steps=1, num_clients=2, num_active=2)
    >>> server, client = toy.init(5.0)
    >>> down, total = toy.broadcast(server), 0.0
    >>> for target in (0.0, 2.0):
    ...     local = toy.step(toy.pull(client, down), lambda x, batch: x - target, None, rd)
    ...     client, up = toy.push(client, down, local, rd)
    ...     total += up["dx"]
    >>> toy.update(server, {"dx": total}, rd)
    State(x=3.0)

    Why sums: the server gets no more than the sum of the pushes, so that they can be added up on
    the way, in any order, or under encryption. An algorithm that wants a mean divides in `update`.

    Why linear combinations: on clients trees are combined linearly, by factors that may be inner
    products (`tree.dot`). A run then does not depend on the model's coordinates, which a test
    checks by turning them. An algorithm that works entry by entry on clients says `elementwise`.

    An algorithm that `starts_warm` gets one round before round 0 in which everybody takes one step
    and `lr` is 0: clients fill their memory, x stays put.
    """

    @abc.abstractmethod
    def init(self, params: Tree) -> tuple[S, C]:
        """Make the server's state and one client's, from the model to start from."""

    def broadcast(self, server: S) -> Message:
        """Give what the server sends to every participant; by default its model `x`."""
        return {"x": server.x}  # type: ignore[attr-defined]

    @abc.abstractmethod
    def pull(self, client: C, down: Message) -> L:
        """Begin a round on a client, from its state and the server's message."""

    @abc.abstractmethod
    def step(self, local: L, grad_fn: GradFn, batch: Any, rd: Round) -> L:
        """Take one local step; `grad_fn(model, batch)` is the only way to the data."""

    @abc.abstractmethod
    def push(self, client: C, down: Message, local: L, rd: Round) -> tuple[C, Message]:
        """End the local steps: give the client's new state and its message up."""

    @abc.abstractmethod
    def update(self, server: S, total: Message, rd: Round) -> S:
        """End the round on the server, from the sum of the participants' messages."""

    def after_update(self, client: C, down: Message, rd: Round) -> C:
        """Give a participant's state after the server's answer; by default unchanged."""
        del down, rd
        return client

    def max_exact_lr(self, L: float, local_steps: int) -> float:
        """Bound the step sizes at which a run can rest only where the gradient of F vanishes.

        0 if there is no such step, which means a bias; infinity if any will do. Claim no more than
        can be derived.

        Args:
            L: the smoothness that every f_i has.
            local_steps: gradients per participant and round. Everybody takes part now and then.
        """
        del L, local_steps
        return 0.0

    @property
    def starts_warm(self) -> bool:
        """Whether everybody contributes a gradient before round 0."""
        return False

    @property
    def cost(self) -> tuple[int | float, int | float]:
        """Vectors of the model's size that a participant receives and sends."""
        return 1, 1

    def traffic(self, params: Tree) -> tuple[int | float, int | float]:
        """The same by bytes, for such a model: fewer than `cost` if they are coded."""
        del params
        return self.cost

    # What a deployment must know. The defaults are safe for any algorithm: a reply
    # must be computed from the current model, and a client's state travels with it.

    @property
    def accepts_stale_model(self) -> bool:
        """Whether a push may count though the model has moved since it was computed.

        False if `update` infers what a client did from the server's own state.
        """
        return False

    @property
    def sends_state(self) -> bool:
        """Whether a client's new state must travel with its push.

        False if `state_after` derives it from the old state and the push.
        """
        return True

    def state_after(self, client: C, up: Message, down: Message, rd: Round) -> C:
        """Derive a client's state after a push that counted, before `after_update`.

        The server calls this to keep every client's state. A client that has lost its
        own state continues from the one derived here, so the two may differ, but the
        server's sums must be those of the derived states.

        Args:
            client: the state before the push.
            up: the push, as the server received it.
            down: the broadcast it was computed from; the current one if the algorithm
                does not accept a stale model.
            rd: the round it was computed in; `num_active` is unknown.
        """
        raise NotImplementedError(f"{self!r} sends its clients' states.")

    @property
    def has_after_update(self) -> bool:
        """Whether `after_update` may change a client's state."""
        return type(self).after_update is not Algorithm.after_update

    @property
    def tracks_mean(self) -> bool:
        """Whether the server's fields hold the mean over clients; else the sum."""
        return False

    def tracked(self, server: S, client: C) -> dict[str, Tree]:
        """What the server's state holds of one client, by field of the server.

        The field is the weighted sum of these over all clients, or their mean if
        `tracks_mean`. Empty if the server keeps nothing of a client.

        Raises:
            CannotForget: If a client's contribution cannot be told from its state.
        """
        del server, client
        raise CannotForget(f"{self!r} does not say what its server holds of a client.")

    def forget(self, server: S, client: C, weight: Any, num_clients: Any) -> S:
        """Take a client's contribution out of the server's state, so that it can leave.

        Args:
            server: the server's state.
            client: the state of the client that leaves.
            weight: its weight; 1 if all are alike. A negative weight lets it join.
            num_clients: the sum of all weights before it leaves, its own among them.

        Raises:
            CannotForget: If a client's contribution cannot be told from its state.
        """
        parts = self.tracked(server, client)
        fields = {
            name: tree.axpy(-weight, part, getattr(server, name))
            if not self.tracks_mean
            # The mean over N becomes the mean over those who remain.
            else tree.map(
                lambda all, own: (num_clients * all - weight * own)
                / (num_clients - weight),
                getattr(server, name), part,
            )
            for name, part in parts.items()
        }  # fmt: skip
        return server._replace(**fields) if fields else server  # type: ignore[attr-defined]

    def recompute(self, server: S, clients: Iterable[tuple[Any, C]]) -> S:
        """Compute what the server tracks anew from all clients' states.

        Args:
            server: the server's state; other fields stay as they are.
            clients: weight and state of every client.

        Raises:
            CannotForget: If a client's contribution cannot be told from its state.
        """
        total: dict[str, Tree] | None = None
        num_clients = 0
        for weight, client in clients:
            part = tree.scale(weight, self.tracked(server, client))
            total = part if total is None else tree.add(total, part)
            num_clients += weight
        if not total:
            return server
        if self.tracks_mean:
            total = tree.scale(1 / num_clients, total)
        return server._replace(**total)  # type: ignore[attr-defined]

    @property
    def uses_stale_model(self) -> bool:
        """Whether a client works on the model it was sent the last time it was there,
        as in an asynchronous run; else on the newest."""
        return False

    @property
    def elementwise(self) -> bool:
        """Whether clients work entry by entry, so that a run depends on the coordinates."""
        return False


def gradient_sum(server: Any) -> Tree | None:
    """Give what a server takes the gradients of all clients to sum to at x.

    FOCUS and the like declare it as the property `gradient_sum` of their server's state; None
    for all others. Where it is 0 the server stands still.
    """
    return getattr(server, "gradient_sum", None)
