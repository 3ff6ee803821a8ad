"""What a site has on disk of a session: its secrets, and what it has said last."""

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np

from focusfl.engines.protocol import files
from focusfl.engines.protocol.format import (
    Refused,
    Wired,
    check_fields,
    encode,
    header,
    pack,
    unpack,
)
from focusfl.engines.protocol.site_state import REPLY
from focusfl.engines.secure.crypto import Keys

log = logging.getLogger(__name__)


class Held(NamedTuple):
    """A session as one site knows it."""

    incarnation: str  # of the server
    session: int
    done: int  # the last stage, by its place among STAGES
    keys: Keys
    public: dict[str, bytes] = {}  # everybody's keys
    shares: dict[str, bytes] = {}  # of others' secrets; empty: it could not be opened
    request: str = ""  # the checksum of what was asked last
    reply: Wired = {}


def save(path: Path, held: Held) -> None:
    """Replace the file as a whole; when this returns, it is on disk."""
    fields = {
        "incarnation": held.incarnation, "session": held.session, "done": held.done,
        "request": held.request,
    }  # fmt: skip
    arrays = {
        "keys": _arrays(held.keys._asdict()),
        "public": _arrays(held.public),
        "shares": _arrays(held.shares),
    }
    said = {REPLY + name: part for name, part in held.reply.items()}
    files.save(path, encode(fields, pack(arrays)) | said)


def load(path: Path) -> Held | None:
    """What is on disk; None if nothing is, or if it is damaged: the site then sits out
    until the next session."""
    try:
        found = files.load(path)
        if found is None:
            return None
        own = {name: part for name, part in found.items() if not name.startswith(REPLY)}
        head = header(own, own=True)
        check_fields(head.fields, incarnation=str, session=int, done=int, request=str)
        parts = unpack(own, head)
        keys = {name: part.tobytes() for name, part in parts["keys"].items()}
        tables = {
            name: {key: part.tobytes() for key, part in parts.get(name, {}).items()}
            for name in ("public", "shares")
        }
    except (Refused, KeyError) as error:
        log.warning("%s: %s This site waits for the next session.", path, error)
        return None
    said = {n.removeprefix(REPLY): b for n, b in found.items() if n.startswith(REPLY)}
    known = {**head.fields, **tables, "keys": Keys(**keys), "reply": said}
    return Held(**known)


def _arrays(table: dict[str, bytes]) -> dict[str, np.ndarray]:
    return {name: np.frombuffer(blob, "|u1") for name, blob in table.items()}
