"""Who was there in a recorded trace: real phones, real gaps.

`from_events` makes such a trace from the event logs of FLASH: Yang et al. WWW 2021.
https://github.com/PKU-Chengxu/FLASH
"""

import gzip
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import is_zipfile

import numpy as np
from jaxtyping import Int8

from focusfl.core.files import parse_json
from focusfl.core.registry import PARTICIPATION
from focusfl.core.validation import check_count, check_flag, check_one_of, numeric, shown
from focusfl.data.flash import flash_availability
from focusfl.data.samples import array_of
from focusfl.participation.model import Marginals, Participation, check_devices, ids_of

UNKNOWN = ("away", "hold", "error")
MAX_TIMES = 1 << 20  # of a table that is made of logs: 60 years of half hours


@PARTICIPATION.register("trace")
@dataclass(frozen=True, eq=False)
class Trace(Participation):
    """A recorded availability: everybody who was there at that time takes part.

    `avail` is a (times, devices) matrix with 1 there, 0 not and -1 unknown, the path of
    an .npz file that holds one by this name, in which $VARIABLES are replaced, or
    "flash_availability", the data set of real phones, which is fetched if need be. The
    clients are the first devices of the trace; `drop_absent` skips those that are never
    there. Each time lasts `rounds_per_step` rounds, and after the last comes the first.

    `unknown` is what to make of -1: "away", "hold" the last known state (away if there
    is none), or "error".
    """

    avail: str | Path | list | np.ndarray  # (times, devices) or a path
    unknown: str = "away"  # what -1 means: "away", "hold" or "error"
    rounds_per_step: int = 1  # rounds that a time lasts
    wrap: bool = True  # begin again after the last time; else that is an error
    drop_absent: bool = False  # leave out devices that are never there

    def __post_init__(self):
        check_count("rounds_per_step", self.rounds_per_step)
        check_one_of("unknown", self.unknown, UNKNOWN)
        check_flag("wrap", self.wrap)
        check_flag("drop_absent", self.drop_absent)
        avail = numeric("avail", read_avail(self.avail))
        if avail.ndim != 2 or not avail.size or not np.all(np.isin(avail, (-1, 0, 1))):
            raise ValueError(
                "avail must be a (times, devices) matrix of 1 (there), 0 (not) and -1 "
                f"(unknown); got shape {avail.shape} of {avail.dtype}."
            )
        object.__setattr__(self, "avail", avail.astype(np.int8))
        holes = np.argwhere(avail == -1)
        if self.unknown == "error" and len(holes):
            raise ValueError(
                f"avail has {len(holes)} unknown entries; the first is time "
                f'{holes[0, 0]}, device {holes[0, 1]}. Use unknown = "away" or "hold".'
            )

    def check(self, num_clients):
        check_count("num_clients", num_clients)
        check_devices("the trace", self._there().any(0), num_clients, self.drop_absent)

    def draw(self, state, rounds, num_clients, rng):
        del rng  # deterministic
        there = self._clients(num_clients)
        last = len(there) * self.rounds_per_step
        if not self.wrap and rounds.stop > last:
            raise ValueError(
                f"the trace holds {last} rounds; round {last} was asked for. "
                "Run fewer rounds, raise rounds_per_step or use wrap = true."
            )
        times = np.array(rounds) // self.rounds_per_step % len(there)
        return state, ids_of(there[times])

    def marginals(self, num_clients):
        """Average over the trace."""
        self.check(num_clients)
        there = self._clients(num_clients)
        active = np.maximum(there.sum(1, keepdims=True), 1)
        return Marginals(there.mean(0), (there / active).mean(0))

    def _clients(self, num_clients):
        there = self._there()
        if self.drop_absent:
            there = there[:, there.any(0)]
        return there[:, :num_clients]

    def _there(self):
        avail = np.asarray(self.avail)
        if self.unknown == "hold":
            times = np.arange(len(avail))[:, None]
            last_known = np.maximum.accumulate(np.where(avail >= 0, times, 0))
            avail = np.take_along_axis(avail, last_known, 0)
        return avail == 1


def read_avail(avail):
    """Give the matrix itself, that in a file, or that of the phones of FLASH."""
    if not isinstance(avail, str | Path):
        return avail
    if avail == "flash_availability":
        return flash_availability()
    path = os.path.expandvars(avail)
    try:
        if not is_zipfile(path):  # or numpy would take it for a pickle, and say so
            open(path, "rb").close()
            raise ValueError("it is no such file; np.savez(path, avail=matrix) makes one")
        with open(path, "rb") as file, np.load(file) as arrays:
            return array_of(arrays, "avail")
    except Exception as error:  # a damaged file can make a reader raise anything
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise ValueError(
            f"cannot read {path} as an .npz file that holds avail: {reason}."
        ) from None


