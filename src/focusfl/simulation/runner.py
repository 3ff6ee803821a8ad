"""Run what a spec says: everything before round 0, the loop over chunks, the results."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from focusfl.core.fingerprint import fingerprint, stable_repr
from focusfl.core.metrics import eval_data_of
from focusfl.core.result import Result
from focusfl.core.tree import Tree, size
from focusfl.simulation import devices, scan
from focusfl.simulation.callbacks import Progress
from focusfl.simulation.checkpoint import CODE, CheckpointFile, Facts, open_checkpoint
from focusfl.simulation.client_round import batch_stream
from focusfl.simulation.client_state import OnDevice, store_for
from focusfl.simulation.devices import Devices, devices_for
from focusfl.simulation.divergence import limit_of
from focusfl.simulation.plan import (
    PADDING,
    Layout,
    Participants,
    Plan,
    chunk_policy,
    chunk_rows,
    cohort_sizes,
)
from focusfl.simulation.round import Carry, ClientData, Config
from focusfl.simulation.scan import Inputs, Log
from focusfl.simulation.spec import STEPS, Options, RunSpec
from focusfl.simulation.step_sizes import StepSizes, Table, stacked


class Runner:
    """The runs of one spec, side by side."""

    def __init__(self, spec: RunSpec, options: Options, progress: Progress | None = None):
        self.spec, self.options, self.progress = spec, options, progress
        self.began = time.monotonic()
        problem, many = spec.problem, spec.num_clients
        problem.check_compiles()
        self.devices = devices_for(options, many)
        self.participants = Participants(spec.participation, many, spec.rounds, spec.seeds)
        slot = spec.local_steps * (size(problem.data) // many + size(spec.x0))
        self.policy = chunk_policy(spec.x0, jax.default_backend() == "cpu", slot)
        self.weights = None if problem.weights is None else np.asarray(problem.weights, float)
        self.clients = ClientData(problem.data, self.weights)
        self.eval_data = eval_data_of(problem, spec.per_client)
        self.budget_spent = spec.stop.budget(spec.algorithm, many, spec.x0)
        self.config = self._config()
        # Start and evaluation do not depend on cohort sizes or local steps: all runs of a
        # problem share their compiled programs.
        self.without_rounds = self.config._replace(
            slots=(), local_steps=1, eval_every=1, some_skip=False
        )

    def run(self) -> list[Result]:
        """Run everything; give the results, seed by seed."""
        spec, options = self.spec, self.options
        with (
            jax.enable_x64(spec.problem.dtype == "float64"),
            devices.hint_on_oom(self.config.slots[-1]),
            open_checkpoint(options.checkpoint) as checkpoint,
        ):
            x0 = jax.tree.map(partial(jnp.asarray, dtype=spec.problem.dtype), spec.x0)
            keys = [batch_stream(spec.problem.objective, seed) for seed in spec.seeds]
            needs, place = self._place(x0, checkpoint)
            clients, eval_data = self.devices.put(self.clients, self.eval_data)
            store = store_for(place, self.without_rounds, options, checkpoint)
            carry, first, at_x0 = self._begin(store, x0, clients, eval_data, keys)
            inputs, carry = self._inputs(carry, at_x0, clients, eval_data, keys)
            layout = self._layout(0 if place == "device" else needs.row)
            program = scan.scan_rounds if spec.num_runs == 1 else scan.scan_sweep

            def facts() -> Facts:
                like = store.like(carry, layout.of_nobody(len(spec.seeds)))
                start = scan.compiled_carry.lower(self.without_rounds, x0, clients)
                chunk = program.lower(self.config, like[0], inputs, like[1])
                code = _digest(start.as_text(), chunk.as_text())
                return self._facts(x0, place) | {CODE: code}

            state, first = store.restore(carry, fetch(first, 1), facts)
            with store:
                state, log = run_chunks(
                    lambda config, carry, plan: program(config, carry, inputs, plan),
                    layout.after(len(first.is_alive) - 1), state, first, store,
                    spec.stop.watch(self.progress, self.began),
                )  # fmt: skip
                return self._results(state, log, store, eval_data)

    def _config(self) -> Config:
        """Say what is compiled, with cohorts of the sizes that the participants need."""
        spec, participants = self.spec, self.participants
        sizes = [[len(ids) for ids in rounds] for rounds in self.devices.shard(participants.ahead)]
        slots = cohort_sizes(np.max(sizes, 0), self.devices.clients_per_device, self.policy)
        active = participants.active
        sometimes = bool((active.min(0) < np.minimum(active.max(0), 1)).any())
        unknown = len(spec.seeds) > 1 and not participants.all
        return Config(
            spec.algorithm, spec.problem.objective, self.devices, slots, int(spec.local_steps),
            self.options.record_models, int(min(spec.eval_every, STEPS - 1)),
            some_skip=spec.on_empty == "skip" and (sometimes or unknown),
            total_weight=None if self.weights is None else spec.problem.total_weight,
            per_client=spec.per_client,
        )  # fmt: skip

    def _place(self, x0: Any, checkpoint: CheckpointFile) -> tuple[devices.Needs, Any]:
        """Count what the runs need; decide where clients' state is."""
        spec, count = self.spec, self.devices.count
        alone = self.without_rounds._replace(devices=Devices(spec.num_clients))
        carry = scan.shapes(alone, x0, self.clients)
        needs = devices.needs(
            (carry.clients, carry.gradients_done), (x0, self.eval_data), self.clients,
            spec.num_clients, spec.num_runs, count,
        )  # fmt: skip
        asked = self.options.client_state if count == 1 else "device"
        return needs, devices.choose_client_state(asked, needs, checkpoint.folder is not None)

    def _begin(
        self, store: OnDevice, x0: Any, clients: ClientData, eval_data: Any, keys: list[Any]
    ) -> tuple[Carry, Log, dict[str, Any]]:
        """Bring all runs to round 0, side by side; give the metrics of x0, too."""
        spec, participations = self.spec, self.spec.rounds * self.config.slots[-1]

        def begin(key: Any) -> tuple[Carry, Log]:
            carry = store.begin(x0, clients, key, participations)
            return scan.evaluated(self.without_rounds, carry, eval_data)

        seeds = [begin(keys[0])]
        at_x0 = {name: a[0] for name, a in seeds[0][1].metrics.items()}
        if spec.num_runs == 1:
            return *seeds[0], at_x0
        # Only a warm start with batches depends on the seed.
        differ = keys[0] is not None and spec.algorithm.starts_warm
        seeds += [begin(key) if differ else seeds[0] for key in keys[1:]]
        return *scan.side_by_side(len(spec.lrs), seeds), at_x0

    def _inputs(
        self,
        carry: Carry,
        at_x0: dict[str, Any],
        clients: ClientData,
        eval_data: Any,
        keys: list[Any],
    ) -> tuple[Inputs, Carry]:
        """Give what every chunk reads, and the state with its targets."""
        spec = self.spec
        limit, targets = limit_of(at_x0), spec.stop.targets(at_x0)
        if self.budget_spent or any(targets):
            reached = bool(targets.met(at_x0))
            reached |= bool(self.budget_spent and self.budget_spent(0))
            carry = carry._replace(is_done=jnp.full(carry.is_alive.shape, reached))
        lrs = np.asarray(stacked(spec.lrs))
        dtype, key = spec.problem.dtype, keys[0]
        return Inputs(
            lr=jnp.asarray(lrs if spec.num_runs > 1 else lrs[0], dtype),
            max_distance=jnp.asarray(limit, dtype),
            rounds=jnp.int32(spec.rounds),
            targets=targets,
            clients=clients,
            eval_data=eval_data,
            key=jnp.stack(keys) if len(keys) > 1 and key is not None else key,
        ), carry

    def _layout(self, row_bytes: int) -> Layout:
        spec, slots = self.spec, self.config.slots
        rows = chunk_rows(spec.rounds, self.policy.chunk, self.devices.count * slots[-1], row_bytes)
        return Layout(
            self.config, self.participants, spec.rounds, rows, spec.on_empty,
            self.budget_spent, self.weights,
        )  # fmt: skip

    def _facts(self, x0: Any, place: str) -> Facts:
        """Say what a checkpoint is of: runs with other facts are other runs."""
        spec = self.spec
        ahead = [np.concatenate(rounds) for rounds in self.participants.ahead]
        return {
            "algorithm": stable_repr(spec.algorithm),
            "objective": stable_repr(spec.problem.objective),
            "lr": _one_or_all([_named(lr) for lr in spec.lrs]), "rounds": spec.rounds,
            "local_steps": spec.local_steps,
            "seed": _one_or_all([int(seed) for seed in spec.seeds]),
            "on_empty": spec.on_empty, "record_models": self.options.record_models,
            "eval_every": spec.eval_every,
            "stop": stable_repr(replace(spec.stop, seconds=None)),
            "dtype": str(spec.problem.dtype), "x0": _digest(jax.device_get(x0)),
            "data": _digest(self.clients.data), "eval_data": _digest(self.eval_data),
            "weights": None if self.weights is None else _digest(self.weights),
            "per_client": spec.per_client,
            "client_state": place, "devices": self.devices.count,
            "participation": _digest(self.participants.active, *ahead),
        }  # fmt: skip

    def _results(self, carry: Carry, log: Log, store: OnDevice, eval_data: Any) -> list[Result]:
        """Cut the runs apart: seed by seed, each at every step size."""
        spec, results = self.spec, []
        axes = (spec.num_runs > 1) + (len(spec.seeds) > 1)
        for s, k in product(range(len(spec.seeds)), range(len(spec.lrs))):
            which = (k, s)[:axes]
            run_carry = jax.jit(_one_of)(which, carry) if which else carry
            clients = store.export(run_carry.clients)
            run_log = _one_of(which, log)
            results.append(self._result(k, s, run_carry, run_log, clients, eval_data))
        return results

    def _result(
        self, k: int, s: int, carry: Carry, log: Log, clients: Any, eval_data: Any
    ) -> Result:
        """Make the result of the run at step size k and seed s; cut it at the round that
        broke it, or reached a target."""
        spec, objective = self.spec, self.spec.problem.objective
        is_whole, length = bool(carry.is_done) or bool(log.is_alive.all()), int(log.is_alive.sum())
        metrics, models = jax.tree.map(lambda a: a[:length], (log.metrics, log.model))

        def evaluate() -> dict[str, Any]:
            return scan.evaluate(objective, spec.per_client, carry.server.x, eval_data)

        per_client = {}
        if spec.per_client:
            per_client = scan.evaluate_clients(objective, carry.server.x, eval_data)
        return spec.result(
            spec.lrs[k],
            spec.seeds[s],
            self.participants.active[s][: length - 1],
            metrics=only_evaluated(metrics, spec.eval_every, spec.rounds, evaluate),
            diverged_at=None if is_whole else length - 1,
            server=jax.tree.map(np.asarray, carry.server),
            clients=clients if is_whole else None,
            trajectory=models,
            clients_metrics=jax.tree.map(np.asarray, per_client),
            why_lr=None,
        )


