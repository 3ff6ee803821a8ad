"""One round: participants side by side, or one after the other, and the server.

Large models on a CPU run one after the other. Pure functions of jax; compiled.py runs
them round by round and start.py for the warm start.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from focusfl.core import Algorithm, GradFn, Round, has_after_update
from focusfl.core import metrics as evaluation
from focusfl.core.tree import Tree
from focusfl.problems import Objective
from focusfl.simulation.client_round import batches_of, client_round, grad_fn
from focusfl.simulation.devices import Devices
from focusfl.simulation.layout import is_large

UNROLL = 8  # local steps per turn of the inner loop, at most: it costs microseconds


class StaticConfig(NamedTuple):
    """What a chunk is compiled for, beside shapes: its static argument. A value."""

    algorithm: Algorithm
    objective: Objective
    devices: Devices
    slots: tuple[int, ...]  # of each device
    local_steps: int
    record_models: bool
    eval_every: int  # rounds between evaluations
    skips: bool = False  # whether nobody may take part in one run and some in another
    total_weight: float | None = None  # of all clients; None: their number
    per_client: bool = False

    @property
    def everybody(self) -> float | int:
        """N, or the sum of all weights."""
        count = self.devices.num_clients
        return count if self.total_weight is None else self.total_weight

    def evaluate(self, x: Tree, eval_data: Tree) -> dict[str, Any]:
        """The metrics of a model."""
        return evaluation.evaluate(self.objective, self.per_client, x, eval_data)


class Theirs(NamedTuple):
    """What clients have from the beginning; leaves (clients, ...), or of one."""

    data: Tree
    weight: Any = None  # how much each counts; None: all alike


class Memory(NamedTuple):
    """What server and clients remember between two rounds."""

    server: Any
    clients: Any  # leaves (places, ...), in the coordinates each client works in
    steps: Int[Array, "places *runs"]  # noqa: F821  # gradients each has computed so far


class Cohort(NamedTuple):
    """Those who may take part in a round."""

    ids: Int[Array, " slots"]
    is_active: Bool[Array, " slots"]  # false: an empty slot
    rows: Int[Array, " slots"] | None  # where in the data each has its own; None: here
    clients: Any  # leaves (slots, ...)
    done: Int[Array, " slots"]  # gradients each has computed so far

    def own(self, theirs: Theirs) -> Theirs:
        """Data slot by slot."""
        return theirs if self.rows is None else take_rows(theirs, self.rows)


def run_round(
    static: StaticConfig,
    rd: Round,
    ids: Int[Array, " slots"],
    places: Int[Array, " slots"] | None,
    memory: Memory,
    theirs: Theirs,
    key: Any,
) -> tuple[Any, Any]:
    """One round of the clients named; ids of N and above are empty slots.

    With as many slots as clients, slot i is client i's. Gives the server and the
    participants' new memory, slot by slot. On several devices, N, ids and slots are
    those of the device.
    """
    server, clients, steps = memory
    everybody = len(ids) == clients_in(theirs)
    rows = None if everybody else ids
    if not everybody or places is not None:
        there = ids if places is None else places
        clients, steps = take_rows((clients, steps), there)
    who = static.devices.client_ids(ids)
    is_active = who < static.devices.num_clients
    cohort = Cohort(who, is_active, rows, clients, steps)
    mine, total = train_cohort(static, rd, cohort, theirs, key, server)
    server = static.algorithm.update(server, static.devices.total(total), rd)
    return server, after_update(static, rd, server, mine, cohort.own(theirs).data)


def train_cohort(
    static: StaticConfig,
    rd: Round,
    cohort: Cohort,
    theirs: Theirs,
    key: Any,
    server: Any,
) -> tuple[Any, Any]:
    """The new memory of clients after their steps, slot by slot, and the sum of what
    those who are there push, each by its weight."""
    if take_turns(server.x):
        return _train_in_turn(static, rd, cohort, theirs, key, server)
    one, own = _participant(static, rd, key, server), cohort.own(theirs)
    mine, ups = jax.vmap(one, axis_size=len(cohort.ids))(
        cohort.clients, own.data, cohort.ids, cohort.done
    )
    ups = jax.tree.map(lambda a: either(cohort.is_active, a, 0), ups)
    return mine, static.objective.sum_to_model(_weighed(own.weight, ups), own.data)


def _train_in_turn(
    static: StaticConfig,
    rd: Round,
    cohort: Cohort,
    theirs: Theirs,
    key: Any,
    server: Any,
) -> tuple[Any, Any]:
    """The same, one after the other: empty slots cost nothing, and there is no more
    than one message at a time."""
    participant = _participant(static, rd, key, server)

    def alone(i: Any, clients: Any) -> tuple[Any, Any]:
        own = take_rows(theirs, i if cohort.rows is None else cohort.rows[i])
        client, up = participant(take_rows(clients, i), own.data, cohort.ids[i], cohort.done[i])
        up = jax.tree.map(jnp.asarray, up)  # a number may be Python's own
        up = _weighed(own.weight, up)
        return client, sum_one_to_model(static.objective, up, own.data)

    def turn(k: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        (clients, total), i = carry, order[k]
        client, up = alone(i, clients)
        clients = jax.tree.map(lambda a, b: a.at[i].set(b), clients, client)
        return clients, jax.tree.map(jnp.add, total, up)

    order = jnp.argsort(~cohort.is_active)
    _, up = jax.eval_shape(alone, 0, cohort.clients)
    nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), up)
    return jax.lax.fori_loop(0, cohort.is_active.sum(), turn, (cohort.clients, nothing))


def _participant(static: StaticConfig, rd: Round, key: Any, server: Any) -> Any:
    """What one client does: (memory, data, id, steps done) -> (memory, message)."""
    algorithm, objective = static.algorithm, static.objective
    down = algorithm.broadcast(server)
    unroll, turns = _unroll(objective, server.x), take_turns(server.x)

    def participant(client, data, id, done):
        batch = batches_of(objective, key, id)

        def scan(step, local, numbers):
            def one(local, number):
                return step(local, batch(number)), None

            steps = static.local_steps
            return jax.lax.scan(one, local, numbers, steps, unroll=unroll)[0]

        here, gradient = (
            objective.to_local(down, data),
            _gradient(objective, data, turns),
        )
        numbers = None  # nothing is drawn by them
        if objective.stochastic:
            numbers = done + jnp.arange(static.local_steps)
        return client_round(algorithm, client, here, gradient, numbers, rd, scan)

    return participant


def _unroll(objective: Objective, x: Tree) -> int:
    """Local steps per turn of the inner loop; one where a turn costs nothing beside
    them: with a large model, or on a CPU where each of them draws a batch, in loops of
    its own that take seconds to compile eight times."""
    draws = objective.stochastic and jax.default_backend() == "cpu"
    return 1 if draws or is_large(x) else UNROLL


def take_turns(x: Tree) -> bool:
    """Whether clients work one by one: on a CPU a large model should stay in the cache,
    and its products are faster so."""
    return is_large(x) and jax.default_backend() == "cpu"


def _gradient(objective: Objective, data: Tree, turns: bool) -> GradFn:
    """One client's gradient; in turns, that of runs side by side one by one as well."""
    if not turns:
        return grad_fn(objective, data)
    alone = jax.custom_batching.sequential_vmap(objective.grad)
    return lambda x, batch: alone(x, data, batch)


