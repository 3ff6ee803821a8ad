"""From a spec to its results: what runs are compiled from, begun with and ended by."""

import time
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from focusfl.core.fingerprint import fingerprint, stable_repr
from focusfl.core.metrics import eval_data_of
from focusfl.core.result import Result
from focusfl.core.tree import size
from focusfl.privacy.budgets import with_epsilon
from focusfl.simulation import compiled, placement
from focusfl.simulation.checkpoint import (
    CODE,
    CheckpointFile,
    Facts,
    open_checkpoint,
)
from focusfl.simulation.client_round import batch_stream
from focusfl.simulation.clients import ClientStore, store_for
from focusfl.simulation.cohort import StaticConfig, Theirs
from focusfl.simulation.compiled import Bounds, Inputs, Log, State
from focusfl.simulation.devices import Devices, devices_for
from focusfl.simulation.divergence import limit_of
from focusfl.simulation.driver import (
    Ended,
    fetch,
    one_of,
    result_of,
    run_chunks,
)
from focusfl.simulation.layout import (
    ChunkPolicy,
    Layout,
    Participants,
    chunk_policy,
    chunk_rows,
    cohort_sizes,
)
from focusfl.simulation.spec import STEPS, Options, Progress, RunSpec, check_progress
from focusfl.simulation.start import (
    Start,
    compiled_memory,
    in_model_coordinates,
    shapes,
    stack_runs,
)
from focusfl.simulation.step_sizes import StepSizes, Table, stacked
from focusfl.simulation.stop import Stop


class Begun(NamedTuple):
    """Runs before round 0, and all that their chunks are called with."""

    state: State
    first: Log
    run_chunk: Any  # compiled.chunk, of one run, or compiled.chunks, of several
    fixed: tuple  # what every chunk takes beside its plan: step sizes, bounds, inputs
    layout: Layout


