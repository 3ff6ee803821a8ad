"""One compiled round: the participants side by side or in turn, then the server.

Pure functions of jax. `scan.py` runs them round by round, and once for the warm start.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from focusfl.core import Algorithm, GradFn, Round, metrics
from focusfl.core.tree import Tree
from focusfl.problems import Objective
from focusfl.simulation.client_round import batches_of, client_round, grad_fn
from focusfl.simulation.devices import Devices
from focusfl.simulation.plan import is_large

UNROLL = 8  # local steps per turn of the inner loop: each turn costs microseconds


class Config(NamedTuple):
    """What the program is compiled for, beside shapes. Hashable: jit's static argument."""

    algorithm: Algorithm
    objective: Objective
    devices: Devices
    slots: tuple[int, ...]  # of each device: the sizes of cohorts there are branches for
    local_steps: int
    record_models: bool
    eval_every: int  # rounds between evaluations
    # In a sweep over seeds, whether a round can be empty for some seeds only.
    some_skip: bool = False
    total_weight: float | None = None  # of all clients; None: their number
    per_client: bool = False

    @property
    def num_clients(self) -> float | int:
        """N as algorithms know it: the sum of all weights."""
        count = self.devices.num_clients
        return count if self.total_weight is None else self.total_weight

    def evaluate(self, x: Tree, eval_data: Tree) -> dict[str, Any]:
        """Evaluate a model."""
        return metrics.evaluate(self.objective, self.per_client, x, eval_data)


class ClientData(NamedTuple):
    """What clients have from the beginning; leaves (clients, ...), or of one client."""

    data: Tree
    weight: Any = None  # how much each counts; None: all alike


class Carry(NamedTuple):
    """State that one round hands to the next."""

    server: Any
    clients: Any  # leaves (places, ...): of all clients, or of a chunk's participants
    # Gradients that each client has computed: its position in its stream of batches.
    gradients_done: Int[Array, "places *runs"]  # noqa: F821
    metrics: Any = None  # of the last evaluation, by name
    is_alive: Any = None  # (*runs): False from the round on that broke the run
    is_done: Any = None  # (*runs): whether a target is reached; None: there is none


class Cohort(NamedTuple):
    """The clients in the slots of one round."""

    client_ids: Int[Array, " slots"]
    is_active: Bool[Array, " slots"]  # False: an empty slot
    data_rows: Int[Array, " slots"] | None  # of each client's data; None: slot i is row i
    states: Any  # leaves (slots, ...)
    gradients_done: Int[Array, " slots"]


def run_round(
    config: Config,
    round_info: Round,
    rows: Int[Array, " slots"],
    places: Int[Array, " slots"] | None,
    carry: Carry,
    clients: ClientData,
    key: Any,
) -> tuple[Any, Any]:
    """Run one round; give the server's state and the participants', slot by slot.

    With as many slots as clients, slot i is client i's and nothing is gathered.

    Args:
        rows: of the clients in their device's data; past the last row: an empty slot.
        places: of their states in `carry.clients`; None: the same as `rows`.
        key: of all batches.
    """
    everybody = len(rows) == num_rows(clients)
    states, done = carry.clients, carry.gradients_done
    if not everybody or places is not None:
        states, done = take_rows((states, done), rows if places is None else places)
    client_ids = config.devices.client_ids(rows)
    is_active = client_ids < config.devices.num_clients
    cohort = Cohort(client_ids, is_active, None if everybody else rows, states, done)
    states, total = train(config, round_info, cohort, clients, key, carry.server)
    # The engine always sums; an algorithm that wants a mean divides in `update`.
    server = config.algorithm.update(carry.server, config.devices.total(total), round_info)
    return server, after_update(config, round_info, server, states)


def train(
    config: Config, round_info: Round, cohort: Cohort, clients: ClientData, key: Any, server: Any
) -> tuple[Any, Any]:
    """Let the participants work; give their new states, slot by slot, and the sum of
    their messages, each times its client's weight."""
    if take_turns(server.x):
        return _train_in_turn(config, round_info, cohort, clients, key, server)
    cohort_clients = clients if cohort.data_rows is None else take_rows(clients, cohort.data_rows)
    participant = _participant(config, round_info, key, server)
    states, messages = jax.vmap(participant, axis_size=len(cohort.client_ids))(
        cohort.states, cohort_clients.data, cohort.client_ids, cohort.gradients_done
    )
    messages = jax.tree.map(lambda leaf: where(cohort.is_active, leaf, 0), messages)
    return states, jax.tree.map(lambda leaf: leaf.sum(0), _times(cohort_clients.weight, messages))