def run_chunks(
    run: Callable[[Config, Carry, Plan], tuple[Carry, Log]],
    plans: Iterator[tuple[Config, Plan]],
    carry: Carry,
    first: Log,
    store: OnDevice,
    progress: Progress | None,
) -> tuple[Carry, Log]:
    """Run chunks until the rounds are over, or a target is reached; give the state and
    the log of all rounds. One chunk runs while the next is laid out."""
    logs, running = [first], []
    enough = carry.is_done is not None and bool(carry.is_done.all())
    if progress and len(first.is_alive) > 1:
        enough |= bool(progress(_rounds_done(logs), _last_metrics(first)))
    now = next(plans, None)
    while now and not enough and logs[-1].is_alive[-1].any():
        config, plan = now
        carry, plan = store.load(carry, plan)
        carry, log = run(config, carry, plan)
        running.append((log, int((plan.round != PADDING).sum())))
        now = next(plans, None)
        if now:
            store.prefetch(now[1])
        due = now is not None and store.checkpoint.due()
        # The log of a chunk is waited for while the next is running, but for a
        # checkpoint and at the end.
        while len(running) > (now is not None and not due):
            logs.append(fetch(*running.pop(0)))
            if progress:  # a stop that was asked for stays asked for
                enough |= bool(progress(_rounds_done(logs), _last_metrics(logs[-1])))
        if due:
            store.save(carry, _joined(logs))
    logs += [fetch(*more) for more in running]  # where it was enough
    whole = _joined(logs)
    if len(logs) > 1:
        store.save(carry, whole)
    return carry, whole


