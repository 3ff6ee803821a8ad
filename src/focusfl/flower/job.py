"""A training as its server app needs it: what is learned, by whom, in what rounds."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from focusfl.core import Algorithm
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_flag, check_one_of, check_positive, unknown
from focusfl.flower.identity import expiries, read_keys
from focusfl.flower.protocol import ProtocolServer
from focusfl.flower.protocol.settings import check_max_memory, check_settings
from focusfl.flower.secure import Secure, SecureServer
from focusfl.flower.secure.policy import UNSEEN, check_job
from focusfl.simulation.step_sizes import tabled

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}

UNBOUND = "no keys in the job: nodes are believed by name, or else by their word."


@dataclass(frozen=True, eq=False)
class Job:
    """What is learned, by whom, and when a round is over.

    A round closes when `target` sites have answered, or all that were asked. At the
    `deadline` it closes without the rest, if at least `minimum` have answered. Answers that
    come later count in the round that is open then.

    Attributes:
        algorithm: of the server and of all sites.
        params: the model to start from.
        sites: names of everybody who may take part.
        rounds: how many in all, those of earlier runs among them.
        lr: step size, or a function of the round's number.
        folder: of the server's state, by which a killed app continues; ~ is expanded.
        job: name of the training. Another name begins anew.
        local_steps: gradients that a site computes in a round.
        on_empty: "step" if a round without answers moves the model, as momentum would.
        max_norm: the largest Euclidean norm of a push that counts; None: as the pushes before
            it suggest.
        max_memory: the largest Euclidean norm of what all pushes of a site add up to at the
            server, such as its last gradient; None: any. A push beyond it is refused.
        deadline: seconds after which a round closes without who is missing.
        minimum: sites without which no round closes.
        target: sites with which a round closes at once; None: everybody who was asked.
        patience: seconds until a site that has not answered is asked again.
        poll: seconds between two looks at what has come.
        evaluate: gives metrics of a model, on the server.
        eval_every: rounds between evaluations on the sites. 0: at the start and the end alone,
            and not there either if `evaluate` gives a grad_norm.
        per_client: whether to report the worst site's metrics, the worst tenth's and the
            spread, among the sites that answer, beside the mean.
        about: further facts, written with the results.
        weights: how much each site counts, by site; None: all alike.
        keys: public keys by site, or a folder on the server with SITE.pub for each: a node
            without such a key is no site. None: nodes are believed by name, or by their word.
        changed: "accept" to go on with another lr, local_steps, on_empty or params than the
            job was begun with.
        secure: add up pushes without reading them, nor the model; None: read both. Then
            `evaluate` is not called, and sites do not evaluate.
    """

    algorithm: Algorithm
    params: Tree
    sites: tuple[str, ...]
    rounds: int
    lr: float | Callable[[int], float]
    folder: str | Path
    job: str = "focusfl"
    local_steps: int = 1
    on_empty: Literal["skip", "step"] = "skip"
    max_norm: float | None = None
    max_memory: float | None = None
    deadline: float = 60.0
    minimum: int = 1
    target: int | None = None
    patience: float = 300.0
    poll: float = 0.2
    evaluate: Callable[[Tree], Mapping[str, Any]] | None = None
    eval_every: int = 0
    per_client: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, float | int] | None = None
    keys: Mapping[str, str] | str | Path | None = None
    changed: Literal["refuse", "accept"] = "refuse"
    secure: Secure | None = None

    def __post_init__(self):
        check_settings(
            self.job, self.sites, self.lr, self.local_steps, self.on_empty,
            self.max_norm, self.weights,
        )  # fmt: skip
        for name in ("rounds", "minimum"):
            check_count(name, getattr(self, name))
        if callable(self.lr):
            tabled(self.lr, self.rounds)  # raises where it gives no step
        check_count("eval_every", self.eval_every, least=0)
        check_flag("per_client", self.per_client)
        check_one_of("changed", self.changed, ("refuse", "accept"))
        if self.secure is not None:
            options = {name: getattr(self, name) for name in UNSEEN}
            check_job(self.secure, self.algorithm, self.params, len(self.sites), options)
        check_max_memory(self.max_memory, self.algorithm, self.params)
        for name in ("deadline", "patience", "poll"):
            check_positive(name, getattr(self, name))
        if isinstance(self.keys, Mapping):
            self.sites_by_key()  # raises where a site has none
        most = len(self.sites)
        if not self.least <= (most if self.target is None else self.target) <= most:
            raise ValueError(
                f"minimum and target must satisfy minimum <= target <= {most} sites; "
                f"got {self.least} and {self.target}."
            )

    @property
    def least(self) -> int:
        """Sites without which no round closes: `minimum`, or that of secure sums."""
        return max(self.minimum, self.secure.minimum if self.secure else 1)

    @property
    def place(self) -> Path:
        """The folder of this job alone, which its owner alone can read."""
        return Path(self.folder).expanduser() / self.job

    @property
    def total_weight(self) -> float | int:
        """The sum of all weights; the number of sites if they have none."""
        if self.weights is None:
            return len(self.sites)
        return math.fsum(self.weights[site] for site in self.sites)

    def sites_by_key(self) -> dict[bytes, str] | None:
        """Read the sites by their public keys; None if the job has no keys."""
        return read_keys(self.keys, self.sites) if self.keys else None

    def notices(self) -> list[str]:
        """Say what an operator should know before the job begins."""
        if not self.keys:
            return [UNBOUND]
        if isinstance(self.keys, Mapping):
            return []
        return expiries(Path(self.keys).expanduser())

    def open_protocol(self) -> ProtocolServer:
        """Open the server's side of the protocol, from where it was left."""
        kind: Callable[..., ProtocolServer] = ProtocolServer
        if self.secure is not None:
            kind = partial(SecureServer, secure=self.secure)
        return kind(
            self.algorithm, self.params, list(self.sites), self.folder, job=self.job,
            lr=self.lr, local_steps=self.local_steps, on_empty=self.on_empty,
            max_norm=self.max_norm, max_memory=self.max_memory, weights=self.weights,
            changed=self.changed,
        )  # fmt: skip

    def configured(self, config: Mapping[str, Any], own: Collection[str] = ()) -> "Job":
        """Replace fields by an app's configuration, which has dashes for underscores.

        Args:
            config: Flower's `run_config`.
            own: names of settings that are the app's own, and no fields of a job.

        Raises:
            ValueError: If a setting is unknown, or of a wrong type.
        """
        settings = {f.name.replace("_", "-"): f for f in fields(self) if _choices(f)}
        changes: dict[str, Any] = {}
        for key, value in config.items():
            if key in settings:
                changes[settings[key].name] = _parse(key, value, settings[key])
            elif key not in own:
                words = unknown("setting of the app", key, {*settings, *own})
                raise ValueError(f"{words} Its own are named in server_app(own=...).")
        return replace(self, **changes)


def _choices(setting: Field) -> tuple[Any, ...]:
    """List the types, or the words, that a configuration may give to a field."""
    origin, inner = get_origin(setting.type), get_args(setting.type)
    if origin is Literal:
        return inner
    kinds = inner if origin in (UnionType, tuple) else (setting.type,)
    return tuple(kind for kind in WORDS if kind in kinds)


def _parse(key: str, value: Any, setting: Field) -> Any:
    """Convert a setting to what its field takes; ValueError if that cannot be."""
    choices = _choices(setting)
    if setting.name == "sites" and isinstance(value, str):
        return tuple(value.split())
    if float in choices and type(value) is int:
        return float(value)
    if value not in choices and type(value) not in choices:
        words = " or ".join(WORDS.get(choice) or repr(choice) for choice in choices)
        raise ValueError(f"{key} of the app's settings must be {words}; got {value!r}.")
    return value
