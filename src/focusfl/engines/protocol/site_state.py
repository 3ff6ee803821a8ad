"""What a site writes to disk: one file, with its memory and its last reply.

A private site has another one beside it, of what it has given away: account.py.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from focusfl.core import Algorithm
from focusfl.engines.protocol import files
from focusfl.engines.protocol.format import (
    Fields,
    Refused,
    Wired,
    check_fields,
    encode,
    header,
    pack,
    restore,
    unpack,
)
from focusfl.engines.protocol.snapshots import Snapshot

REPLY = "reply "  # before the names of the reply's parts in the file

log = logging.getLogger(__name__)


class SiteState(NamedTuple):
    """What a site has on disk, beside its last reply.

    `acked` is its memory after the last push that the server is known to have counted,
    `pending` that after the push in the last reply. The next request says which of the
    two the server has. All three are written together. Neither is settled: what the
    server said after the round is in every request, and may be another one's.
    """

    epoch: int
    acked: Snapshot
    pending: Snapshot
    incarnation: str  # of the server that asked last
    request_digest: str  # the checksum of what it asked

    @property
    def place(self) -> tuple[int, int]:
        """Where the last request stands among all: later ones are larger."""
        return self.epoch, self.pending.seq


@dataclass(frozen=True)
class SiteFile:
    """Where a site's state is: FOLDER/JOB/SITE.state."""

    algorithm: Algorithm
    folder: str | Path
    job: str
    site: str

    @cached_property
    def path(self) -> Path:
        return Path(self.folder).expanduser() / self.job / f"{self.site}.state"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the file to this process; wait until others are done with it."""
        if not self.path.exists():
            files.make_folder(self.path.parent)
        with files.lock(self.path, wait=True):
            yield

    def save(self, state: SiteState, reply: Wired) -> None:
        """Replace the file as a whole; when this returns, it is on disk."""
        snapshots = {"acked": state.acked, "pending": state.pending}
        fields: Fields = {
            name: list(snapshot[:2]) for name, snapshot in snapshots.items()
        }
        fields |= {"kind": "state", "algorithm": repr(self.algorithm), "job": self.job}
        fields |= {"site": self.site, "epoch": state.epoch}
        fields |= {"incarnation": state.incarnation, "request": state.request_digest}
        memories = pack({name: snapshot.memory for name, snapshot in snapshots.items()})
        said = {REPLY + name: blob for name, blob in reply.items()}
        files.save(self.path, encode(fields, memories) | said)

    def load(self) -> SiteState | None:
        """Read what is on disk; what is damaged counts as lost."""
        try:
            own = files.load(self.path, lambda name: not name.startswith(REPLY))
            if own is None:
                return None
            head = header(own, own=True)
            check_fields(
                head.fields, kind=str, algorithm=str, job=str, site=str, epoch=int,
                acked=list, pending=list, incarnation=str, request=str,
            )  # fmt: skip
            trees = unpack(own, head)
        except Refused as error:
            log.warning("%s: %s It counts as lost.", self.path, error)
            return None
        fields = head.fields
        if fields["algorithm"] != repr(self.algorithm):
            raise ValueError(
                f"{self.path} belongs to {fields['algorithm']}; this site runs "
                f"{self.algorithm!r}. Give the job another name."
            )
        # Of one number, for the structure alone: where it has leaves, trees may be.
        like = self.algorithm.init(np.zeros(()))[1]
        acked, pending = (
            Snapshot._make([*fields[name], restore(like, trees.get(name, {}))])
            for name in ("acked", "pending")
        )
        return SiteState(
            fields["epoch"], acked, pending, fields["incarnation"], fields["request"]
        )

    def last_reply(self) -> Wired:
        """The last reply, as it went out; its file is on disk when this returns.

        Whoever wrote that file may have died before its name was.
        """
        files.sync(self.path.parent)
        wired = files.load(self.path, lambda name: name.startswith(REPLY)) or {}
        return {name.removeprefix(REPLY): blob for name, blob in wired.items()}
