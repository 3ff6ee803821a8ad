"""The server of secure sums: the plain protocol over states that it cannot read."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from focusfl.core import Algorithm, Client, Round
from focusfl.core import Server as ServerState
from focusfl.core.tree import Tree
from focusfl.flower.protocol.messages import (
    Refused,
    Reply,
    Wired,
    digest,
    leaves,
    nest,
    pack,
)
from focusfl.flower.protocol.server import ProtocolServer
from focusfl.flower.protocol.store import HERE, SiteRow, Store
from focusfl.flower.secure.journal import (
    OPEN,
    Journal,
    State,
    about_site,
    open_base,
    pack_state,
    replay,
    server_fields,
    unpack_client,
)
from focusfl.flower.secure.keys import OVERHEAD, PREFIX, Keys
from focusfl.flower.secure.policy import Secure, check_job

RENEWERS = 2  # sites of a round that send the base anew: one may fail
LONG = 8  # entries of a journal from which on all send it


def open_model(database: Path, keys: Keys) -> tuple[Tree, int]:
    """Read the last model that a site has sealed, from a job's database or a copy of it.

    Args:
        database: server.db of the job; nobody may have it open.
        keys: those of the sites.

    Returns:
        The model, and the number of rounds after which it was so. The sums of later rounds,
        of which there is one as a rule, are not applied: that takes the algorithm, as
        `SecureServer.open_job` has it.

    Raises:
        ValueError: If it is no database of secure sums, or these are not the keys.
    """
    store = Store(database)
    try:
        job = store.job()
        if job is None:
            raise ValueError(f"{database} has no job.")
        journal = Journal.from_bytes(job.server)
        name = json.loads(job.identity)["job"]
        model = server_fields(open_base(journal, keys, name))
        pending = sum(op["op"] == "update" for op in journal.ops)
        return nest(model, "x"), job.round - pending
    except Refused as error:
        raise ValueError(f"{database}: {error}") from None
    finally:
        store.close()


class SecureServer(ProtocolServer):
    """A server that reads no push, no state of a site, no tracker and no model.

    It is the plain server, whose rule decides which pushes count. In place of the algorithm's
    state it keeps a `Journal`: where the plain server would compute, it notes what has
    happened, and sites compute it.
    """

    carries: ClassVar[set[str]] = {"up", "state", "base"}
    server = None  # `open_job` reads it, with the key

    def __init__(
        self,
        algorithm: Algorithm,
        params: Tree,
        sites: Sequence[str],
        folder: str | Path,
        *,
        secure: Secure,
        **options: Any,
    ):
        check_job(secure, algorithm, params, len(sites), options)  # writes nothing
        self.secure = secure
        ProtocolServer.__init__(self, algorithm, params, sites, folder, **options)
        self._size = sum(np.size(leaf) for leaf in leaves(self._uplink.up))
        # What a site sends at most, beside the numbers of its push.
        state = len(pack(self._like_state))
        self._most = {"state": state, "base": len(pack(self._like_server)) + state}

    @property
    def x(self) -> None:
        """The model: this server does not know it."""

    def state(self, site: str) -> Client:
        """Raise ValueError: a secure server cannot read a site's state."""
        raise ValueError(f"the state of {site} is sealed: open_job reads it, with the key.")

    def open_job(self, keys: Keys) -> tuple[ServerState, list[tuple[float, Client]]]:
        """Read the server's state, and weight and state of every site that is here.

        Args:
            keys: those of the sites.

        Raises:
            Refused: If these are not the keys, or the database is damaged.
        """
        state = replay(self.algorithm, self._journal, keys, self.job, self.secure)
        clients = []
        for row in self._store.sites(HERE):
            client = state.initial
            if row.state:
                blob = keys.open(row.state, about_site(self.job, row.name))
                client = unpack_client(self.algorithm, blob, state.initial)
            clients.append((row.weight, client))
        return state.server, clients

    def close_round(self) -> tuple[str, ...] | None:
        if 0 < len(self.counted) < self.secure.minimum:
            raise ValueError(
                f"a sum must be of {self.secure.minimum} pushes at least; the open round has "
                f"{len(self.counted)}."
            )
        return ProtocolServer.close_round(self)

    # Where the plain server computes

    def _count(self, row: SiteRow, reply: Reply, name: str, message: Wired) -> None:
        extra = {"base"} & message.keys()
        if message.keys() - extra != {"header", "up", "state"}:
            raise Refused("a push must carry up and state.")
        up = message["up"]
        if len(up) != PREFIX + 8 * self._size:
            raise Refused(f"up must have {PREFIX + 8 * self._size} bytes; got {len(up)}.")
        for part in ("state", *extra):
            if not OVERHEAD < len(message[part]) <= self._most[part] + 4096:
                raise Refused(f"{part} is too short or too long: {len(message[part])} bytes.")
        if extra and message["base"].startswith(OPEN):
            raise Refused("its base is not sealed.")
        prefix, numbers = up[:PREFIX], np.frombuffer(up[PREFIX:], "<u8")
        if prefix.hex() in self._masks:
            raise Refused("its mask is that of another push.")
        self._add(row, reply, name, message["state"], 0.0)
        self._masks.append(prefix.hex())
        self._total = numbers if self._total is None else self._total + numbers
        if extra and reply.model == self._model()[1]:
            self._renewal = message["base"]

    def _update(self, rd: Round) -> None:
        if self._renewal:  # it is the journal so far
            self._journal = Journal(self._renewal)
        total = b"" if self._total is None else self._total.tobytes()
        self._journal = self._journal.add("update", total, masks=self._masks, **rd._asdict())

    def _forget(self, row: SiteRow, weight: float, before: float) -> None:
        # Of states of this structure it can be told whether one can be forgotten.
        self.algorithm.forget(self._like_server, self._like_state, weight, before)
        self._journal = self._journal.add(
            "forget", row.state or b"", site=row.name, weight=weight, num_clients=before
        )

    def _empty(self) -> bytes:
        self._journal = self._journal.add("generation")
        # A newcomer's state is what the journal comes to, and so has its name: another future,
        # after a backup, begins the same generation from another model.
        return digest(self._journal.to_bytes()).encode()

    def _recompute_sums(self) -> None:
        """Do nothing: sums of whole numbers lose no digits."""

    # What is kept and sent

    def _first_states(self, params: Tree) -> tuple[bytes, bytes]:
        state = State(*self.algorithm.init(params))
        return Journal(OPEN + pack_state(self.algorithm, state)).to_bytes(), b""

    def _read_server(self, blob: bytes) -> None:
        self._journal = Journal.from_bytes(blob)

    def _packed_server(self) -> bytes:
        return self._journal.to_bytes()

    def _open_round(self) -> None:
        ProtocolServer._open_round(self)
        self._masks: list[str] = []  # prefixes of the pushes that are counted
        self._renewal = b""
        self._renewers: set[str] = set()

    def _model(self) -> tuple[bytes, str]:
        if self._broadcast is None:
            journal = self._journal.to_bytes()
            self._broadcast = journal, digest(journal, repr(self._rd()).encode())
        return self._broadcast

    def _parts(self, row: SiteRow, down: bytes) -> dict[str, bytes]:
        long = len(self._journal.ops) > LONG
        if long or len(self._renewers | {row.name}) <= RENEWERS:
            self._renewers.add(row.name)
        flags = {"renew": row.name in self._renewers, "new": row.state is None}
        return {"journal": down} | {flag: b"" for flag, is_set in flags.items() if is_set}

    def _add_state(self, parts: dict[str, bytes], row: SiteRow) -> None:
        if row.state:
            parts["state"] = row.state
