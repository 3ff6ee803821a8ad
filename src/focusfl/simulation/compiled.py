"""The compiled part of the simulator: chunks of rounds.

A round picks the branch whose number of slots is just enough for its participants,
gathers their memory and data, runs them (cohort.py), and scatters their memory back:
its cost follows |S|, not N. The memory may be a table of a chunk's participants alone
(cache.py); the plan then says which place in it is whose.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from focusfl.core import Round
from focusfl.core import metrics as evaluation
from focusfl.core.tree import Tree
from focusfl.simulation.cohort import (
    Memory,
    StaticConfig,
    either,
    run_round,
    take_rows,
)
from focusfl.simulation.devices import REPLICATED, SHARDED
from focusfl.simulation.divergence import sane
from focusfl.simulation.layout import NOBODY, PADDING, Plan
from focusfl.simulation.stop import Targets

# On a GPU, XLA would write kernels of its own for every product and try them out: that
# took twice as long to compile, and the CNN's rounds were 7 % faster for it.
OPTIONS = {"xla_gpu_enable_triton_gemm": False}

StepSize = Float[Array, "*rounds"]  # noqa: F821  # one for all, or one for each


class State(NamedTuple):
    server: Any
    clients: Any  # leaves (places, ...), in the coordinates each client works in
    steps: Int[Array, "places *runs"]  # noqa: F821  # gradients each has computed so far
    metrics: dict[str, Any]  # of the last evaluation
    alive: Bool[Array, "*runs"]  # false from the round on that broke the run
    met: Bool[Array, "*runs"] | None = None  # whether it has done enough; None: no stop


class Bounds(NamedTuple):
    """What ends a run. Traced: other numbers need no other compilation."""

    distance: Any  # past this it has diverged
    rounds: Any  # the last of which is always evaluated
    targets: Targets = Targets({}, {})


SPREAD = State._make(
    [REPLICATED, SHARDED, SHARDED, REPLICATED, REPLICATED, REPLICATED]
)  # over several devices


class Log(NamedTuple):
    """What is kept of every round."""

    metrics: dict[str, Any]
    alive: Any  # false for what comes after the end: it broke, or has done enough
    model: Tree | None


class Inputs(NamedTuple):
    """What a chunk reads: everybody's data, that of evaluations, the batches' key."""

    theirs: Any  # of the kind `Theirs`
    eval_data: Tree
    key: Any


def _chunk(
    static: StaticConfig,
    runs: tuple[str, ...],
    state: State,
    lr: StepSize,
    bounds: Bounds,
    inputs: Inputs,
    plan: Plan,
) -> tuple[State, Log]:
    branches = _branches(static, lr, inputs)

    def one(state: State, row: Plan) -> tuple[State, Log]:
        # A run that has done enough stays as it is; once all have, rounds cost nothing.
        going, anybody = _going(state, runs)
        if anybody is not None:
            row = row._replace(branch=jnp.where(anybody, row.branch, NOBODY))
        # Branches read the memory of clients and give back that of participants: one
        # that wrote to it would copy all of it, and a round would cost N again.
        server, mine = jax.lax.switch(row.branch, branches, Memory(*state[:3]), row)
        if static.skips:
            server = _chosen(row.active > 0, server, state.server)
        taken = jnp.int32(static.local_steps)
        own = static.slots == state.steps.shape[:1] and row.places is None
        if going is not None:
            before = state.clients if own else take_rows(state.clients, _places(row))
            server, mine = _chosen(going, (server, mine), (state.server, before))
            taken = jnp.where(going, taken, 0)
        clients, steps = _remember(own, state, row, mine, taken)
        due = _due(static, bounds.rounds, row.round, anybody)
        metrics = _evaluate(static, server.x, inputs.eval_data, state.metrics, due)
        alive = state.alive & sane(metrics, bounds.distance)
        if static.eval_every > 1:  # what is not evaluated is looked at all the same
            alive &= _finite(server.x)
        server = _chosen(alive, server, state.server)
        met = state.met
        if met is not None:
            enough = bounds.targets.met(metrics)
            if row.budget_spent is not None:
                enough |= row.budget_spent
            met |= alive & enough
        after = State(server, clients, steps, metrics, alive, met)
        kept = log(static.record_models, server.x, metrics, alive)
        return after, kept if going is None else kept._replace(alive=alive & going)

    return jax.lax.scan(one, state, plan)


def _branches(static: StaticConfig, lr: StepSize, inputs: Inputs) -> list[Any]:
    """What a round may be: of nobody, or of so many slots; (memory, row) -> the server
    and the participants' memory, padded to the most slots."""
    most = static.slots[-1]

    def nobody(memory: Memory, row: Plan) -> tuple[Any, Any]:
        return memory.server, jax.tree.map(lambda a: a[:most], memory.clients)

    def somebody(slots: int, memory: Memory, row: Plan) -> tuple[Any, Any]:
        # Scalars in the dtype of the model: an integer |S| would promote the state.
        active = row.active if row.weight is None else row.weight
        active = active.astype(lr.dtype)
        step = lr[row.round] if lr.ndim else lr
        rd = Round(row.round, step, static.local_steps, static.everybody, active)
        ids, places = jax.tree.map(lambda a: a[:slots], (row.ids, row.places))
        server, mine = run_round(static, rd, ids, places, memory, inputs.theirs, inputs.key)
        return server, jax.tree.map(lambda a: _pad(a, most), mine)

    return [nobody, *(partial(somebody, slots) for slots in static.slots)]


