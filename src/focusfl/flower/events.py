"""Events of a job: one line of JSON each in a file, and lines of words for people."""

import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from focusfl.core.files import make_folder, parse_json
from focusfl.core.validation import printable

FILE = "events.jsonl"  # in the server's folder of a job
NAMED = 3  # sites at most that are called by their names
WIDTH = 80  # columns that a line may take
INDENT = "  "
MAX_REASON = 120  # letters of why a reply was not counted
# Metrics in the order in which they matter to who watches.
FIRST = ("distance", "accuracy", "loss", "grad_norm", "tracker_norm")


def write(folder: Path, event: Mapping[str, Any]) -> None:
    """Append an event to the file of a job, with the time in seconds since 1970."""
    line = json.dumps({**event, "time": round(time.time(), 3)}) + "\n"
    with open(folder / FILE, "ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":  # a line that was being written in a crash
                line = "\n" + line
        file.write(line.encode())


def read(folder: Path) -> list[dict[str, Any]]:
    """Read all events of a job; lines that are no events, as of a crash, are passed over."""
    file, events = folder / FILE, []
    for line in file.read_bytes().splitlines() if file.exists() else ():
        with contextlib.suppress(ValueError):
            event = parse_json(line)
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                events.append(event)
    return events


def lasting(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Drop events of rounds that were undone by restoring the server from a backup.

    A server that begins at an earlier round than it had come to was restored: what it had
    done after that round is not in the model that there is.
    """
    past: list[Mapping[str, Any]] = []
    for event in events:
        if event["event"] == "begin":
            past = [each for each in past if (rounds_done(each) or 0) <= event["round"]]
        past.append(event)
    return past


def rounds_done(event: Mapping[str, Any]) -> int | None:
    """Count the rounds of the model of which an event tells; None if it tells of none."""
    match event["event"]:
        case "begin" | "end":
            return event["round"]
        case "round":
            return event["round"] + 1
        case "evaluation":
            return event["after"]
    return None


def fail(config: Mapping[str, Any], error: Exception) -> None:
    """Write why a server app ends, if its configuration says to which folder and job."""
    folder, job = config.get("folder"), config.get("job")
    if folder and job:
        write_failure(Path(str(folder)).expanduser() / str(job), error)


def write_failure(place: Path, error: Exception) -> None:
    """Write why a server app ends to the folder of its job."""
    make_folder(place, private=True)
    write(place, {"event": "failed", "why": str(error)})


def metrics(event: Mapping[str, Any]) -> dict[str, float]:
    """Give the metrics of an event, the most important first."""
    numbers = event.get("metrics", {})
    return {k: numbers[k] for k in sorted(numbers, key=_rank)}


def describe(event: Mapping[str, Any]) -> str:
    """Say in words what happened; empty where it does not matter to people."""
    kind = event["event"]
    numbers = [f"{name} {short(value)}" for name, value in metrics(event).items()]
    if kind == "open":
        return ""
    if kind == "round":
        return _round(event, numbers)
    words = [f"{kind}:", *([f"{event['site']}:"] if "site" in event else [])]
    if kind == "end":
        words.append(f"{event['round']} rounds")
        words += [] if event.get("healthy", True) else ["unhealthy"]
    if "of" in event and "grad_norm" in metrics(event):
        at = next(n for n, text in enumerate(numbers) if text.startswith("grad_norm"))
        numbers[at] += f" of {event['of']}"
    words += [f"{k} {event[k]}" for k in ("after", "what") if k in event]
    if kind == "begin":
        words.append(f"{event['round']} of {event['rounds']} rounds are done")
    why = "" if kind == "end" else str(event.get("why", ""))  # warnings said that
    if kind in ("nothing", "refused") and len(why) > MAX_REASON:
        why = why[: MAX_REASON - 1] + "…"  # the whole is in the file
    return packed([*words, *numbers, *why.split()])


def _round(event: Mapping[str, Any], numbers: list[str]) -> str:
    """Write a round in one line, as far as there is room: the rest is in the file."""
    total, counted, missing = event["rounds"], event["counted"], event["missing"]
    number = f"{event['round'] + 1:>{len(str(total))}}"
    words = [f"round {number}/{total}"]
    words.append(f"{len(counted)} of {len(counted) + len(missing)} answered")
    eta = [f"ETA {clock(event['eta'])}"]
    rest = [f"late {_who(event['late'])}"] if event["late"] else []
    rest += [f"without {_who(missing)}"] if 0 < len(missing) <= NAMED else []
    for item in [*numbers[:1], *rest, *numbers[1:]]:
        if len("  ".join([*words, item, *eta])) <= WIDTH:
            words.append(item)
    return printable("  ".join(words + eta))


def packed(items: Iterable[str]) -> str:
    """Put items into lines of `WIDTH` columns; no item is broken, later lines are indented."""
    lines = [""]
    for item in map(printable, items):
        alone = not lines[-1] or lines[-1].endswith(":") or " " not in item
        longer = f"{lines[-1]}{' ' if alone else '  '}{item}".lstrip()
        if len(longer) > WIDTH - (len(lines) > 1) * len(INDENT) and lines[-1]:
            lines.append(item)
        else:
            lines[-1] = longer
    return f"\n{INDENT}".join(lines)


def _who(sites: Sequence[str]) -> str:
    return ",".join(sorted(sites)) if len(sites) <= NAMED else f"{len(sites)} sites"


def _rank(name: str) -> int:
    return FIRST.index(name) if name in FIRST else len(FIRST)


def clock(seconds: float) -> str:
    """Write seconds as 1:05 or 2:00:00."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def short(value: Any) -> str:
    """Write a number in a few digits, anything else in a few words."""
    return f"{value:.3g}" if isinstance(value, float) else f"{value!s:.120}"
