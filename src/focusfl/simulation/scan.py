"""The compiled program: a scan over one chunk of rounds, and the state before round 0.

A round picks the branch whose number of slots is just enough for its participants,
gathers their states and data, runs them (round.py), and scatters their states back: its
cost follows |S|, not N. `Carry.clients` may be a table of a chunk's participants alone
(client_state.py); the plan then says which place in it is whose.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from focusfl.core import Round, metrics, tree
from focusfl.core.tree import Tree
from focusfl.simulation.callbacks import Targets
from focusfl.simulation.devices import REPLICATED, SHARDED
from focusfl.simulation.divergence import sane
from focusfl.simulation.plan import NOBODY, PADDING, Plan
from focusfl.simulation.round import (
    Carry,
    ClientData,
    Cohort,
    Config,
    after_update,
    num_rows,
    run_round,
    take_rows,
    train,
    where,
)

# On a GPU, XLA would write kernels of its own for every product and try them out: that
# took twice as long to compile, and the CNN's rounds were 7 % faster for it.
COMPILER_OPTIONS = {"xla_gpu_enable_triton_gemm": False}
COPIED = 1 << 18  # numbers that are copied to the device rather than written there
AT_ONCE = 1 << 25  # numbers in the models of clients that start warm together

StepSize = Float[Array, "*rounds"]  # noqa: F821  # one for all rounds, or one for each
Ids = Any  # rows of clients on their device; past the last row: an empty slot

# How the state lies on several devices.
SPREAD: Any = Carry._make([REPLICATED, SHARDED, SHARDED, *[REPLICATED] * 3])


class Inputs(NamedTuple):
    """What a chunk reads beside its plan. Traced: other numbers, the same program."""

    lr: Any
    max_distance: Any  # past this a run has diverged
    rounds: Any  # the last of them is always evaluated
    targets: Targets
    clients: ClientData
    eval_data: Tree
    key: Any  # of all batches


class Log(NamedTuple):
    """What is kept of every round."""

    metrics: dict[str, Any]
    is_alive: Any  # False after the end: the run broke, or reached a target
    model: Tree | None


def _scan(
    config: Config, runs: tuple[str, ...], carry: Carry, inputs: Inputs, plan: Plan
) -> tuple[Carry, Log]:
    """Scan the rounds of a plan; `runs` names the axes of runs side by side."""
    branches = _branches(config, inputs)

    def one_round(carry: Carry, row: Plan) -> tuple[Carry, Log]:
        # A run that is done stays as it is; once all are, rounds cost nothing.
        going, anybody = _going(carry, runs)
        if anybody is not None:
            row = row._replace(branch=jnp.where(anybody, row.branch, NOBODY))
        # Branches read all clients' states and give back the participants': one that
        # wrote to the table would copy all of it, and a round would cost N again.
        server, states = jax.lax.switch(row.branch, branches, carry, row)
        if config.some_skip:
            server = _select(row.active > 0, server, carry.server)
        steps = jnp.int32(config.local_steps)
        everybody = config.slots == carry.gradients_done.shape[:1] and row.places is None
        if going is not None:
            before = carry.clients if everybody else take_rows(carry.clients, _places(row))
            server, states = _select(going, (server, states), (carry.server, before))
            steps = jnp.where(going, steps, 0)
        clients, done = _scatter(everybody, carry, row, states, steps)
        due = _due(config, inputs.rounds, row.round, anybody)
        values = _evaluate(config, server.x, inputs.eval_data, carry.metrics, due)
        is_alive = carry.is_alive & sane(values, inputs.max_distance)
        if config.eval_every > 1:  # a round without an evaluation can break, too
            is_alive &= _is_finite(server.x)
        server = _select(is_alive, server, carry.server)
        is_done = carry.is_done
        if is_done is not None:
            reached = inputs.targets.met(values)
            if row.budget_spent is not None:
                reached |= row.budget_spent
            is_done |= is_alive & reached
        log = Log(values, is_alive, server.x if config.record_models else None)
        if going is not None:
            log = log._replace(is_alive=is_alive & going)
        return Carry(server, clients, done, values, is_alive, is_done), log

    return jax.lax.scan(one_round, carry, plan)


def _branches(config: Config, inputs: Inputs) -> list[Any]:
    """Build the branches of `lax.switch`: the empty round, then one for each cohort size.

    Each is a function (carry, row) -> the server and the participants' states, padded to the
    largest cohort.
    """
    most = config.slots[-1]

    def nobody(carry: Carry, row: Plan) -> tuple[Any, Any]:
        return carry.server, jax.tree.map(lambda a: a[:most], carry.clients)

    def somebody(slots: int, carry: Carry, row: Plan) -> tuple[Any, Any]:
        # Scalars in the dtype of the model: an integer |S| would promote the state.
        active = row.active if row.weight is None else row.weight
        active = active.astype(inputs.lr.dtype)
        lr = inputs.lr[row.round] if inputs.lr.ndim else inputs.lr
        round_info = Round(row.round, lr, config.local_steps, config.num_clients, active)
        rows, places = jax.tree.map(lambda a: a[:slots], (row.ids, row.places))
        server, states = run_round(
            config, round_info, rows, places, carry, inputs.clients, inputs.key
        )
        return server, jax.tree.map(lambda a: _pad(a, most), states)

    return [nobody, *(partial(somebody, slots) for slots in config.slots)]


def _scatter(everybody: bool, carry: Carry, row: Plan, states: Any, steps: Any) -> tuple[Any, Any]:
    """Put the participants' states into the table, and count their gradients.

    Where slot i is client i's, nothing need be scattered, which is a loop to compile for
    every leaf.
    """
    if not everybody:
        places = _places(row)
        clients = jax.tree.map(
            lambda a, b: a.at[places].set(b, mode="drop", unique_indices=True),
            carry.clients,
            states,
        )
        return clients, carry.gradients_done.at[places].add(steps, mode="drop")
    is_active: Any = row.ids < len(carry.gradients_done)
    clients = jax.tree.map(partial(where, is_active), states, carry.clients)
    return clients, carry.gradients_done + jnp.where(is_active, steps, 0)


def _places(row: Plan) -> Any:
    return row.ids if row.places is None else row.places


def _going(carry: Carry, runs: tuple[str, ...]) -> tuple[Any, Any]:
    """Whether a run goes on, and whether any of those side by side does; None where no
    run can be done early."""
    if carry.is_done is None:
        return None, None
    going, anybody = ~carry.is_done, carry.is_alive & ~carry.is_done
    if runs:
        anybody = jax.lax.pmax(anybody.astype(jnp.int32), runs) > 0
    return going, anybody


def _due(config: Config, rounds: Any, index: Any, anybody: Any) -> Any:
    """Whether a round is evaluated: one in every so many, and the last. None: all are."""
    if config.eval_every == 1 and anybody is None:
        return None
    due = ((index + 1) % config.eval_every == 0) | (index + 1 == rounds)
    due &= index != PADDING
    return due if anybody is None else due & anybody


def _evaluate(
    config: Config, x: Tree, eval_data: Tree, last: dict[str, Any], due: Any
) -> dict[str, Any]:
    """Evaluate where it is due; else the last metrics stand."""
    if due is None:
        return config.evaluate(x, eval_data)
    return jax.lax.cond(due, lambda: config.evaluate(x, eval_data), lambda: last)


def _is_finite(x: Tree) -> Bool[Array, ""]:
    return jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(x)]).all()


def _select(condition: Any, a: Tree, b: Tree) -> Tree:
    """This one or that; jnp.where would be compiled as a function for each leaf."""
    return jax.tree.map(partial(jax.lax.select, condition), a, b)


def _pad(a: Array, slots: int) -> Array:
    if len(a) == slots:
        return a
    return jnp.pad(a, [(0, slots - len(a)), *[(0, 0)] * (a.ndim - 1)])


@partial(jax.jit, static_argnums=0, donate_argnums=1, compiler_options=COMPILER_OPTIONS)
def scan_rounds(config: Config, carry: Carry, inputs: Inputs, plan: Plan) -> tuple[Carry, Log]:
    """Run one chunk of rounds of one run."""
    return _on_devices(config, partial(_scan, config, ()), plan)(carry, inputs, plan)


@partial(jax.jit, static_argnums=0, donate_argnums=1, compiler_options=COMPILER_OPTIONS)
def scan_sweep(config: Config, carry: Carry, inputs: Inputs, plan: Plan) -> tuple[Carry, Log]:
    """Run one chunk of rounds at several learning rates, and for several seeds if the
    plan has an axis for them. In the carry both are the last axes: so a product with a
    client's matrix stays a product of matrices."""
    several_seeds = plan.active.ndim > 1
    shared: Any = Inputs._make([None] * len(Inputs._fields))
    plans: Any = Plan._make([None] * len(Plan._fields))
    one = jax.vmap(
        partial(_scan, config, ("lrs", "seeds") if several_seeds else ("lrs",)),
        in_axes=(-1, shared._replace(lr=0), None),
        out_axes=-1,
        axis_name="lrs",
    )
    if several_seeds:
        one = jax.vmap(
            one,
            in_axes=(
                -1,
                shared._replace(key=None if inputs.key is None else 0),
                plans._replace(active=0, ids=0, budget_spent=0, weight=0),
            ),
            out_axes=-1,
            axis_name="seeds",
        )
    return _on_devices(config, one, plan)(carry, inputs, plan)