EVENTS = {  # the switch an event turns, and where to
    "screen_off": ("off", 1), "screen_on": ("off", 0),
    "screen_lock": ("locked", 1), "screen_unlock": ("locked", 0),
    "battery_charged_on": ("charging", 1), "battery_charged_off": ("charging", 0),
    "wifi": ("wifi", 1), "Unknown": ("wifi", 0),
    "2G": ("wifi", 0), "3G": ("wifi", 0), "4G": ("wifi", 0), "5G": ("wifi", 0),
}  # fmt: skip


def from_events(
    logs: str | Path | Mapping,
    grid_minutes: int = 30,
    start: str | None = None,
    end: str | None = None,
) -> Int8[np.ndarray, "times devices"]:
    """Say which devices were available on a grid of times, from their event logs.

    Available (1) is off or locked, and charging, and on wifi; one of the three known to
    be missing makes a 0. It is unknown (-1) where the log does not tell: before the
    first events of a device and after its last one. Times are the multiples of
    grid_minutes since midnight.

    Args:
        logs: {device: {"messages": "YYYY-mm-dd HH:MM:SS \\t event" lines}}, or the path
            of such a .json or .json.gz file.
        grid_minutes: minutes from one time to the next.
        start: the first time, as "2020-01-29" or "2020-01-29 12:00"; that of the first
            event of all, if None.
        end: the last time; that of the last event of all, if None.

    Raises:
        ValueError: If there is no event, or end is before start.
    """
    check_count("grid_minutes", grid_minutes)
    if not isinstance(logs, Mapping | str | Path):
        raise ValueError(f"logs must be a mapping or a path; got {shown(logs)}.")
    table = logs if isinstance(logs, Mapping) else _read(logs)
    try:
        texts = {name: str.strip(log["messages"]) for name, log in table.items()}
    except (AttributeError, KeyError, TypeError):
        raise ValueError('logs must look like {device: {"messages": text}}.') from None
    devices = [_parse(name, text) for name, text in texts.items()]
    if not sum(len(times) for times, _ in devices):
        raise ValueError("the logs hold no events; give at least one device with some.")
    step = np.timedelta64(60 * grid_minutes, "s")
    seen = np.concatenate([times for times, _ in devices])
    first = seen.min() if start is None else _time("start", start)
    last = seen.max() if end is None else _time("end", end)
    first -= (first - first.astype("datetime64[D]")) % step
    if last < first:
        raise ValueError(f"end must not be before start; got {end} and {start}.")
    if (count := (last - first) // step) >= MAX_TIMES:
        raise ValueError(
            f"the logs span {count} times, from {first} to {last}; at most {MAX_TIMES} will do. "
            "Give start and end, or larger grid_minutes."
        )
    grid = np.arange(first, last + np.timedelta64(1, "s"), step)
    return np.stack([_available(device, grid) for device in devices], axis=1)


def _time(name, text):
    try:
        if isinstance(text, str):
            return np.datetime64(text, "s")
    except ValueError:
        pass
    raise ValueError(
        f'{name} must look like "2020-01-29" or "2020-01-29 12:00"; got {shown(text)}.'
    )


def _available(device, grid):
    times, events = device

    def at(switch):
        """Find where a switch was last seen, at every time of the grid; -1 unknown."""
        turns = [i for i, event in enumerate(events) if event[0] == switch]
        positions = np.array([-1, *(events[i][1] for i in turns)], np.int8)
        return positions[np.searchsorted(times[turns], grid, side="right")]

    idle = np.maximum(at("off"), at("locked"))  # a lit screen may still be locked
    needs = np.stack([idle, at("charging"), at("wifi")])
    out = np.where((needs == 0).any(0), np.int8(0), needs.min(0))
    out[grid > (times[-1] if len(times) else grid[0])] = -1
    return out


def _parse(name, messages):
    """Turn a log into sorted times and (switch, position), without battery levels."""
    when, events = [], []
    for line in filter(str.strip, messages.splitlines()):
        time, _, event = (part.strip() for part in line.partition("\t"))
        if event not in EVENTS and not event.endswith("%"):
            raise ValueError(
                f"device {name}: {line!r} is not a time, a tab and a known event. "
                f"Known: {', '.join(EVENTS)} and battery levels in %."
            )
        when.append(time)
        events.append(EVENTS.get(event, ("level", 0)))
    try:
        times = np.array(when, "datetime64[s]")
    except ValueError as error:
        raise ValueError(
            f"device {name} has a time that is not YYYY-mm-dd HH:MM:SS: {error}."
        ) from None
    order = np.argsort(times, kind="stable")
    return times[order], [events[i] for i in order]


def _read(path):
    opened = gzip.open if str(path).endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            return parse_json(file.read())
    except (OSError, EOFError, ValueError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot read {path} as logs in JSON: {reason}.") from None
