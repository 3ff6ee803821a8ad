"""What a server keeps of a state that it cannot read: a sealed base, and what came after.

The server of secure sums cannot apply an update, as it sees no number. It notes updates in a
journal; a site opens the base, replays the journal, computes its push, and seals the state it
came to. That becomes the next base, and the journal begins anew.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from focusfl.core import Algorithm, Client, Message, Round, tree
from focusfl.core import Server as ServerState
from focusfl.core.files import parse_json
from focusfl.flower.protocol.messages import (
    Refused,
    load_flat,
    nest,
    pack,
    paths,
    unpack,
)
from focusfl.flower.protocol.uplink import trial_push
from focusfl.flower.secure.keys import ID, Keys
from focusfl.flower.secure.numbers import to_push
from focusfl.flower.secure.policy import Secure, fixed_point

OPEN = bytes(ID)  # before the first base, which the server has written itself
MAX_OPS = 4096  # of a journal, before a site refuses to replay it


class Journal(NamedTuple):
    """A server's state as the server has it."""

    base: bytes  # packed `State`, sealed; after OPEN: not sealed
    ops: tuple[Mapping[str, Any], ...] = ()  # JSON values; "op" says what happened
    blobs: tuple[bytes, ...] = ()  # of each: a sum of masked pushes, or a sealed state

    def add(self, op: str, blob: bytes = b"", **fields: Any) -> "Journal":
        """Note what has happened."""
        return Journal(self.base, (*self.ops, {"op": op, **fields}), (*self.blobs, blob))

    def to_bytes(self) -> bytes:
        """Write it for a message, or for the database."""
        parts = [self.base, json.dumps(self.ops).encode(), *self.blobs]
        return pack({str(n): np.frombuffer(part, np.uint8) for n, part in enumerate(parts)})

    @classmethod
    def from_bytes(cls, blob: bytes) -> "Journal":
        """Read one; Refused if it is none."""
        flat = load_flat(blob)
        try:
            base, ops, *blobs = [flat[str(n)].tobytes() for n in range(len(flat))]
            ops = parse_json(ops)
            if len(ops) != len(blobs) or len(ops) > MAX_OPS:
                raise ValueError(f"{len(ops)} entries and {len(blobs)} blobs")
        except (KeyError, ValueError, TypeError) as error:
            raise Refused(f"its journal cannot be read: {error}.") from None
        return cls(base, tuple(ops), tuple(blobs))


class State(NamedTuple):
    """What a site replays: the server's state, and what a newcomer begins with."""

    server: ServerState
    initial: Client


def about_server(job: str) -> str:
    """Say what a sealed base is."""
    return f"server of {job}"


def about_site(job: str, site: str) -> str:
    """Say what a site's sealed state is."""
    return f"state of {site} in {job}"


def pack_state(algorithm: Algorithm, state: State) -> bytes:
    """Write a state as bytes; their number does not depend on the numbers of the state.

    A newcomer's state is left out if it is 0 whatever the model is, as that of FOCUS.
    """
    zero = _newcomers_are_zero(algorithm, state.server.x)
    return pack(state._replace(initial={}) if zero else state, finite=False)


def _newcomers_are_zero(algorithm: Algorithm, x: Any) -> bool:
    _, client = algorithm.init(tree.map(np.ones_like, x))
    return not any(np.any(leaf) for _, leaf in paths(client))


def pack_client(algorithm: Algorithm, client: Client) -> bytes:
    """Write a site's state; its length does not depend on the numbers.

    What is unsent is 0 in a state that follows from pushes, and left out.
    """
    return pack(client if algorithm.sends_state else client.inner, finite=False)


def unpack_client(algorithm: Algorithm, packed: bytes, initial: Client) -> Client:
    """Read what `pack_client` wrote."""
    if algorithm.sends_state:
        return unpack(packed, initial, finite=False)
    return initial._replace(inner=unpack(packed, initial.inner, finite=False))