def _on_devices(config: Config, one: Any, plan: Plan) -> Any:
    """Make a scan run on every device, on its own clients."""
    ids = jax.sharding.PartitionSpec(*[None] * (plan.ids.ndim - 1), *SHARDED)
    plans: Any = Plan._make([REPLICATED] * len(Plan._fields))._replace(ids=ids)  # type: ignore
    inputs: Any = Inputs._make([REPLICATED] * len(Inputs._fields))
    inputs = inputs._replace(clients=SHARDED)
    return config.devices.each(one, (SPREAD, inputs, plans), (SPREAD, REPLICATED))


# The metrics of one model, and those of each client: the same program for all algorithms.
evaluate = jax.jit(metrics.evaluate, static_argnums=(0, 1))
evaluate_clients = jax.jit(metrics.evaluate_clients, static_argnums=0)


def initial_carry(config: Config, x0: Tree, clients: ClientData) -> Carry:
    """Give the state before round 0, without a warm start.

    A few numbers are copied to the device sooner than a program that writes them there
    is compiled.
    """
    if config.devices.count == 1:
        carry = shapes(config, x0, clients)
        if tree.size(carry) <= COPIED:
            return jax.tree.map(jnp.array, carry)
    return compiled_carry(config, x0, clients)


@partial(jax.jit, static_argnums=0)
def compiled_carry(config: Config, x0: Tree, clients: ClientData) -> Carry:
    """The same, of any size, on any devices."""

    def on_each(x0, clients):
        return _fresh(config, x0, num_rows(clients))

    return config.devices.each(on_each, (REPLICATED, SHARDED), SPREAD)(x0, clients)