def _train_in_turn(
    config: Config, round_info: Round, cohort: Cohort, clients: ClientData, key: Any, server: Any
) -> tuple[Any, Any]:
    """The same, one client after the other: empty slots cost nothing, and there is never
    more than one message."""
    participant = _participant(config, round_info, key, server)

    def alone(slot: Any, states: Any) -> tuple[Any, Any]:
        row = slot if cohort.data_rows is None else cohort.data_rows[slot]
        client, state = take_rows(clients, row), take_rows(states, slot)
        state, message = participant(
            state, client.data, cohort.client_ids[slot], cohort.gradients_done[slot]
        )
        # A number in a message may be Python's own.
        return state, _times(client.weight, jax.tree.map(jnp.asarray, message))

    def turn(k: Any, sums: tuple[Any, Any]) -> tuple[Any, Any]:
        (states, total), slot = sums, order[k]
        state, message = alone(slot, states)
        states = jax.tree.map(lambda all_, new: all_.at[slot].set(new), states, state)
        return states, jax.tree.map(jnp.add, total, message)

    order = jnp.argsort(~cohort.is_active)
    _, message = jax.eval_shape(alone, 0, cohort.states)
    nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), message)
    return jax.lax.fori_loop(0, cohort.is_active.sum(), turn, (cohort.states, nothing))


def _participant(config: Config, round_info: Round, key: Any, server: Any) -> Any:
    """Make what one client does: (state, data, id, gradients done) -> (state, message)."""
    algorithm, objective = config.algorithm, config.objective
    message = algorithm.broadcast(server)
    unroll, in_turn = _unroll(objective, server.x), take_turns(server.x)

    def participant(state, data, client_id, done):
        batch = batches_of(objective, key, client_id)

        def scan(step, local, numbers):
            def one(local, number):
                return step(local, batch(number)), None

            return jax.lax.scan(one, local, numbers, config.local_steps, unroll=unroll)[0]

        # Where nothing is drawn, steps need no numbers.
        numbers = done + jnp.arange(config.local_steps) if objective.stochastic else None
        gradient = _gradient(objective, data, in_turn)
        return client_round(algorithm, state, message, gradient, numbers, round_info, scan)

    return participant


def _unroll(objective: Objective, x: Tree) -> int:
    """Local steps per turn of the inner loop: 1 where a turn costs nothing beside them.

    That is with a large model, and on a CPU where each step draws a batch, in loops of
    its own that take seconds to compile eight times.
    """
    draws = objective.stochastic and jax.default_backend() == "cpu"
    return 1 if draws or is_large(x) else UNROLL


def take_turns(x: Tree) -> bool:
    """Whether clients work one by one: on a CPU a large model should stay in the cache,
    and its products are faster so."""
    return is_large(x) and jax.default_backend() == "cpu"


def _gradient(objective: Objective, data: Tree, in_turn: bool) -> GradFn:
    """One client's gradient; in turns, runs side by side compute it one by one as well."""
    if not in_turn:
        return grad_fn(objective, data)
    alone = jax.custom_batching.sequential_vmap(objective.grad)
    return lambda x, batch: alone(x, data, batch)


def after_update(config: Config, round_info: Round, server: Any, states: Any) -> Any:
    """Let participants take the server's answer; give their states, slot by slot."""
    algorithm = config.algorithm
    if not algorithm.has_after_update:
        return states
    answer = algorithm.broadcast(server)
    return jax.vmap(lambda state: algorithm.after_update(state, answer, round_info))(states)


def take_rows(table: Tree, rows: Int[Array, "*slots"]) -> Tree:
    """Take rows of a table; for those beyond its end, the last."""
    return jax.tree.map(lambda a: a.at[rows].get(mode="clip"), table)


def num_rows(table: Tree) -> int:
    """Count the clients whose data or states these are."""
    return len(jax.tree.leaves(table)[0])


def where(condition: Bool[Array, " slots"], a: Array, b: Array | int) -> Array:
    """`jnp.where` with the condition along the first axis."""
    return jnp.where(condition.reshape(-1, *[1] * (a.ndim - 1)), a, b)


def _times(weight: Any, messages: Tree) -> Tree:
    """Multiply messages by their senders' weights, in the dtype they have."""
    if weight is None:
        return messages

    def times(a):
        w = weight.reshape(*weight.shape, *[1] * (a.ndim - weight.ndim))
        return (w * a).astype(jnp.result_type(a, 1.0))

    return jax.tree.map(times, messages)