def fetch(log: Log, rows: int) -> Log:
    """Wait for a chunk and drop its padding."""
    return jax.tree.map(lambda a: np.asarray(a)[:rows], log)


def _joined(logs: list[Log]) -> Log:
    return jax.tree.map(lambda *parts: np.concatenate(parts), *logs)


def _one_of(which: tuple[Any, ...], runs: Tree) -> Tree:
    """Cut one run out of the runs side by side."""
    return jax.tree.map(lambda a: a[..., *which], runs)


def _last_metrics(log: Log) -> dict[str, Any]:
    return {name: a[-1] for name, a in log.metrics.items()}


def _rounds_done(logs: list[Log]) -> int:
    """Count the rounds that some run has done."""
    rows = [log.is_alive.reshape(len(log.is_alive), -1).any(1).sum() for log in logs]
    return int(sum(rows)) - 1


def only_evaluated(
    metrics: dict[str, Any], eval_every: int, rounds: int, evaluate: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Put NaN where the metrics of a run are older than their round.

    It may have ended in any round: `evaluate` gives the metrics of its last model.
    """
    length = len(next(iter(metrics.values()), ()))
    done = np.arange(length)
    fresh = (done % eval_every == 0) | (done == rounds)
    if fresh.all():
        return metrics
    metrics = {name: np.where(fresh, a, np.nan) for name, a in metrics.items()}
    if not fresh[-1]:
        for name, value in evaluate().items():
            metrics[name][-1] = value
    return metrics


def _named(lr: StepSizes) -> float | str:
    return f"steps {_digest(lr.steps)}" if isinstance(lr, Table) else float(lr)


def _one_or_all(values: list) -> Any:
    return values[0] if len(values) == 1 else values


def _digest(*values: Any) -> str:
    """Name what is too long to stand in a message by a few letters."""
    return "#" + fingerprint(*values)