def shapes(config: Config, x0: Tree, clients: ClientData) -> Carry:
    """Give the shapes of the state on one device, without the memory for it."""
    if tree.size(x0) <= COPIED:
        return _fresh(config, x0, num_rows(clients), np)
    return jax.eval_shape(lambda x0: _fresh(config, x0, num_rows(clients)), x0)


def _fresh(config: Config, x0: Tree, clients: int, xp: Any = jnp) -> Carry:
    """Server and clients that have done nothing yet; numpy's rows share their memory.

    The algorithm is given jax's arrays in either case: anybody's may need them.
    """
    server, client = config.algorithm.init(x0)
    # A counter of an algorithm is a plain int; it takes the dtype of round numbers.
    client = jax.tree.map(lambda a: xp.int32(a) if isinstance(a, int) else a, client)
    states = jax.tree.map(lambda a: xp.broadcast_to(a, (clients, *xp.shape(a))), client)
    return Carry(server, states, xp.broadcast_to(xp.int32(0), clients))


def _warm_round(config: Config) -> Round:
    return Round(-1, 0.0, 1, config.num_clients, config.num_clients)


def evaluated(config: Config, carry: Carry, eval_data: Tree) -> tuple[Carry, Log]:
    """Evaluate x0, by a program that algorithms share; give the log's first entry too."""
    x = carry.server.x
    metrics = evaluate(config.objective, config.per_client, x, eval_data)
    metrics, is_alive = jax.tree.map(jnp.asarray, (metrics, True))
    first = Log(metrics, is_alive, x if config.record_models else None)
    # Copies: the first chunk takes the buffers of the carry for its own.
    return carry._replace(metrics=metrics, is_alive=is_alive), jax.tree.map(
        lambda a: np.array(a)[None], first
    )