def open_base(journal: Journal, keys: Keys, job: str) -> bytes:
    """Give the base of a journal, as `pack_state` wrote it; Refused if keys do not open it."""
    if journal.base.startswith(OPEN):
        return journal.base[ID:]
    return keys.open(journal.base, about_server(job))


def server_fields(packed: bytes) -> dict[str, np.ndarray]:
    """Read the arrays of the server's state by path."""
    flat = load_flat(packed, finite=False)
    return {path.removeprefix("server/"): a for path, a in flat.items() if path[:7] == "server/"}


def _unpack(algorithm: Algorithm, packed: bytes) -> State:
    """Read what `pack_state` wrote."""
    x = tree.map(np.zeros_like, nest(server_fields(packed), "x"))
    server, initial = algorithm.init(x)
    if _newcomers_are_zero(algorithm, x):
        return unpack(packed, State(server, {}), finite=False)._replace(initial=initial)
    return unpack(packed, State(server, initial), finite=False)


def replay(algorithm: Algorithm, journal: Journal, keys: Keys, job: str, secure: Secure) -> State:
    """Compute the server's state from a journal.

    Whether this raises does not depend on any number that is sealed or masked: a server that
    tries sums of its own would learn from it. So there is no check of sums, nor of whether the
    state is finite.

    Raises:
        Refused: If the base or an entry is not what sites of this job have sealed, or a sum
            has fewer than `secure.minimum` pushes.
    """
    state = _unpack(algorithm, open_base(journal, keys, job))
    for op, blob in zip(journal.ops, journal.blobs, strict=True):
        try:
            with np.errstate(all="ignore"):
                state = _apply(algorithm, state, op, blob, keys, job, secure)
        except (KeyError, TypeError, OverflowError) as error:
            raise Refused(f"an entry of its journal cannot be read: {error!r}.") from None
        except ValueError as error:
            raise Refused(f"its journal cannot be replayed: {error}") from None
    return state


def push_like(algorithm: Algorithm, x: Any) -> Message:
    """Give a push of zeros, in the structure of those for a model."""
    zero = tree.map(np.zeros_like, x)  # x may be infinite
    return tree.map(np.zeros_like, trial_push(algorithm, zero))


def _apply(
    algorithm: Algorithm, state: State, op: Mapping[str, Any], blob: bytes, keys: Keys,
    job: str, secure: Secure,
) -> State:  # fmt: skip
    """Apply one entry of a journal to a state."""
    server, initial = state
    if op["op"] == "update":
        rd = Round(*(op[field] for field in Round._fields))
        if not all(type(number) in (int, float) for number in rd):
            raise ValueError("lr and what else describes a round must be numbers.")
        server = algorithm.update(server, _total(algorithm, server, op, blob, keys, secure), rd)
    elif op["op"] == "forget":
        client = initial
        if blob:
            packed = keys.open(blob, about_site(job, op["site"]))
            client = unpack_client(algorithm, packed, initial)
        server = algorithm.forget(server, client, op["weight"], op["num_clients"])
    elif op["op"] == "generation":
        server, initial = algorithm.init(server.x)
    else:
        raise ValueError(f"no entry is called {op['op']!r}.")
    return State(server, initial)


def _total(
    algorithm: Algorithm, server: Any, op: Mapping[str, Any], blob: bytes, keys: Keys,
    secure: Secure,
) -> Message:  # fmt: skip
    """Open the sum of a round's pushes."""
    like = push_like(algorithm, server.x)
    prefixes = [bytes.fromhex(mask) for mask in op["masks"]]
    if not prefixes:
        return like
    if len(prefixes) < secure.minimum or len({*prefixes}) < len(prefixes):
        raise ValueError(
            f"a sum must be of {secure.minimum} different pushes at least; got {len(prefixes)}."
        )
    size = sum(np.size(leaf) for _, leaf in paths(like))
    if len(blob) != 8 * size:
        raise ValueError(f"a sum of {8 * size} bytes is needed; got {len(blob)}.")
    return to_push(keys.unmask(np.frombuffer(blob, "<u8"), prefixes), like, fixed_point(algorithm))