class Simulation:
    """The runs of one spec, side by side."""

    def __init__(self, spec: RunSpec, options: Options, progress: Progress | None = None):
        check_progress(progress)
        self.spec, self.options, self.progress = spec, options, progress
        self.began = time.monotonic()
        many = spec.num_clients
        self.devices = devices_for(options, many)
        self.participants = Participants(spec.participation, many, spec.rounds, spec.seeds)
        self.objective, data = spec.problem.specialize(spec.local_steps)
        if spec.algorithm.elementwise and not in_model_coordinates(self.objective):
            self.objective, data = spec.problem.objective, spec.problem.data
        slot = spec.local_steps * (size(data) // many + size(spec.x0))
        on_cpu = jax.default_backend() == "cpu"
        self.policy: ChunkPolicy = chunk_policy(spec.x0, on_cpu, slot)
        weights = spec.problem.weights
        self.weights = None if weights is None else np.asarray(weights, float)
        self.data = Theirs(data, self.weights)
        self.eval_data = eval_data_of(spec.problem, spec.per_client)
        self.static = self._static()
        # Beginning and evaluating are the same whatever a round is.
        self.without_rounds = self.static._replace(
            slots=(), local_steps=1, eval_every=1, skips=False
        )
        self.stop = spec.stop or Stop()

    def run(self) -> list[Result]:
        """Run everything; give the results, seed by seed."""
        spec, options = self.spec, self.options
        with (
            jax.enable_x64(spec.problem.dtype == "float64"),
            placement.hint_on_oom(self.static.slots[-1]),
            open_checkpoint(options.checkpoint) as kept,
        ):
            x0 = jax.tree.map(partial(jnp.asarray, dtype=spec.problem.dtype), spec.x0)
            keys = [batch_stream(self.objective, seed) for seed in spec.seeds]
            needs, where = self._place(x0, keys[0], kept)
            data, eval_data = self.devices.put(self.data, self.eval_data)
            start = Start(self.without_rounds, x0, data, eval_data)
            clients = store_for(where, options, self.devices, kept)
            row = 0 if where == "device" else needs.row
            begun = self._begin(start, keys, clients, row)
            facts = partial(self._facts, begun, start, keys[0], clients, where)
            state, first = clients.restore(begun.state, fetch(begun.first, 1), facts)
            with clients:
                state, log = run_chunks(
                    lambda static, state, plan: begun.run_chunk(
                        static, state, *begun.fixed, plan
                    ),
                    begun.layout.after(len(first.alive) - 1), state, first, kept,
                    clients, self.stop.watch(self.progress, self.began),
                )  # fmt: skip
                return self._results(start, state, log, clients)

    def _static(self) -> StaticConfig:
        """What is compiled, with cohorts of the sizes that these participants need."""
        spec, who, devices = self.spec, self.participants, self.devices
        sizes = [[len(ids) for ids in own] for own in devices.shard(who.ahead)]
        slots = cohort_sizes(np.max(sizes, 0), devices.clients_per_device, self.policy)
        active = who.active
        sometimes = bool((active.min(0) < np.minimum(active.max(0), 1)).any())
        unknown = len(spec.seeds) > 1 and not who.all
        return StaticConfig(
            spec.algorithm, self.objective, devices, slots, int(spec.local_steps),
            self.options.record_models, int(min(spec.eval_every, STEPS - 1)),
            skips=spec.on_empty == "skip" and (sometimes or unknown),
            total_weight=None if self.weights is None else spec.problem.total_weight,
            per_client=spec.per_client,
        )  # fmt: skip

    def _place(self, x0: Any, key: Any, kept: CheckpointFile) -> tuple[placement.Needs, Any]:
        """Count what the runs need; decide where clients' memory is."""
        spec, count = self.spec, self.devices.count
        alone = self.without_rounds._replace(devices=Devices(spec.num_clients))
        needs = placement.needs(
            shapes(alone, x0, self.data, key), (x0, self.eval_data), self.data,
            spec.num_runs, count,
        )  # fmt: skip
        asked = self.options.client_state if count == 1 else "device"
        checkpointed = kept.folder is not None
        return needs, placement.choose(asked, needs, checkpointed)

    def _begin(self, start: Start, keys: list[Any], clients: ClientStore, row_bytes: int) -> Begun:
        """Bring all runs to round 0."""
        spec, slots = self.spec, self.static.slots
        state, first = clients.begin(start, keys[0], spec.rounds * slots[-1])
        at_x0 = {name: a[0] for name, a in first.metrics.items()}
        limit, targets = limit_of(at_x0), self.stop.targets(at_x0)
        lrs = np.asarray(stacked(spec.lrs))
        run, lr, key = compiled.chunk, lrs[0], keys[0]
        if spec.num_runs > 1:
            run, lr = compiled.chunks, lrs
            state, first = stack_runs((state, first), start, keys, len(spec.lrs))
        if len(keys) > 1 and key is not None:
            key = jnp.stack(keys)
        budget_spent = self.stop.budget(spec.algorithm, spec.num_clients, spec.x0)
        if budget_spent or any(targets):
            met = targets.met({name: a[0] for name, a in first.metrics.items()})
            met = jnp.asarray(met | bool(budget_spent and budget_spent(0)))
            met = jnp.broadcast_to(met, first.alive[0].shape).copy()
            state = state._replace(met=met)
        step, bound = (jnp.asarray(a, spec.problem.dtype) for a in (lr, limit))
        bounds = Bounds(bound, jnp.int32(spec.rounds), targets)
        fixed = step, bounds, Inputs(start.data, start.eval_data, key)
        rows = chunk_rows(spec.rounds, self.policy.chunk, self.devices.count * slots[-1], row_bytes)
        layout = Layout(
            self.static, self.participants, spec.rounds, rows, spec.on_empty,
            budget_spent, self.weights,
        )  # fmt: skip
        return Begun(state, first, run, fixed, layout)

    def _facts(
        self, begun: Begun, start: Start, key: Any, clients: ClientStore, where: str
    ) -> Facts:
        """What a checkpoint is of: runs with other facts are other runs."""
        spec = self.spec
        like = clients.like(begun.state, begun.layout.nobodys(len(spec.seeds)))
        beginning = compiled_memory.lower(*start[:3], key, spec.algorithm.starts_warm)
        chunk = begun.run_chunk.lower(self.static, like[0], *begun.fixed, like[1])
        ahead = [np.concatenate(own) for own in self.participants.ahead]
        return {
            "algorithm": stable_repr(spec.algorithm),
            "objective": stable_repr(self.objective),
            "lr": _one_or_all([_named(lr) for lr in spec.lrs]), "rounds": spec.rounds,
            "local_steps": spec.local_steps,
            "seed": _one_or_all([int(seed) for seed in spec.seeds]),
            "on_empty": spec.on_empty, "record_models": self.options.record_models,
            "eval_every": spec.eval_every,
            "stop": stable_repr(replace(self.stop, seconds=None)),
            "dtype": str(spec.problem.dtype), "x0": _digest(jax.device_get(start.x0)),
            "data": _digest(self.data.data), "eval_data": _digest(self.eval_data),
            "weights": None if self.weights is None else _digest(self.weights),
            "per_client": spec.per_client,
            "client_state": where, "devices": self.devices.count,
            "participation": _digest(self.participants.active, *ahead),
            CODE: _digest(beginning.as_text(), chunk.as_text()),
        }  # fmt: skip

    def _results(self, start: Start, state: State, log: Log, clients: ClientStore) -> list[Result]:
        """Cut the runs apart."""
        spec, results = self.spec, []
        axes = (spec.num_runs > 1) + (len(spec.seeds) > 1)
        for s, k in product(range(len(spec.seeds)), range(len(spec.lrs))):
            which = (k, s)[:axes]
            own = jax.jit(one_of)(which, state) if which else state
            about = own.server.x, start.eval_data
            ended = Ended(
                own.server, clients.export(start, own.clients), bool(own.met),
                partial(compiled.evaluate, self.objective, spec.per_client, *about),
                compiled.evaluate_clients(self.objective, *about)
                if spec.per_client else {},
            )  # fmt: skip
            active = self.participants.active[s]
            found = result_of(spec, (k, s), one_of(which, log), active, ended)
            results.append(with_epsilon(spec, found, spec.seeds[s]))
        return results


def _named(lr: StepSizes) -> float | str:
    return f"steps {_digest(lr.steps)}" if isinstance(lr, Table) else float(lr)


def _one_or_all(values: list) -> Any:
    return values[0] if len(values) == 1 else values


def _digest(*values: Any) -> str:
    """What is too long to be named in a message, in a few letters."""
    return "#" + fingerprint(*values)
