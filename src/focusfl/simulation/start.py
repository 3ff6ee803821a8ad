"""Clients before round 0, all at once or some at a time, and after the last round."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from focusfl.core import Round, has_after_update, tree
from focusfl.core.metrics import evaluate
from focusfl.core.tree import Tree
from focusfl.problems import Objective
from focusfl.simulation.cohort import (
    Cohort,
    Memory,
    StaticConfig,
    Theirs,
    after_update,
    clients_in,
    run_round,
    sum_one_to_model,
    take_rows,
    train_cohort,
)
from focusfl.simulation.compiled import SPREAD, Log, State, log
from focusfl.simulation.devices import REPLICATED, SHARDED

COPIED = 1 << 18  # numbers that are copied to the device rather than written there
AT_ONCE = 1 << 25  # numbers in the models of clients that start warm together

Ids = Any  # an array of clients; N and above: nobody
Write = Callable[[Ids, Any], None]  # keeps the memory and steps of some clients
Read = Callable[[Ids], Any]


class Start(NamedTuple):
    """What all runs side by side begin with; a key beside it makes one of them."""

    static: StaticConfig  # of one local step, which is all that a warm start takes
    x0: Tree
    data: Theirs
    eval_data: Tree


def initial_memory(
    static: StaticConfig, x0: Tree, data: Theirs, key: Any, warm: bool = False
) -> Memory:
    """What server and clients remember before round 0, after a warm start if that is
    asked for.

    A few numbers are copied to the device sooner than a program that writes them there
    is compiled."""
    alone = static.devices.count == 1
    if alone and not warm and in_model_coordinates(static.objective):
        memory = shapes(static, x0, data, key)
        if tree.size(memory) <= COPIED:
            return jax.tree.map(jnp.array, memory)
    return compiled_memory(static, x0, data, key, warm)


@partial(jax.jit, static_argnums=(0, 4))
def compiled_memory(static: StaticConfig, x0: Tree, data: Theirs, key: Any, warm: bool) -> Memory:
    """The same, of any size, on any devices."""

    def on_each(x0, data, key):
        memory = _fresh(static, x0, data.data)
        if not warm:
            return memory
        all_ids, rd = jnp.arange(len(memory.steps)), _warm_round(static)
        server, clients = run_round(static, rd, all_ids, None, memory, data, key)
        return Memory(server, clients, memory.steps + 1)

    takes, gives = (REPLICATED, SHARDED, REPLICATED), Memory(*SPREAD[:3])
    return static.devices.each(on_each, takes, gives)(x0, data, key)


def shapes(static: StaticConfig, x0: Tree, data: Theirs, key: Any) -> Memory:
    """What they remember on one device, without the memory for it."""
    if in_model_coordinates(static.objective) and tree.size(x0) <= COPIED:
        return _fresh(static, x0, data.data, np)
    return jax.eval_shape(lambda x0, data: compiled_memory(static, x0, data, key, False), x0, data)


def evaluated(static: StaticConfig, memory: Memory, eval_data: Tree) -> tuple[State, Log]:
    """The state before round 0, and what is kept of it, by a program that algorithms
    share."""
    about = static.objective, static.per_client, static.record_models
    seen, first = _first_evaluation(*about, memory.server.x, eval_data)
    return State(*memory, *seen), first


@partial(jax.jit, static_argnums=(0, 1, 2))
def _first_evaluation(
    objective: Objective,
    per_client: bool,
    record_models: bool,
    x: Tree,
    eval_data: Tree,
) -> tuple[tuple[dict[str, Any], Array], Log]:
    found = jax.tree.map(jnp.asarray, evaluate(objective, per_client, x, eval_data))
    alive = jnp.array(True)
    first = log(record_models, x, found, alive)
    return (found, alive), jax.tree.map(lambda a: a[None], first)


def begin_on_device(
    static: StaticConfig, x0: Tree, data: Theirs, eval_data: Tree, key: Any
) -> tuple[State, Log]:
    """Give everybody's state before round 0, warmed up in parts if they are many."""
    warm = static.algorithm.starts_warm
    several = static.devices.count > 1  # which warm all their clients up at once
    if not warm or several or clients_in(data) <= _at_once(x0):
        return evaluated(static, initial_memory(static, x0, data, key, warm), eval_data)
    server, *rest = initial_memory(static, x0, data, key)
    theirs = tuple(rest)

    def write(ids, rows):
        nonlocal theirs
        theirs = _put(theirs, ids, rows)

    server = begin_in_parts(static, x0, data, key, server, write, lambda ids: _get(theirs, ids))
    return evaluated(static, Memory(server, *theirs), eval_data)


def stack_runs(
    begun: tuple[State, Log], start: Start, keys: list[Any], rates: int
) -> tuple[State, Log]:
    """Lay runs at several rates side by side, and then those of several seeds."""
    each = [begun] * len(keys)
    if len(keys) > 1 and keys[0] is not None and start.static.algorithm.starts_warm:
        each = [begin_on_device(*start, key) for key in keys]
    return _side_by_side(rates, each)


