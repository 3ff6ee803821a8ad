"""How long clients take: compute, links and latency, and phones that come and go."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from focusfl.core import random as keys
from focusfl.core.validation import (
    check_count,
    check_flag,
    check_not_negative,
    check_positive,
    numeric,
)
from focusfl.participation.model import Ids, Numbers, PerClient, check_devices, check_each, numbers
from focusfl.participation.trace import read_avail

SPREAD = ("median", "sigma")  # of a lognormal distribution over clients
MBIT = 125_000  # bytes

Amount = Numbers | dict  # one for all, one per client, or {"median": 1, "sigma": 0.5}


class Work(NamedTuple):
    """What a reply takes."""

    local_steps: int
    bytes_down: float | int
    bytes_up: float | int


@dataclass(frozen=True, eq=False)
class LatencyModel:
    """Seconds that a client's reply takes, from the request to its arrival:

        latency + bytes_down / down + jitter * local_steps * compute + bytes_up / up.

    Each is one number for all clients, a list with one for each (measured ones, say),
    or {"median": 0.1, "sigma": 1.0}: a lognormal distribution that each client's own
    is drawn from, by `seed`.

    With a `trace` a client works only while it is there, at the speed it says, and its
    replies wait meanwhile: transfers too. It begins again after its last time.
    """

    compute: Amount = 0.0  # seconds of a local step
    up: Amount = np.inf  # Mbit/s that a client sends
    down: Amount = np.inf  # Mbit/s that it receives
    latency: Amount = 0.0  # seconds on the way, there and back
    jitter: float | int = 0.0  # sigma of a lognormal factor of each reply's compute
    trace: str | Path | list | np.ndarray | None = None  # (times, devices) or a path
    grid: float | int = 1800.0  # seconds that a time of the trace lasts
    drop_absent: bool = False  # leave out devices that are never there
    seed: int = 0  # of what is drawn for each client

    def __post_init__(self):
        for name in ("compute", "up", "down", "latency"):
            _check_amount(name, getattr(self, name), name in ("up", "down"))
        check_not_negative("jitter", self.jitter)
        check_positive("grid", self.grid)
        check_flag("drop_absent", self.drop_absent)
        check_count("seed", self.seed, least=0)
        if self.trace is not None:
            object.__setattr__(self, "trace", _speeds(self.trace))

    def check(self, num_clients: int) -> None:
        """Raise ValueError unless this is a clock of so many clients."""
        for name in ("compute", "up", "down", "latency"):
            if not isinstance(getattr(self, name), Mapping):
                check_each(name, getattr(self, name), num_clients)
        if self.trace is not None:
            is_ever_there = np.asarray(self.trace).any(0)
            check_devices("the trace", is_ever_there, num_clients, self.drop_absent)

    def pace(self, num_clients: int, work: Work) -> "Pace":
        """How long each of so many clients takes for such a reply."""
        latency, down, up, compute = (
            self._of(name, num_clients) for name in ("latency", "down", "up", "compute")
        )
        travel = latency + work.bytes_down / (MBIT * down) + work.bytes_up / (MBIT * up)
        return Pace(travel, work.local_steps * compute, self._presence(num_clients))

    def factor(self, normal: Any) -> Any:
        """Factors of the compute of replies, by standard normal numbers."""
        return np.exp(self.jitter * normal)

    def _presence(self, num_clients: int) -> "Presence | None":
        """When each client is there, and how fast; None: always, at full speed."""
        if self.trace is None:
            return None
        speeds = np.asarray(self.trace)
        if self.drop_absent:
            speeds = speeds[:, speeds.any(0)]
        return Presence(speeds[:, :num_clients], float(self.grid))

    def _of(self, name: str, num_clients: int) -> PerClient:
        value: Any = getattr(self, name)
        if not isinstance(value, Mapping):
            return np.broadcast_to(np.asarray(value, float), num_clients)
        normal = keys.rng(self.seed, "clock", name).standard_normal(num_clients)
        return value["median"] * np.exp(value["sigma"] * normal)


class Presence:
    """Clients that work at the speeds of a trace, which begins again at its end."""

    def __init__(self, speeds: Float[np.ndarray, "times clients"], grid: float):
        self.speeds, self.grid = speeds, grid
        self.length = grid * len(speeds)
        first = np.zeros((1, speeds.shape[1]))
        done = np.concatenate([first, np.cumsum(grid * speeds, 0)]).T
        self._done = [row.tolist() for row in done]  # work by every time of the grid
        self._speeds = speeds.T.tolist()

    def there(self, now: float) -> Ids:
        """Those who are there at a time."""
        return np.flatnonzero(self.speeds[self._row(now)])

    def next_time(self, now: float) -> float:
        """The next time of the grid, at which others may be there."""
        return (now // self.grid + 1) * self.grid

    def finish(self, client: int, now: float, seconds: float) -> float:
        """When so many seconds of work at full speed, begun now, are done."""
        done, speeds = self._done[client], self._speeds[client]
        laps, inside = divmod(now, self.length)
        row = min(int(inside // self.grid), len(speeds) - 1)
        target = done[row] + speeds[row] * (inside - row * self.grid) + seconds
        if seconds <= 0:
            return now
        more = ceil(target / done[-1]) - 1
        rest = min(target - more * done[-1], done[-1])  # in (0, the work of a lap]
        row = bisect_left(done, rest) - 1  # the first time by whose end it is done
        after = (rest - done[row]) / speeds[row]
        return (laps + more) * self.length + row * self.grid + after

    def _row(self, now: float) -> int:
        return int(now % self.length // self.grid) % len(self.speeds)


class Pace(NamedTuple):
    """Seconds of full speed that each client takes for a reply."""

    travel: PerClient  # on its way
    compute: PerClient  # at work, before jitter
    presence: Presence | None  # when each is there; None: always, at full speed

    def takes(self, ids: Ids, jitter: np.ndarray) -> PerClient:
        """The seconds of these clients' replies, with factors of their compute."""
        return self.travel[ids] + self.compute[ids] * jitter

    def finish(self, client: int, now: float, seconds: float) -> float:
        """When a client is done with what takes so long, if it begins now."""
        if self.presence is None:
            return now + seconds
        return self.presence.finish(client, now, seconds)


