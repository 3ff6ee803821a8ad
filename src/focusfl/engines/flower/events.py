"""What happens to a job: a line of JSON each on disk, a line of words for people."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = "events.jsonl"  # in the server's folder of a job
NAMED = 5  # sites at most that are called by their names


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
        words = [f"round {number + 1}", f"online {_who(online)}"]
        words.append(f"answered {_who(facts.pop('counted'))}")
        late = facts.pop("late")
        words += [f"late {_who(late)}"] if late else []
    else:
        words = [f"{kind}:"]
    return "  ".join(
        words + [f"{name} {short(value)}" for name, value in facts.items()]
    )


def _who(sites: Sequence[str]) -> str:
    return ",".join(sorted(sites)) if len(sites) <= NAMED else f"{len(sites)} sites"


def short(value: Any) -> str:
    """A number in a few digits; anything else in a few words."""
    return f"{value:.3g}" if isinstance(value, float) else f"{value!s:.120}"
