"""What a site of secure sums keeps on disk: its state, its secrets, its last words."""

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save as to_bytes

from focusfl.core.files import renamed
from focusfl.flower.protocol.messages import (
    Refused,
    Wired,
    decode,
    encode,
    load_flat,
    nest,
    pack,
)
from focusfl.flower.secure.crypto import Keys

REPLY = "reply "  # before the names of a reply's parts

log = logging.getLogger(__name__)


class Header(NamedTuple):
    """Of a session's file."""

    incarnation: str
    session: int
    done: int
    request: str


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


def write_parts(path: Path, parts: Wired) -> None:
    """Replace a file as a whole; when this returns, it is on disk."""
    with renamed(path, private=True) as part:
        part.write_bytes(to_bytes(_arrays(parts)))


def read_parts(path: Path) -> Wired:
    """The parts of a file; none if it is missing or damaged."""
    try:
        found = load_flat(path.read_bytes())
        return {name: array.tobytes() for name, array in found.items()}
    except FileNotFoundError:
        return {}
    except Refused as error:
        log.warning("%s is damaged: %s", path, error)
        return {}


def save(path: Path, held: Held) -> None:
    """Replace the file of a session; when this returns, it is on disk."""
    header = Header(held.incarnation, held.session, held.done, held.request)
    tables = {"keys": held.keys._asdict(), "public": held.public, "shares": held.shares}
    body = pack({name: _arrays(table) for name, table in tables.items()})
    said = {REPLY + name: part for name, part in held.reply.items()}
    write_parts(path, encode(header, {"body": body}) | said)


def load(path: Path) -> Held | None:
    """What is on disk; None if nothing is, or if it is damaged: the site then sits out
    until the next session."""
    found = read_parts(path)
    if not found:
        return None
    own = {name: part for name, part in found.items() if not name.startswith(REPLY)}
    try:
        header, _ = decode(own, Header, {"body"})
        flat = load_flat(own["body"])
        keys, public, shares = (
            {name: part.tobytes() for name, part in nest(flat, root).items()}
            if any(path.startswith(f"{root}/") for path in flat)
            else {}
            for root in ("keys", "public", "shares")
        )
        held = Held(
            header.incarnation, header.session, header.done, Keys(**keys), public,
            shares, header.request,
        )  # fmt: skip
    except (Refused, KeyError, TypeError) as error:
        log.warning("%s: %s This site waits for the next session.", path, error)
        return None
    said = {n.removeprefix(REPLY): b for n, b in found.items() if n.startswith(REPLY)}
    return held._replace(reply=said)


def _arrays(table: dict[str, bytes]) -> dict[str, np.ndarray]:
    return {name: np.frombuffer(blob, "|u1") for name, blob in table.items()}