def _check_amount(name: str, value: Any, rate: bool) -> None:
    """Raise unless these are seconds of at least 0, or rates above it."""
    if isinstance(value, Mapping):
        if set(value) != set(SPREAD):
            raise ValueError(
                f"{name} as a distribution over clients must say median and sigma; got "
                f"{', '.join(map(str, value)) or 'nothing'}."
            )
        check_positive(f"{name}: median", value["median"])
        check_not_negative(f"{name}: sigma", value["sigma"])
        return
    array = np.atleast_1d(numbers(name, value))
    wrong = ~(array > 0) if rate else ~((array >= 0) & (array < np.inf))
    if wrong.any():
        first = int(wrong.argmax())
        what = "positive" if rate else "finite and at least 0"
        at = f" for client {first}" if np.ndim(value) else ""
        raise ValueError(f"{name} must be {what}; got {array[first]}{at}.")


def _speeds(trace: Any) -> Float[np.ndarray, "times devices"]:
    """A trace as speeds: 1 is full, 0 and the -1 of what is unknown are away."""
    array = numeric("trace", read_avail(trace))
    if array.ndim != 2 or not array.size:
        raise ValueError(f"trace must be a (times, devices) matrix; got shape {array.shape}.")
    array = np.asarray(array, float)
    wrong = ~((array >= 0) & (array < np.inf) | (array == -1))
    if wrong.any():
        time, device = np.argwhere(wrong)[0]
        raise ValueError(
            "trace must hold speeds of at least 0, or -1 where nothing is known; got "
            f"{array[time, device]} at time {time}, device {device}."
        )
    return np.maximum(array, 0.0)
