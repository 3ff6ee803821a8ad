"""A training as its server app needs it: what is learned, by whom, in what rounds."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from focusfl.core import Algorithm
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_flag, check_one_of, check_positive, unknown
from focusfl.flower import public_keys
from focusfl.flower.protocol import ProtocolServer
from focusfl.flower.protocol.settings import check_settings, weight_of
from focusfl.flower.secure import Secure, SecureServer
from focusfl.flower.secure.policy import check_job
from focusfl.simulation.step_sizes import tabled

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}

UNBOUND = "no keys in the job: nodes are believed by name, or else by their word."


@dataclass(frozen=True, eq=False)
class Job:
    """What is learned, by whom, and when a round is over.

    A round closes when `target` sites have answered, or all that were asked; at the
    `deadline` it closes without the rest, if there are `minimum`. What comes later is
    counted in the round that is open then.
    """

    algorithm: Algorithm
    params: Tree  # the model to start from
    sites: tuple[str, ...]
    rounds: int
    lr: float | Callable[[int], float]  # or a function of the round
    folder: str | Path  # of the server's state: with it, a killed app goes on
    job: str = "focusfl"
    local_steps: int = 1
    on_empty: Literal["skip", "step"] = "skip"
    max_norm: float | None = None  # of a push; None: as the pushes before it say
    deadline: float = 60.0  # seconds
    minimum: int = 1
    target: int | None = None  # None: everybody who was asked
    patience: float = 300.0  # seconds until a site that has not answered is asked again
    poll: float = 0.2  # seconds
    evaluate: Callable[[Tree], Mapping[str, Any]] | None = None  # on the server
    # Rounds between evaluations on the sites. 0: at the start and the end alone, and
    # not there either if `evaluate` gives a grad_norm.
    eval_every: int = 0
    # Of what sites find: their mean, or also the worst site's, the worst tenth's and
    # the spread, among those that answer.
    per_client: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)  # said with its results
    weights: Mapping[str, float | int] | None = None  # by site; None: all alike
    # Public keys by site, or a folder on the server with SITE.pub for each: who has no
    # such key is no site. None: nodes are believed by name, or by their word.
    keys: Mapping[str, str] | str | Path | None = None
    # A job that was begun with another lr, local_steps, on_empty or params.
    changed: Literal["refuse", "accept"] = "refuse"
    # Learn the sums of pushes and no single one; None: every push.
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
        if self.eval_every < 0:
            raise ValueError(
                f"eval_every must be a whole number of at least 0; got {self.eval_every!r}."
            )
        check_flag("per_client", self.per_client)
        check_one_of("changed", self.changed, ("refuse", "accept"))
        if self.secure is not None:
            self._check_secure()
        for name in ("deadline", "patience", "poll"):
            check_positive(name, getattr(self, name))
        if isinstance(self.keys, Mapping):
            self.known()  # raises where a site has none
        most = len(self.sites)
        if not self.minimum <= (most if self.target is None else self.target) <= most:
            raise ValueError(
                f"minimum and target must satisfy minimum <= target <= {most} sites; "
                f"got {self.minimum} and {self.target}."
            )

    def _check_secure(self) -> None:
        own = {name: getattr(self, name) for name in ("max_norm", "weights")}
        check_job(self.secure, self.algorithm, self.params, len(self.sites), own)
        if (self.minimum, self.target) != (1, None):
            raise ValueError(
                "how many sites a secure sum has is said by Secure(minimum=...), not "
                f"by minimum and target; got {self.minimum} and {self.target}."
            )

    @property
    def place(self) -> Path:
        """The folder of this job alone; its owner's alone too."""
        return Path(self.folder).expanduser() / self.job

    @property
    def total_weight(self) -> float | int:
        """The sum of all weights; the number of sites where all are alike."""
        return weight_of(self.sites, self.weights)

    def known(self) -> dict[bytes, str] | None:
        """The sites by their public keys; None if they have none here."""
        return public_keys.read(self.keys, self.sites) if self.keys else None

    def notices(self) -> list[str]:
        """What an operator should know before it begins."""
        if not self.keys:
            return [UNBOUND]
        folder = None if isinstance(self.keys, Mapping) else Path(self.keys)
        return public_keys.ending(folder.expanduser()) if folder else []

    def open_protocol(self) -> ProtocolServer:
        """The server's side of the protocol, from where it was left."""
        kind: Callable[..., ProtocolServer] = ProtocolServer
        if self.secure is not None:
            kind = partial(SecureServer, secure=self.secure)
        return kind(
            self.algorithm, self.params, list(self.sites), self.folder, job=self.job,
            lr=self.lr, local_steps=self.local_steps, on_empty=self.on_empty,
            max_norm=self.max_norm, weights=self.weights, changed=self.changed,
        )  # fmt: skip

    def configured(self, config: Mapping[str, Any], own: Collection[str] = ()) -> "Job":
        """Take numbers and words from an app's configuration, dashes for underscores.

        What it has beyond a job's fields must be the app's `own`.
        """
        known = {f.name.replace("_", "-"): f for f in fields(self) if _choices(f)}
        changes: dict[str, Any] = {}
        for key, value in config.items():
            if key in known:
                changes[known[key].name] = _parse(key, value, known[key])
            elif key not in own:
                words = unknown("setting of the app", key, {*known, *own})
                raise ValueError(f"{words} Its own are named in server_app(own=...).")
        return replace(self, **changes)


def _choices(setting: Field) -> tuple[Any, ...]:
    """The types that a configuration may give to a field, or the words; none if not."""
    origin, inner = get_origin(setting.type), get_args(setting.type)
    if origin is Literal:
        return inner
    kinds = inner if origin in (UnionType, tuple) else (setting.type,)
    return tuple(kind for kind in WORDS if kind in kinds)


def _parse(key: str, value: Any, setting: Field) -> Any:
    """A setting as a field takes it; ValueError if it cannot be one."""
    choices = _choices(setting)
    if setting.name == "sites" and isinstance(value, str):
        return tuple(value.split())
    if float in choices and type(value) is int:
        return float(value)
    if value not in choices and type(value) not in choices:
        words = " or ".join(WORDS.get(choice) or repr(choice) for choice in choices)
        raise ValueError(f"{key} of the app's settings must be {words}; got {value!r}.")
    return value