def carry_on_device(config: Config, x0: Tree, clients: ClientData, key: Any) -> Carry:
    """Give all clients' state before round 0, after a warm start where there is one."""
    carry = initial_carry(config, x0, clients)
    if not config.algorithm.starts_warm:
        return carry
    table = (carry.clients, carry.gradients_done)

    def write(rows, states):
        nonlocal table
        is_whole = len(rows) == config.devices.clients_per_device
        table = states if is_whole else _put(config, table, rows, states)

    server = warm_up(config, x0, clients, key, write, lambda rows: _get(config, table, rows))
    return Carry(server, *table)


def warm_up(
    config: Config,
    x0: Tree,
    clients: ClientData,
    key: Any,
    write: Callable[[Ids, Any], None],
    read: Callable[[Ids], Any],
) -> Any:
    """Start all clients warm, some rows of every device at a time; give the server by then.

    `write` and `read` store and fetch (state, gradients done) of some rows. The sum of what
    clients push is that of the parts, one after the other.
    """
    at_once = min(config.devices.clients_per_device, max(1, AT_ONCE // tree.size(x0)))
    starts = range(0, config.devices.clients_per_device, at_once)
    parts = [np.arange(start, start + at_once) for start in starts]  # the last is padded
    total = None
    for rows in parts:
        states, message = _warm_part(config, x0, clients, key, rows)
        total = message if total is None else tree.add(total, message)
        write(rows, states)
    server = _warm_update(config, x0, total)
    if config.algorithm.has_after_update:
        for rows in parts:
            states, done = read(rows)
            write(rows, (_warm_after_update(config, server, states), done))
    return server


@partial(jax.jit, static_argnums=0)
def _warm_part(config: Config, x0: Tree, clients: ClientData, key: Any, rows: Ids) -> Any:
    """The states and gradients done of some rows, and the sum of what they push."""

    def on_each(x0, clients, key, rows):
        carry, ids = _fresh(config, x0, len(rows)), config.devices.client_ids(rows)
        is_active = ids < config.devices.num_clients
        cohort = Cohort(ids, is_active, rows, carry.clients, carry.gradients_done)
        states, total = train(config, _warm_round(config), cohort, clients, key, carry.server)
        return (states, carry.gradients_done + 1), config.devices.total(total)

    takes, gives = (REPLICATED, SHARDED, REPLICATED, REPLICATED), (SHARDED, REPLICATED)
    return config.devices.each(on_each, takes, gives)(x0, clients, key, rows)


@partial(jax.jit, static_argnums=0)
def _warm_update(config: Config, x0: Tree, total: Any) -> Any:
    return config.algorithm.update(_fresh(config, x0, 1).server, total, _warm_round(config))


@partial(jax.jit, static_argnums=0)
def _warm_after_update(config: Config, server: Any, states: Any) -> Any:
    return after_update(config, _warm_round(config), server, states)


@partial(jax.jit, static_argnums=0)
def _get(config: Config, table: Tree, rows: Ids) -> Tree:
    return config.devices.each(take_rows, (SHARDED, REPLICATED), SHARDED)(table, rows)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _put(config: Config, table: Tree, rows: Ids, states: Tree) -> Tree:
    def on_each(table, rows, states):
        return jax.tree.map(lambda a, b: a.at[rows].set(b, mode="drop"), table, states)

    return config.devices.each(on_each, (SHARDED, REPLICATED, SHARDED), SHARDED)(
        table, rows, states
    )


@partial(jax.jit, static_argnums=0)
def side_by_side(rates: int, seeds: list[Any]) -> Any:
    """Stack runs, one for each seed: first at several step sizes, then for all seeds."""

    def together(*leaves):
        rows = [jnp.broadcast_to(a[..., None], (*a.shape, rates)) for a in leaves]
        return jnp.stack(rows, -1) if len(rows) > 1 else rows[0]

    return jax.tree.map(together, *seeds)
