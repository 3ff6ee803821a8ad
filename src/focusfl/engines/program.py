"""The compiled part of the simulator: chunks of rounds, and one round of them.

A round picks the branch whose number of slots is just enough for its participants,
gathers their memory and data, runs them side by side, and scatters their memory back:
its cost follows |S|, not N. Large models on a CPU run one after the other instead. The
memory may be a table of a chunk's participants alone (table.py); the plan then says
which place in it is whose.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from focusfl.core import Algorithm, Round
from focusfl.engines.devices import OWN, SAME, Devices
from focusfl.engines.plan import PADDING, Plan
from focusfl.engines.run import Record, grad_fn, next_batch, sane
from focusfl.problems import Objective
from focusfl.problems.loss import LARGE, size, take_turns
from focusfl.tree import Tree

# On a GPU, XLA would write kernels of its own for every product and try them out: that
# took twice as long to compile, and the CNN's rounds were 7 % faster for it.
OPTIONS = {"xla_gpu_enable_triton_gemm": False}
UNROLL = 8  # local steps per turn of the inner loop, which costs some microseconds

Scalar = Float[Array, ""]


class Program(NamedTuple):
    """What a compilation depends on, beside shapes. A value."""

    algorithm: Algorithm
    objective: Objective
    devices: Devices
    slots: tuple[int, ...]  # of each device
    local_steps: int
    record: Record
    every: int  # rounds between evaluations
    skips: bool = False  # whether nobody may take part in one run and some in another


class State(NamedTuple):
    server: Any
    clients: Any  # leaves (places, ...), in the coordinates each client works in
    steps: Int[Array, "places *runs"]  # noqa: F821  # gradients each has computed so far
    metrics: dict[str, Any]  # of the last evaluation
    alive: Bool[Array, "*runs"]  # false from the round on that broke the run


class Slots(NamedTuple):
    """Those who may take part in a round."""

    ids: Int[Array, " slots"]
    there: Bool[Array, " slots"]  # false: an empty slot
    rows: Int[Array, " slots"] | None  # where in the data each has its own; None: here
    clients: Any  # leaves (slots, ...)
    done: Int[Array, " slots"]  # gradients each has computed so far

    def own(self, data: Tree) -> Tree:
        """Data slot by slot."""
        return data if self.rows is None else at(data, self.rows)


SPREAD = State._make([SAME, OWN, OWN, SAME, SAME])  # over several devices


class Log(NamedTuple):
    """What is kept of every round."""

    metrics: dict[str, Any]
    alive: Any
    model: Tree | None


def _chunk(
    program: Program,
    state: State,
    lr: Scalar,
    limit: Scalar,
    data: Tree,
    held: Tree,
    key: Any,
    plan: Plan,
) -> tuple[State, Log]:
    algorithm, num_clients = program.algorithm, program.devices.num_clients

    def about(row: Plan) -> Round:
        # Scalars in the dtype of the model: an integer |S| would promote the state.
        active = row.active.astype(lr.dtype)
        return Round(row.round, lr, program.local_steps, num_clients, active)

    def places(row: Plan) -> Any:
        return row.ids if row.places is None else row.places

    def nobody(server, clients, steps, row):
        return server, jax.tree.map(lambda a: a[: program.slots[-1]], clients)

    def somebody(slots, server, clients, steps, row):
        ids, own = jax.tree.map(lambda a: a[:slots], (row.ids, row.places))
        server, mine = play(
            program, about(row), ids, own, data, key, server, clients, steps
        )
        return server, jax.tree.map(lambda a: _pad(a, program.slots[-1]), mine)

    branches: list[Any] = [
        nobody,
        *(partial(somebody, slots) for slots in program.slots),
    ]

    def one(state: State, row: Plan) -> tuple[State, Log]:
        # Branches read the memory of clients and give back that of participants: one
        # that wrote to it would copy all of it, and a round would cost N again.
        server, mine = jax.lax.switch(
            row.branch, branches, state.server, state.clients, state.steps, row
        )
        if program.skips:
            server = jax.tree.map(
                partial(jnp.where, row.active > 0), server, state.server
            )
        clients = _idle(algorithm, state.clients, about(row), row.round != PADDING)
        clients = jax.tree.map(
            lambda a, b: a.at[places(row)].set(b, mode="drop", unique_indices=True),
            clients,
            mine,
        )
        metrics = _evaluate(program, server.x, held, state.metrics, row.round)
        alive = state.alive & sane(metrics, limit)
        if program.every > 1:  # what is not evaluated is looked at all the same
            alive &= _finite(server.x)
        server = jax.tree.map(partial(jnp.where, alive), server, state.server)
        steps = state.steps.at[places(row)].add(program.local_steps, mode="drop")
        state = State(server, clients, steps, metrics, alive)
        return state, log(program, state)

    return jax.lax.scan(one, state, plan)


@partial(jax.jit, static_argnums=0, donate_argnums=1, compiler_options=OPTIONS)
def chunk(program, state, lr, limit, data, held, key, plan):
    """Run one chunk of rounds."""
    one = _on_devices(program, partial(_chunk, program), plan)
    return one(state, lr, limit, data, held, key, plan)


@partial(jax.jit, static_argnums=0, donate_argnums=1, compiler_options=OPTIONS)
def chunks(program, state, lrs, limit, data, held, key, plan):
    """Run one chunk of rounds at several learning rates, and for several seeds if the
    plan has an axis for them; both are the last axes.

    Last, so that a product with a client's matrix stays a product of matrices.
    """
    one = jax.vmap(partial(_chunk, program), in_axes=(-1, 0, *[None] * 5), out_axes=-1)
    if plan.active.ndim > 1:
        each = Plan._make([None, None, 0, 0, None])
        keyed = None if key is None else 0
        one = jax.vmap(
            one, in_axes=(-1, None, None, None, None, keyed, each), out_axes=-1
        )
    one = _on_devices(program, one, plan)
    return one(state, lrs, limit, data, held, key, plan)


def _on_devices(program: Program, one: Any, plan: Plan) -> Any:
    ids = jax.sharding.PartitionSpec(*[None] * (plan.ids.ndim - 1), *OWN)
    cut = Plan._make([SAME, SAME, SAME, ids, SAME])
    takes = SPREAD, SAME, SAME, OWN, SAME, SAME, cut
    return program.devices.each(one, takes, (SPREAD, SAME))


def play(
    program: Program,
    rd: Round,
    ids: Int[Array, " slots"],
    places: Int[Array, " slots"] | None,
    data: Tree,
    key: Any,
    server: Any,
    clients: Any,
    steps: Int[Array, " places"],
) -> tuple[Any, Any]:
    """One round of the clients named; ids of N and above are empty slots.

    With as many slots as clients, slot i is client i's. Gives the server and the
    participants' new memory, slot by slot. On several devices, N, ids and slots are
    those of the device.
    """
    everybody, own = len(ids) == clients_in(data), ids if places is None else places
    rows = None if everybody else ids
    if not everybody or places is not None:
        clients = at(clients, own)
    who = program.devices.names(ids)
    there = who < program.devices.num_clients
    slots = Slots(who, there, rows, clients, at(steps, own))
    mine, total = push(program, rd, slots, data, key, server)
    server = program.algorithm.update(server, program.devices.total(total), rd)
    return server, settle(program, rd, server, mine, slots.own(data))


def push(
    program: Program, rd: Round, slots: Slots, data: Tree, key: Any, server: Any
) -> tuple[Any, Any]:
    """The new memory of clients after their steps, slot by slot, and the sum of what
    those who are there push."""
    if take_turns(server.x):
        return _push_in_turn(program, rd, slots, data, key, server)
    one, theirs = _participant(program, rd, key, server), slots.own(data)
    mine, ups = jax.vmap(one, axis_size=len(slots.ids))(
        slots.clients, theirs, slots.ids, slots.done
    )
    ups = jax.tree.map(partial(_or_zero, slots.there), ups)
    return mine, program.objective.collect(ups, theirs)


def _push_in_turn(
    program: Program, rd: Round, slots: Slots, data: Tree, key: Any, server: Any
) -> tuple[Any, Any]:
    """The same, one after the other: empty slots cost nothing, and no more than one
    message is held."""
    participant = _participant(program, rd, key, server)

    def alone(i: Any, clients: Any) -> tuple[Any, Any]:
        own = at(data, i if slots.rows is None else slots.rows[i])
        client, up = participant(at(clients, i), own, slots.ids[i], slots.done[i])
        return client, collect_one(program, up, own)

    def turn(k: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        (clients, total), i = carry, order[k]
        client, up = alone(i, clients)
        clients = jax.tree.map(lambda a, b: a.at[i].set(b), clients, client)
        return clients, jax.tree.map(jnp.add, total, up)

    order = jnp.argsort(~slots.there)
    _, up = jax.eval_shape(alone, 0, slots.clients)
    nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), up)
    return jax.lax.fori_loop(0, slots.there.sum(), turn, (slots.clients, nothing))


def _participant(program: Program, rd: Round, key: Any, server: Any) -> Any:
    """What one client does: (memory, data, id, steps done) -> (memory, message)."""
    algorithm, objective = program.algorithm, program.objective
    down = algorithm.broadcast(server)
    unroll = UNROLL if size(server.x) <= LARGE else 1

    def participant(client, data, id, done):
        gradient = grad_fn(objective, data)

        def step(local, number):
            batch = next_batch(objective, key, id, number)
            return algorithm.step(local, gradient, batch, rd), None

        here = objective.enter(down, data)
        local = algorithm.pull(client, here)
        numbers = done + jnp.arange(program.local_steps)
        local, _ = jax.lax.scan(step, local, numbers, unroll=unroll)
        return algorithm.push(client, here, local, rd)

    return participant


def collect_one(program: Program, mine: Any, data: Tree) -> Any:
    """What one client has or sends, in the coordinates of the model."""
    return program.objective.collect(*jax.tree.map(lambda a: a[None], (mine, data)))


def settle(program: Program, rd: Round, server: Any, mine: Any, data: Tree) -> Any:
    algorithm, objective = program.algorithm, program.objective
    answer = algorithm.broadcast(server)

    def one(client, data):
        return algorithm.settle(client, objective.enter(answer, data), rd)

    return jax.vmap(one, axis_size=clients_in(data))(mine, data)


def _idle(algorithm: Algorithm, clients: Any, rd: Round, real: Any) -> Any:
    """Let everybody idle, unless the row is padding; participants are put over it."""
    if type(algorithm).idle is Algorithm.idle:
        return clients
    idle = jax.vmap(lambda client: algorithm.idle(client, rd))(clients)
    return jax.tree.map(partial(jnp.where, real), idle, clients)


def log(program: Program, state: State) -> Log:
    """What is kept of a round that ends like this."""
    model = state.server.x if program.record == "model" else None
    return Log(state.metrics, state.alive, model)


def _evaluate(
    program: Program, x: Tree, held: Tree, last: dict[str, Any], index: Any
) -> dict[str, Any]:
    """Evaluate in every so many rounds; in between the last metrics stand."""
    if program.every == 1:
        return program.objective.evaluate(x, held)
    due = ((index + 1) % program.every == 0) & (index != PADDING)
    return jax.lax.cond(due, lambda: program.objective.evaluate(x, held), lambda: last)


def _finite(x: Tree) -> Bool[Array, ""]:
    return jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(x)]).all()


def at(table: Tree, rows: Int[Array, "*slots"]) -> Tree:
    """These rows of a table; for those beyond its end, the last."""
    return jax.tree.map(lambda a: a.at[rows].get(mode="clip"), table)


def clients_in(data: Tree) -> int:
    """Count those whose data this is."""
    return len(jax.tree.leaves(data)[0])


def _or_zero(active: Bool[Array, " slots"], a: Array) -> Array:
    return jnp.where(active.reshape(-1, *[1] * (a.ndim - 1)), a, 0)


def _pad(a: Array, slots: int) -> Array:
    return jnp.pad(a, [(0, slots - len(a)), *[(0, 0)] * (a.ndim - 1)])