@partial(jax.jit, static_argnums=0)
def _side_by_side(rates: int, each: list[tuple[State, Log]]) -> tuple[State, Log]:
    def together(*seeds):
        rows = [jnp.broadcast_to(a[..., None], (*a.shape, rates)) for a in seeds]
        return jnp.stack(rows, -1) if len(rows) > 1 else rows[0]

    return jax.tree.map(together, *each)


def begin_in_parts(
    static: StaticConfig,
    x0: Tree,
    data: Theirs,
    key: Any,
    server: Any,
    write: Write,
    read: Read,
) -> Any:
    """Bring everybody to round 0, some at a time; give the server by then.

    The sum of what they push is that of the parts, one after the other.
    """
    total = None
    for ids in parts(x0, clients_in(data)):
        rows, ups = _begin_part(static, x0, data, key, ids)
        total = ups if total is None else tree.add(total, ups)
        write(ids, rows)
    if total is None:
        return server
    server = _answer(static, server, total)
    if has_after_update(static.algorithm):
        for ids in parts(x0, clients_in(data)):
            clients, steps = read(ids)
            write(ids, (_settled(static, server, clients, data, ids), steps))
    return server


def parts(x0: Tree, clients: int) -> Iterator[Ids]:
    """Yield all clients, as many at a time as may be; the last part is padded."""
    at_once = min(clients, _at_once(x0))
    for first in range(0, clients, at_once):
        yield np.arange(first, first + at_once)


def to_model_coordinates(
    objective: Objective, clients: Any, data: Theirs, ids: Ids | None = None
) -> Any:
    """Everybody's memory, or that of some, in the coordinates of the model."""
    return (
        clients
        if in_model_coordinates(objective)
        else _all_to_model_coordinates(objective, clients, data, ids)
    )


def in_model_coordinates(objective: Objective) -> bool:
    """Whether clients work in the coordinates of the model, as almost always."""
    kind = type(objective)
    return kind.to_local is Objective.to_local and kind.sum_to_model is Objective.sum_to_model


@partial(jax.jit, static_argnums=0)
def _all_to_model_coordinates(
    objective: Objective, clients: Any, data: Theirs, ids: Ids | None
) -> Any:
    mine = data.data if ids is None else _get(data.data, ids)
    one = partial(sum_one_to_model, objective)
    return jax.vmap(one, axis_size=clients_in(mine))(clients, mine)


@partial(jax.jit, static_argnums=0)
def _begin_part(
    static: StaticConfig, x0: Tree, data: Theirs, key: Any, ids: Ids
) -> tuple[Any, Any]:
    """The memory and steps of some clients; what they push in all, if they do."""
    mine, rd = _get(data, ids), _warm_round(static)
    server, clients, steps = _fresh(static, x0, mine.data)
    if not static.algorithm.starts_warm:
        return (clients, steps), None
    cohort = Cohort(ids, ids < static.devices.num_clients, None, clients, steps)
    clients, total = train_cohort(static, rd, cohort, mine, key, server)
    return (clients, steps + 1), total


@partial(jax.jit, static_argnums=0)
def _answer(static: StaticConfig, server: Any, total: Any) -> Any:
    return static.algorithm.update(server, total, _warm_round(static))


@partial(jax.jit, static_argnums=0)
def _settled(static: StaticConfig, server: Any, clients: Any, data: Theirs, ids: Ids) -> Any:
    return after_update(static, _warm_round(static), server, clients, _get(data.data, ids))


_get = jax.jit(take_rows)


@partial(jax.jit, donate_argnums=0)
def _put(table: Tree, ids: Ids, rows: Tree) -> Tree:
    return jax.tree.map(lambda a, b: a.at[ids].set(b, mode="drop"), table, rows)


def _fresh(static: StaticConfig, x0: Tree, data: Tree, xp: Any = jnp) -> Memory:
    """Server and clients who have done nothing yet; numpy's rows share their memory.

    The algorithm is given jax's arrays in either case: anybody's may need them."""
    many = clients_in(data)
    server, client = static.algorithm.init(x0)
    # A counter of an algorithm is a plain int; it takes the dtype of round numbers.
    client = jax.tree.map(lambda a: xp.int32(a) if isinstance(a, int) else a, client)
    clients = jax.tree.map(lambda a: xp.broadcast_to(a, (many, *xp.shape(a))), client)
    if not in_model_coordinates(static.objective):
        clients = jax.vmap(static.objective.to_local, axis_size=many)(clients, data)
    return Memory(server, clients, xp.broadcast_to(xp.int32(0), many))


def _warm_round(static: StaticConfig) -> Round:
    return Round(-1, 0.0, 1, static.everybody, static.everybody)


def _at_once(x0: Tree) -> int:
    return max(1, AT_ONCE // tree.size(x0))
