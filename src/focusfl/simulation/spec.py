"""What a run is: one frozen value that every engine, study and deployment shares."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from focusfl.algorithms import Stale
from focusfl.core import Algorithm, tree
from focusfl.core.result import Result, costs
from focusfl.core.tree import Tree
from focusfl.core.validation import (
    check_count,
    check_flag,
    check_is,
    check_one_of,
    check_seed,
    is_number,
    shown,
)
from focusfl.participation import Participation
from focusfl.privacy.budgets import with_epsilon, within_budget
from focusfl.problems import Objective, Problem
from focusfl.problems.problem import check_weights
from focusfl.simulation.callbacks import Stop
from focusfl.simulation.step_sizes import Schedule, StepSizes, Table, in_words, tabled, used

OnEmpty = Literal["skip", "step"]
OnDivergence = Literal["warn", "raise", "ignore"]
ClientState = Literal["auto", "device", "host", "disk"]  # where clients' memory is
StepSize = float | int | Literal["auto"]
LearningRate = StepSize | Schedule

STEPS = 2**31  # gradients of one client are counted in 32 bits


@dataclass(frozen=True, eq=False)
class RunSpec:
    """What numbers follow from: runs of one algorithm that differ in step and seed.

    Make it with what a user has said, then ask for `validated()`.
    """

    algorithm: Algorithm
    problem: Problem
    participation: Participation
    rounds: int
    lrs: Sequence[Any]  # step sizes, or functions of the round; a run for each
    local_steps: int = 1  # gradients per participant and round
    x0: Tree | None = None  # the model to start from; problem.x0 if None
    seeds: Sequence[int] = (0,)  # a run at every step for each
    on_empty: OnEmpty = "skip"  # what a round of nobody does
    eval_every: int = 1  # rounds from one evaluation to the next
    stop: Stop = Stop()
    per_client: bool = False  # evaluate on every client's own data, too

    @property
    def num_clients(self) -> int:
        return self.problem.num_clients

    @property
    def num_runs(self) -> int:
        return len(self.lrs) * len(self.seeds)

    def result(
        self,
        lr: StepSizes,
        seed: int,
        counts: np.ndarray,
        metrics: dict[str, np.ndarray],
        diverged_at: int | None,
        server: Any,
        **outcome: Any,
    ) -> Result:
        """Put together the result of one run from what an engine has computed.

        Args:
            lr: the step size of the run.
            seed: of the run.
            counts: participants of every round done.
            metrics: of x0 and after every round done.
            diverged_at: the round that broke it.
            server: the server's state in the end.
            outcome: other fields of `Result`.
        """
        many, rounds = self.num_clients, len(counts)
        metrics = {
            **metrics,
            **costs(self.algorithm, many, counts, self.local_steps, server.x),
            **self.participation.timing(self.algorithm, many, rounds, int(seed)),
        }
        result = Result(
            x=server.x, metrics=metrics, diverged_at=diverged_at, server=server,
            lr=used(lr, rounds, diverged_at), schedule=in_words(lr), weights=self.problem.weights,
            **outcome,
        )  # fmt: skip
        return with_epsilon(self, result, seed)

    def validated(self) -> "RunSpec":
        """Give this as it will run; raise ValueError on what cannot.

        Blanks are filled in. Where replies come late the algorithm is one that takes
        them (`as_stale`); the law of who takes part knows how long they take, and
        leaves out who has spent a privacy budget.
        """
        check_is("algorithm", self.algorithm, Algorithm)
        check_is("problem", self.problem, Problem)
        check_is("participation", self.participation, Participation)
        for name in ("rounds", "local_steps", "eval_every"):
            check_count(name, getattr(self, name))
        if self.rounds * self.local_steps >= STEPS:
            raise ValueError(
                f"rounds times local_steps must be below 2^31; got {self.rounds} and "
                f"{self.local_steps}."
            )
        lrs = [_steps(lr, self.rounds) for lr in self.lrs]
        for seed in self.seeds:
            check_seed("seed", seed)
        check_flag("per_client", self.per_client)
        if self.per_client:
            check_per_client(self.problem)
        self.participation.check(self.num_clients)
        if self.problem.weights is not None:
            check_weights(self.problem.weights, self.num_clients)
        x0 = _start(self.problem, self.x0)
        algorithm = self.algorithm
        if self.participation.asynchronous:
            algorithm = as_stale(algorithm, x0)
        participation = self.participation.with_work(algorithm, x0, self.local_steps)
        whole = replace(self, algorithm=algorithm, participation=participation, lrs=lrs, x0=x0)
        return replace(whole, participation=within_budget(whole))


def check_per_client(problem: Problem) -> None:
    """Raise unless a problem can be evaluated client by client."""
    has_method = type(problem.objective).evaluate_clients is not Objective.evaluate_clients
    if not has_method or problem.client_eval_data is None:
        raise ValueError(
            "per_client=True needs a problem with client_eval_data, and an "
            f"objective with evaluate_clients; {type(problem).__name__} has none."
        )


def as_stale(algorithm: Algorithm, params: Tree) -> Algorithm:
    """An algorithm as it is in an asynchronous run; raise if it cannot be in one."""
    if algorithm.uses_stale_model:
        return algorithm
    if not algorithm.accepts_stale_model:
        raise ValueError(
            f"{algorithm!r} does not support asynchronous participation: its server "
            "infers a client's update from the current server state."
        )
    return Stale(algorithm)


@dataclass(frozen=True)
class Checkpoint:
    """Keep a run in a folder, so that it goes on from there after it was killed.

    The folder is for this run alone. Its whole state is written there between chunks of
    up to 256 rounds, and at the end. The same call goes on from it and gives the bits
    that an uninterrupted run gives; if the run had ended, it gives its result at once.
    Any other run is refused, down to the number of rounds and the versions.
    """

    folder: str | Path
    every: float | int = 60  # seconds between writes

    def __post_init__(self):
        check_folder("checkpoint", self.folder)
        if not is_number(self.every) or not self.every >= 0:
            raise ValueError(
                "every must be a number of seconds between checkpoints, 0 or more; "
                f"got {self.every!r}."
            )


@dataclass(frozen=True)
class Options:
    """Say how a run is carried out and what is kept of it.

    None of these but `on_empty` changes a number, apart from rounding: with `devices` or
    another `client_state` sums are taken in another order.

    client_state is where clients keep their state: on the "device", in the memory of
    the "host", or on "disk", in files as large as the rows of the clients that took
    part. These vanish with the result, unless a checkpoint keeps them. "auto" takes the
    first of the three that has room. Off the device `Result.clients` has `Rows`, which
    are read when asked for. Several runs side by side have their state on the device.

    devices may belong to several processes, after jax.distributed.initialize: all make
    the same call, with all devices there are and callbacks that answer alike in each,
    and get the same result.
    """

    record_models: bool = False  # keep the model of every round, as `Result.trajectory`
    on_divergence: OnDivergence = "warn"  # or "raise" Diverged, or "ignore"
    on_empty: OnEmpty = "skip"  # a round of nobody; or let the server "step" alone
    checkpoint: Checkpoint | None = None
    client_state: ClientState = "auto"
    state_folder: str | Path | None = None  # for "disk"; None: the system's temporary one
    devices: int | None = None  # how many to spread clients over; None: one

    def __post_init__(self):
        check_flag("record_models", self.record_models)
        check_one_of("on_divergence", self.on_divergence, get_args(OnDivergence))
        check_one_of("on_empty", self.on_empty, get_args(OnEmpty))
        check_one_of("client_state", self.client_state, get_args(ClientState))
        if self.checkpoint is not None:
            check_is("checkpoint", self.checkpoint, Checkpoint)
        if self.state_folder is not None:
            check_folder("state_folder", self.state_folder)
            if self.checkpoint is not None:
                raise ValueError(
                    "with a checkpoint, clients' state is kept in its folder; got "
                    f"state_folder = {self.state_folder}. Leave it out."
                )
        if self.devices is not None:
            check_count("devices", self.devices)


DEFAULT_OPTIONS = Options()


def check_folder(name: str, value: Any) -> None:
    """Raise unless this is the path of a folder."""
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ValueError(f"{name} must be the path of a folder; got {value!r}.")


def choose_lr(
    lr: LearningRate,
    algorithm: Algorithm,
    problem: Problem,
    participation: Participation,
    local_steps: int,
) -> tuple[Any, str | None]:
    """Give the step size or schedule and, where "auto" has chosen it, how."""
    if isinstance(lr, str) and lr == "auto":
        from focusfl.theory.auto import auto_lr

        check_is("algorithm", algorithm, Algorithm)
        check_is("problem", problem, Problem)
        check_is("participation", participation, Participation)
        participation = participation.with_work(algorithm, problem.x0, local_steps)
        return auto_lr(algorithm, problem, participation, local_steps)
    several = " Use sweep() for several." if _several(lr) else ""
    if callable(lr):
        return lr, None
    if several or not _is_number(lr):
        raise ValueError(
            f'lr must be one number, "auto" or a function of the round; got {shown(lr)}.{several}'
        )
    return float(lr), None


def rates_of(lrs: Sequence[float | Schedule]) -> list[float | Schedule]:
    """List the step sizes of runs side by side, numbers and functions of the round."""
    rates: list[Any] = list(lrs) if _several(lrs) else [lrs]
    if not rates:
        raise ValueError("lrs must hold at least one number; got [].")
    if not all(callable(rate) or _is_number(rate) for rate in rates):
        raise ValueError(
            f"lrs must be a list of numbers or functions of the round; got {shown(lrs)}."
        )
    return [rate if callable(rate) else float(rate) for rate in rates]


def _steps(lr: Any, rounds: int) -> StepSizes:
    """One run's step sizes, checked."""
    if callable(lr):
        return tabled(lr, rounds)
    if isinstance(lr, Table):
        return lr
    if not 0 < lr < np.inf:
        raise ValueError(f"lr must be positive and finite; got {lr}.")
    return float(lr)