def sum_one_to_model(objective: Objective, mine: Any, data: Tree) -> Any:
    """What one client has or sends, in the coordinates of the model."""
    return objective.sum_to_model(*jax.tree.map(lambda a: a[None], (mine, data)))


def after_update(static: StaticConfig, rd: Round, server: Any, mine: Any, data: Tree) -> Any:
    """Clients' memory, slot by slot, when they have heard what came of a round."""
    algorithm, objective = static.algorithm, static.objective
    if not has_after_update(algorithm):
        return mine
    answer = algorithm.broadcast(server)

    def one(client, data):
        return algorithm.after_update(client, objective.to_local(answer, data), rd)

    return jax.vmap(one, axis_size=clients_in(data))(mine, data)


def take_rows(table: Tree, rows: Int[Array, "*slots"]) -> Tree:
    """These rows of a table; for those beyond its end, the last."""
    return jax.tree.map(lambda a: a.at[rows].get(mode="clip"), table)


def clients_in(data: Tree) -> int:
    """Count those whose data this is."""
    return len(jax.tree.leaves(data)[0])


def _weighed(weight: Any, ups: Tree) -> Tree:
    """Messages times their senders' weights, in the dtype they had."""
    if weight is None:
        return ups

    def times(a):
        w = weight.reshape(*weight.shape, *[1] * (a.ndim - weight.ndim))
        return (w * a).astype(jnp.result_type(a, 1.0))

    return jax.tree.map(times, ups)


def either(active: Bool[Array, " slots"], a: Array, b: Array | int) -> Array:
    """The first for those who are there, the second for the others, slot by slot."""
    return jnp.where(active.reshape(-1, *[1] * (a.ndim - 1)), a, b)
