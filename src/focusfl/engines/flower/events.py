"""What happens to a job: a line of JSON each on disk, a line of words for people."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = "events.jsonl"  # in the server's folder of a job


def write(folder: Path, event: Mapping[str, Any]) -> None:
    """Append an event."""
    with open(folder / FILE, "a") as file:
        file.write(json.dumps(event) + "\n")


def describe(event: Mapping[str, Any]) -> str:
    """Say what happened; nothing where it does not matter to people."""
    facts = dict(event)
    kind, number, online = (
        facts.pop(name, "") for name in ("event", "round", "online")
    )
    if kind == "open":
        return ""
    if kind == "round":
        answered, late = len(facts.pop("counted")), len(facts.pop("late"))
        words = [f"round {number + 1}", f"online {len(online)}", f"answered {answered}"]
        words += [f"late {late}"] if late else []
    else:
        words = [f"{kind}:"]
    return "  ".join(
        words + [f"{name} {short(value)}" for name, value in facts.items()]
    )


def short(value: Any) -> str:
    """A number in a few digits; anything else in a few words."""
    return f"{value:.3g}" if isinstance(value, float) else f"{value!s:.120}"
