"""What is said in a session: four stages, each a request and a reply.

keys    two public keys of every site, made for this session
shares  the keys of all; shares of a site's secrets, sealed for every other
push    what was sealed for a site, and the plain protocol's request; a masked push
unmask  whose pushes came; shares of these sites' seeds and of the others' keys
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from focusfl.flower.protocol.messages import (
    Refused,
    Wired,
    decode,
    encode,
    load_flat,
    nest,
    pack,
)

STAGES = ("keys", "shares", "push", "unmask")


class Stage(NamedTuple):
    """The header of a request and of its reply: which stage of which session."""

    stage: str  # one of STAGES
    secure: str  # the policy
    job: str
    site: str
    incarnation: str  # of the server
    generation: int
    round: int
    session: int  # its number, of those of this server

    @property
    def about(self) -> bytes:
        """The session, for what is sealed in it."""
        return f"{self.job} {self.incarnation} {self.session}".encode()


class Said(NamedTuple):
    """A message that was read: nothing is known of its bytes yet but their paths."""

    stage: Stage
    digest: str  # the message's checksum
    parts: dict[str, Any]  # bytes, or tables of bytes by name


def write(stage: Stage, parts: Mapping[str, Any]) -> Wired:
    """A message of these bytes, and tables of bytes."""
    return encode(stage, {"body": pack(_arrays(parts))})


def read(message: Wired) -> Said:
    """Check the header of a message and unpack it."""
    stage, name = decode(message, Stage, {"body"})
    if stage.stage not in STAGES:
        words = f"stage must be one of {', '.join(STAGES)}"
        raise Refused(f"{words}; got {stage.stage[:80]!a}.")
    flat = load_flat(message.get("body", b""))
    roots = {path.split("/")[0] for path in flat}
    return Said(stage, name, {root: _bytes(nest(flat, root)) for root in roots})


def table(said: Said, name: str, size: int | None = None) -> dict[str, bytes]:
    """A table of bytes by site, each so long; Refused if there is none."""
    found = said.parts.get(name, {})
    if not isinstance(found, dict):
        raise Refused(f"{name} must be a table; got bytes.")
    return {key: _sized(found[key], f"{name} of {key[:80]!a}", size) for key in found}


def blob(said: Said, name: str, size: int | None = None) -> bytes:
    """Some bytes, so long; Refused if they are not there."""
    return _sized(said.parts.get(name), name, size)


def only(said: Said, *names: str) -> None:
    """Raise Refused if a message carries anything else."""
    if not said.parts.keys() <= {*names}:
        raise Refused(f"it must carry {', '.join(names) or 'nothing'} and no more.")


def _sized(found: Any, name: str, size: int | None) -> bytes:
    if not isinstance(found, bytes):
        raise Refused(f"{name} must be bytes.")
    if size is not None and len(found) != size:
        raise Refused(f"{name} must have {size} bytes; got {len(found)}.")
    return found


def _arrays(part: Any) -> Any:
    if isinstance(part, Mapping):
        return {name: _arrays(inner) for name, inner in part.items()}
    return np.frombuffer(part, "|u1")


def _bytes(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _bytes(inner) for name, inner in part.items()}
    if getattr(part, "dtype", None) != np.uint8 or part.ndim != 1:
        raise Refused("it carries what is not bytes.")
    return part.tobytes()
