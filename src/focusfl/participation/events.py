"""From event logs of phones to the availability matrix that `Trace` takes.

The logs are those of FLASH: Yang et al. WWW 2021.
https://github.com/PKU-Chengxu/FLASH
"""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int8

from focusfl.core.validation import check_count, shown

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
    grid_minutes since midnight, from the first event of all to the last, or from
    `start` to `end` ("2020-01-29" or "2020-01-29 12:00"). `logs` is
    {device: {"messages": "YYYY-mm-dd HH:MM:SS \\t event" lines}}, or the path of such
    a .json or .json.gz file.

    Args:
        logs: {device: {"messages": text}}, or the path of such a file.
        grid_minutes: minutes from one time to the next.
        start: the first time; the first event of all, if None.
        end: the last time; the last event of all, if None.

    Raises:
        ValueError: If there is no event, or end is before start.
    """
    check_count("grid_minutes", grid_minutes)
    if not isinstance(logs, Mapping | str | Path):
        raise ValueError(f"logs must be a mapping or a path; got {shown(logs)}.")
    found = logs if isinstance(logs, Mapping) else _read(logs)
    if not isinstance(found, Mapping) or not all(
        isinstance(device, Mapping) and isinstance(device.get("messages"), str)
        for device in found.values()
    ):
        raise ValueError('logs must look like {device: {"messages": text}}.')
    devices = [_parse(name, log["messages"]) for name, log in found.items()]
    if not sum(len(times) for times, _ in devices):
        raise ValueError("the logs hold no events; give at least one device with some.")
    step = np.timedelta64(60 * grid_minutes, "s")
    seen = np.concatenate([times for times, _ in devices])
    first = seen.min() if start is None else _time("start", start)
    last = seen.max() if end is None else _time("end", end)
    first -= (first - first.astype("datetime64[D]")) % step
    if last < first:
        raise ValueError(f"end must not be before start; got {end} and {start}.")
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
            return json.load(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot read {path} as logs in JSON: {reason}.") from None