def _remember(own: bool, state: State, row: Plan, mine: Any, taken: Any) -> tuple[Any, Any]:
    """The memory of all clients after a round, and the gradients each has computed.

    Where slot i is client i's `own`, nothing need be scattered, which is a loop to
    compile for every leaf."""
    if not own:
        places = _places(row)
        clients = jax.tree.map(
            lambda a, b: a.at[places].set(b, mode="drop", unique_indices=True),
            state.clients,
            mine,
        )
        return clients, state.steps.at[places].add(taken, mode="drop")
    there: Any = row.ids < len(state.steps)
    clients = jax.tree.map(partial(either, there), mine, state.clients)
    return clients, state.steps + jnp.where(there, taken, 0)


def _places(row: Plan) -> Any:
    return row.ids if row.places is None else row.places


def _going(state: State, runs: tuple[str, ...]) -> tuple[Any, Any]:
    """Whether a run goes on, and whether any does of those side by side, which have
    axes of these names; None where none can have done enough."""
    if state.met is None:
        return None, None
    going, anybody = ~state.met, state.alive & ~state.met
    if runs:
        anybody = jax.lax.pmax(anybody.astype(jnp.int32), runs) > 0
    return going, anybody


@partial(jax.jit, static_argnums=0, donate_argnums=1, compiler_options=OPTIONS)
def chunk(static, state, lr, bounds, inputs, plan):
    """Run one chunk of rounds."""
    one = _on_devices(static, partial(_chunk, static, ()), plan)
    return one(state, lr, bounds, inputs, plan)


@partial(jax.jit, static_argnums=0, donate_argnums=1, compiler_options=OPTIONS)
def chunks(static, state, lrs, bounds, inputs, plan):
    """Run one chunk of rounds at several learning rates, and for several seeds if the
    plan has an axis for them; both are the last axes.

    Last, so that a product with a client's matrix stays a product of matrices.
    """
    seeds = plan.active.ndim > 1
    runs = ("lrs", "seeds") if seeds else ("lrs",)
    one = jax.vmap(
        partial(_chunk, static, runs),
        in_axes=(-1, 0, None, None, None),
        out_axes=-1,
        axis_name="lrs",
    )
    if seeds:
        each = Plan._make([None, None, 0, 0, None, 0, 0])
        keyed = Inputs(None, None, None if inputs.key is None else 0)
        one = jax.vmap(
            one,
            in_axes=(-1, None, None, keyed, each),
            out_axes=-1,
            axis_name="seeds",
        )
    one = _on_devices(static, one, plan)
    return one(state, lrs, bounds, inputs, plan)


def _on_devices(static: StaticConfig, one: Any, plan: Plan) -> Any:
    ids = jax.sharding.PartitionSpec(*[None] * (plan.ids.ndim - 1), *SHARDED)
    cut = Plan._make([*[REPLICATED] * 3, ids, *[REPLICATED] * 3])
    inputs = Inputs(SHARDED, REPLICATED, REPLICATED)
    takes = SPREAD, REPLICATED, REPLICATED, inputs, cut
    return static.devices.each(one, takes, (SPREAD, REPLICATED))


def log(record_models: bool, x: Tree, metrics: dict[str, Any], alive: Any) -> Log:
    """What is kept of a round that ends like this."""
    return Log(metrics, alive, x if record_models else None)


def _due(static: StaticConfig, rounds: Any, index: Any, anybody: Any) -> Any:
    """Whether a round is evaluated: one in every so many, and the last. None: all."""
    if static.eval_every == 1 and anybody is None:
        return None
    due = ((index + 1) % static.eval_every == 0) | (index + 1 == rounds)
    due &= index != PADDING
    return due if anybody is None else due & anybody


def _evaluate(
    static: StaticConfig, x: Tree, eval_data: Tree, last: dict[str, Any], due: Any
) -> dict[str, Any]:
    """Evaluate where it is due; else the last metrics stand."""
    if due is None:
        return static.evaluate(x, eval_data)
    return jax.lax.cond(due, lambda: static.evaluate(x, eval_data), lambda: last)


# The metrics of one model, and what it is to each client: for all algorithms the same.
evaluate = jax.jit(evaluation.evaluate, static_argnums=(0, 1))
evaluate_clients = jax.jit(evaluation.evaluate_clients, static_argnums=0)


def _finite(x: Tree) -> Bool[Array, ""]:
    return jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(x)]).all()


def _chosen(this: Any, a: Tree, b: Tree) -> Tree:
    """This one or that; jnp.where would be compiled as a function for each leaf."""
    return jax.tree.map(partial(jax.lax.select, this), a, b)


def _pad(a: Array, slots: int) -> Array:
    if len(a) == slots:
        return a
    return jnp.pad(a, [(0, slots - len(a)), *[(0, 0)] * (a.ndim - 1)])
