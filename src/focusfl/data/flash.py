"""When real phones are available. Yang et al., FLASH, WWW 2021.

https://github.com/PKU-Chengxu/FLASH
"""

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int8

from focusfl.core.files import parse_json
from focusfl.data.places import Place, find
from focusfl.data.samples import unpacked

START, END, STEP = "2020-01-29", "2020-02-03", 30  # of the table; minutes
KNOWN = 0.5  # the least share of times at which a phone's state is known
# By signal, what an event says. The table's makers left locks, 3G and 4G out.
SIGNALS = (
    {"screen_off": True, "screen_on": False},
    {"battery_charged_on": True, "battery_charged_off": False},
    {"wifi": True, "2G": False, "Unknown": False},
)


def flash_logs(data_dir: Place = None) -> dict[str, Any]:
    """Load the logs of 1,000 phones, as `participation.from_events` takes them.

    By phone: {"guid", "model", "messages"}, the latter lines of a time and an event. A
    folder that has flash_state_traces_100dev.json.gz gives the first 100 phones.

    Raises:
        ValueError: If the file cannot be had, or is no such file.
    """
    (path,) = find("flash_logs", data_dir)
    return _read(path)


def _read(path: Path) -> dict[str, Any]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            logs = parse_json(file.read())
        if not all(isinstance(phone["messages"], str) for phone in logs.values()):
            raise TypeError("messages must be text")
    except (
        OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zlib.error
    ) as error:  # fmt: skip
        raise ValueError(
            f'cannot read {path} as {{phone: {{"messages": text}}}}: {error}.'
        ) from None
    return logs


def flash_availability(data_dir: Place = None) -> Int8[np.ndarray, "times phones"]:
    """Load when 723 phones were available: 1 they were, 0 not, -1 unknown.

    A row for every 30 minutes of five days, 241 in all. A phone is available while its
    screen is off, it is charging and on wifi. Phones whose state is unknown at most
    times are left out. `participation.Trace` takes this table.

    Raises:
        ValueError: If the file cannot be had, or is no such file.
    """
    (path,) = find("flash_availability", data_dir)
    if path.suffix == ".npz":
        return unpacked(path, ("avail",))[0].astype(np.int8)
    return availability(_read(path))


def availability(logs: dict[str, Any]) -> Int8[np.ndarray, "times phones"]:
    """Make the table of logs, as it was made for 1,000 phones; see the above.

    Each of three signals is known from its first event to its last. A phone is
    unavailable where one of them is known to be off, available where all are known to
    be on. Phones without events of a signal are left out.
    """
    step = np.timedelta64(STEP, "m")
    times = np.arange(np.datetime64(START), np.datetime64(END) + step, step)
    columns = []
    for phone in logs.values():
        lines = [line.split("\t") for line in phone["messages"].splitlines()]
        events = [(line[0].strip(), line[1].strip()) for line in lines if len(line) == 2]
        signals = [_states(events, signal, times) for signal in SIGNALS]
        if any(states is None for states in signals):
            continue
        states = np.array(signals)
        column = np.where((states == 0).any(0), 0, states.min(0))
        if np.mean(column >= 0) >= KNOWN:
            columns.append(column)
    if not columns:
        raise ValueError("the logs must have a phone whose state is known; got none.")
    return np.stack(columns, 1).astype(np.int8)


def _states(
    events: list[tuple[str, str]], signal: dict[str, bool], times: np.ndarray
) -> np.ndarray | None:
    """Return 1 on, 0 off, -1 unknown at these times; None if there is no event."""
    changes = [(time, signal[event]) for time, event in events if event in signal]
    if not changes:
        return None
    changes.sort(key=lambda change: change[0])  # stable: of those at one time the last counts
    when = np.array([time for time, _ in changes], "datetime64[s]")
    values = np.array([on for _, on in changes], np.int8)
    last = np.searchsorted(when, times, "right") - 1
    inside = (times >= when[0]) & (times <= when[-1])
    return np.where(inside, values[last], -1)