def seeds_of(seed: int | Sequence[int]) -> list[int]:
    """The seeds of runs side by side."""
    if not _several(seed):
        return [seed]  # type: ignore[list-item]
    if not len(seed):  # type: ignore[arg-type]
        raise ValueError("seed must be one or a list of at least one; got [].")
    return list(seed)  # type: ignore[arg-type]


def _several(value: Any) -> bool:
    return isinstance(value, list | tuple | range) or getattr(value, "ndim", 0) > 0


def _is_number(value: Any) -> bool:
    if isinstance(value, str | bytes | bool | np.bool_) or _several(value):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _start(problem: Problem, x0: Tree | None) -> Tree:
    """Give the model to start from, checked, in the problem's dtype."""
    if x0 is None:
        return problem.x0

    def leaf(like, value):
        try:
            array = np.asarray(value)
            if array.dtype.kind not in "biufV":  # V: bfloat16
                raise ValueError
            array = array.astype(problem.dtype)
        except ValueError:
            raise ValueError(f"x0 must be real numbers; got {shown(value)}.") from None
        if array.shape != np.shape(like):
            raise ValueError(f"x0 must have shape {np.shape(like)}; got {array.shape}.")
        if not np.all(np.isfinite(array)):
            raise ValueError("x0 must be finite; it holds NaN or infinity.")
        return array

    try:
        return tree.map(leaf, problem.x0, x0)
    except (KeyError, TypeError, IndexError):
        raise ValueError(
            "x0 must be a model of this problem: nested dicts with the same names."
        ) from None
