"""A training as its server app needs it: what is learned, by whom, in what rounds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from flwr.serverapp import Grid

from focusfl.checks import check_count, check_positive
from focusfl.core import Algorithm
from focusfl.engines.wire import Hub
from focusfl.tree import Tree


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
    lr: float
    folder: str | Path  # of the server's state: with it, a killed app goes on
    job: str = "focusfl"
    local_steps: int = 1
    on_empty: Literal["skip", "step"] = "skip"
    copies: bool = False  # keep every site's memory here too, should its disk die
    max_norm: float | None = None  # of a push
    deadline: float = 60.0  # seconds
    minimum: int = 1
    target: int | None = None  # None: everybody who was asked
    patience: float = 300.0  # seconds until a site that has not answered is asked again
    poll: float = 0.2  # seconds
    evaluate: Callable[[Tree], Mapping[str, Any]] | None = None  # on the server
    evaluate_every: int = 0  # rounds between evaluations on the sites; 0: none
    wrap: Callable[[Grid], Grid] | None = None  # a grid that loses things, for tests

    def __post_init__(self):
        for name in ("rounds", "local_steps", "minimum"):
            check_count(name, getattr(self, name))
        for name in ("deadline", "patience", "poll"):
            check_positive(name, getattr(self, name))
        most = len(self.sites)
        if not self.minimum <= (most if self.target is None else self.target) <= most:
            raise ValueError(
                f"minimum and target must satisfy minimum <= target <= {most} sites; "
                f"got {self.minimum} and {self.target}."
            )

    @property
    def place(self) -> Path:
        """The folder of this job alone; its owner's alone too."""
        return Path(self.folder).expanduser() / self.job

    def hub(self) -> Hub:
        """The server's side of the protocol, from where it was left."""
        return Hub(
            self.algorithm, self.params, list(self.sites), self.folder, job=self.job,
            lr=self.lr, local_steps=self.local_steps, on_empty=self.on_empty,
            max_norm=self.max_norm, copies=self.copies,
        )  # fmt: skip

    def configured(self, config: Mapping[str, Any]) -> "Job":
        """Take numbers and words from an app's configuration, dashes for underscores.

        What the configuration has beyond a job's fields belongs to the app.
        """
        changes: dict[str, Any] = {}
        for field in fields(self):
            key = field.name.replace("_", "-")
            kinds = (field.type, *get_args(field.type))
            simple = {kind for kind in (int, float, bool, str) if kind in kinds}
            if key not in config or not simple:
                continue
            value = config[key]
            if field.name == "sites" and isinstance(value, str):
                changes["sites"] = tuple(value.split())
                continue
            if float in simple and type(value) is int:
                value = float(value)
            if type(value) not in simple:
                raise ValueError(
                    f"{key} in the app's configuration must be "
                    f"{' or '.join(kind.__name__ for kind in simple)}; got {value!r}."
                )
            changes[field.name] = value
        return replace(self, **changes)
