"""The constants of a job and the transitions of its ledger: pure functions."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from secrets import token_hex
from typing import Any

import numpy as np

from focusfl import tree
from focusfl.core import Algorithm, Client, Message, Round
from focusfl.engines.protocol.entries import Entries, Roster
from focusfl.engines.protocol.format import Refused, digest_of, leaves
from focusfl.engines.protocol.ledger import BARRED, Entry, Ledger
from focusfl.engines.protocol.magnitude import (
    Reach,
    after_round,
    norm,
    strayed,
    with_push,
)
from focusfl.engines.protocol.messages import Reply, Request
from focusfl.engines.protocol.requirements import Requirements
from focusfl.engines.protocol.snapshots import (
    UNKNOWN,
    first_index,
    newcomer,
    retract,
)
from focusfl.tree import Tree

LIFE = 1 << 32  # numbers a server may give out before it dies
LOSSES = 3  # of a site's memory, after which the server keeps it
FEW = 1000  # sites, whose names are written out


def weight_of(
    sites: Sequence[str], weights: Mapping[str, float | int] | None
) -> float | int:
    """How much these sites count together: how many they are, if all are alike."""
    if weights is None:
        return len(sites)
    return math.fsum(weights[site] for site in sites)


@dataclass(frozen=True)
class Rules:
    """The constants of a job, and how its ledger moves on."""

    algorithm: Algorithm
    job: str
    sites: tuple[str, ...]
    lr: Callable[[int], float]
    local_steps: int
    on_empty: str
    copies: bool
    requirements: Requirements
    settings: dict[str, Any]  # what a job that goes on must not change unasked
    weights: Mapping[str, float | int] | None = None  # by site; None: all alike

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint must have in common with the job it is opened for.

        Of many sites, how many they are and a checksum.
        """
        sites: list[Any] = list(self.sites)
        weights: dict[str, Any] = dict(self.weights or {})
        if len(sites) > FEW:
            if weights:
                numbers = np.array([weights[site] for site in sites], "<f8")
                weights = {"checksum": digest_of(numbers.tobytes())}
            sites = [len(sites), digest_of("\n".join(sites).encode())]
        return {
            "kind": "ledger", "algorithm": repr(self.algorithm), "job": self.job,
            "sites": sites, "weights": weights,
        }  # fmt: skip

    @cached_property
    def roster(self) -> Roster:
        return Roster(self.sites)

    @cached_property
    def weight(self) -> float | int:
        """How much all sites count together."""
        return weight_of(self.sites, self.weights)

    def rd(self, index: int) -> Round:
        """A round while it is open."""
        lr, steps = (self.lr(index), self.local_steps) if index >= 0 else (0.0, 1)
        return Round(index, float(lr), steps, self.weight, UNKNOWN)

    def begin(self, params: Tree) -> Ledger:
        """Open the ledger: nobody has contributed anything."""
        return Ledger(
            server=self.algorithm.init(params)[0],
            incarnation=token_hex(8),
            settings=self.settings,
            entries=Entries(self.roster),
            epoch=1,
            current=first_index(self.algorithm),
            round=0,
            clock=0,
            total=tree.zeros(self.requirements.up),
            counted=(),
            start={"x": params} if self.requirements.start else {},
            kept={},
            copies={},
            reach=Reach(norm(params), norm(params)),
        )

    def next_epoch(
        self, ledger: Ledger, latest: int = 0, lost: Collection[str] = ()
    ) -> Ledger:
        """Start over from the present model, with everybody's memory empty.

        Its number is above that of the latest epoch that any site knows of. Those who
        have lost their memory have done so once more.
        """
        new, before = self.begin(ledger.server.x), ledger.reach
        left = before.far if strayed(before, ledger.server.x) else before.left
        return new._replace(
            reach=Reach(before.start, new.reach.far, left, times=before.times),
            incarnation=ledger.incarnation,
            entries=ledger.entries.new_epoch(lost),
            epoch=max(ledger.epoch, latest) + 1,
            round=ledger.round,
            clock=ledger.clock,
        )

    def next_life(self, ledger: Ledger) -> Ledger:
        """Count on from higher numbers: answers to what was asked before are void.

        Of a ledger that is a backup, others may have given these out: hence the
        incarnation.
        """
        clock = (ledger.clock // LIFE + 1) * LIFE
        entries = ledger.entries
        entries |= {  # who was left out gets another chance
            site: entries[site]._replace(gone=False, barred=False)
            for site in entries.flagged(BARRED)
        }
        return ledger._replace(clock=clock, incarnation=token_hex(8), entries=entries)

    def keeps(self, ledger: Ledger, site: str) -> bool:
        """Whether the server wants to have a site's memory: all, or of who loses it."""
        return self.copies or ledger.entries[site].losses >= LOSSES

    def request(self, ledger: Ledger, site: str) -> Request:
        """The header of a request."""
        entry, rd = ledger.entries[site], self.rd(ledger.current)
        return Request(
            algorithm=repr(self.algorithm),
            job=self.job,
            site=site,
            incarnation=ledger.incarnation,
            epoch=ledger.epoch,
            round=ledger.current,
            seq=ledger.clock + 1,
            base=entry.applied,  # its push that was counted last; 0: none
            digest=entry.digest,
            counted=list(entry.counted_in),  # the round that counted it
            grads_done=entry.grads_done,
            lr=rd.lr,
            local_steps=rd.local_steps,
            num_clients=rd.num_clients,
            copies=self.keeps(ledger, site),
        )

    def extras(self, ledger: Ledger, site: str, lost: bool = False) -> dict[str, Tree]:
        """What one site must know beside what all are sent."""
        more = self._told(ledger, site)
        lost = lost or ledger.entries[site].losses >= LOSSES
        if lost and site in ledger.copies:
            more["memory"] = ledger.copies[site]
        return more

    def _told(self, ledger: Ledger, site: str) -> dict[str, Tree]:
        entry = ledger.entries[site]
        if entry.applied and self.requirements.settle:
            return {"settle": ledger.kept[str(entry.counted_in[0])]}
        if not entry.applied and self.requirements.start:
            return {"start": ledger.start["x"]}
        return {}

    def count(
        self,
        ledger: Ledger,
        reply: Reply,
        digest: str,
        up: Message,
        memory: Client | None,
        size: float,
    ) -> Ledger:
        """Take a push into the open round; raise Refused if the sum is infinite.

        It is here that a push is multiplied by its site's weight, and nowhere else:
        what sites remember and send is the same whatever they weigh. So a push weighs
        the same however often it is sent and in whatever round it counts, and so does
        the goodbye that takes it back, be it the site's own or one made of a copy.
        """
        with np.errstate(all="ignore"):
            if self.weights is not None:
                up = tree.scale(float(self.weights[reply.site]), up)
            total = tree.add(ledger.total, up)
        if not all(np.isfinite(leaf).all() for leaf in leaves(total)):
            raise Refused("it is so large that the sum of all pushes is infinite.")
        # A copy of an earlier push would be worse than none.
        copies = {k: copy for k, copy in ledger.copies.items() if k != reply.site}
        before = ledger.entries[reply.site]
        forgets = not reply.base or before.losses >= LOSSES
        entry = Entry(  # counted in no round yet: this one is open
            applied=reply.seq,
            digest=digest,
            grads_done=reply.grads_done,
            gone=reply.kind == "goodbye",
            losses=before.losses if forgets else 0,
            pushes=before.pushes + 1,
        )
        if entry.gone or not self.requirements.whole:
            size = 0.0  # what is taken back, or sent in part, says nothing of pushes
        pushes, x = before.pushes, ledger.server.x
        reach, spiked = with_push(ledger.reach, reply.site, size, pushes, x)
        return ledger._replace(
            reach=reach,
            spiked=ledger.spiked or spiked,
            entries=ledger.entries | {reply.site: entry},
            total=total,
            counted=(*ledger.counted, reply.site),
            copies=copies | ({} if memory is None else {reply.site: memory}),
        )

    def waits(self, ledger: Ledger) -> bool:
        """Whether the open round is the one before round 0 and somebody is missing."""
        return ledger.current < 0 and ledger.entries.missing

    def close(self, ledger: Ledger) -> Ledger:
        """Update the model and open the next round."""
        server, sites = ledger.server, ledger.counted
        rd = self.rd(ledger.current)._replace(num_active=weight_of(sites, self.weights))
        if sites or self.on_empty == "step":
            with np.errstate(all="ignore"):  # the caller looks
                server = self.algorithm.update(server, ledger.total, rd)
        entries = ledger.entries.with_counted_in(sites, tuple(rd))
        kept = ledger.kept
        if sites and self.requirements.settle:
            down = self.algorithm.broadcast(server)
            told = {name: down[name] for name in self.requirements.settle}
            kept = kept | {str(rd.index): told}
        rounds = {str(index) for index in entries.rounds} if kept else ()
        reach, spiked, warm = ledger.reach, False, self.algorithm.starts_warm
        if ledger.current >= 0 and server is not ledger.server:
            leaving = entries.any_gone(sites)
            reach, spiked = after_round(reach, ledger.server, server, warm, leaving)
        return ledger._replace(
            server=server,
            entries=entries,
            current=ledger.current + 1,
            round=ledger.round + (ledger.current >= 0),
            total=tree.zeros(self.requirements.up),
            counted=(),
            reach=reach,
            spiked=spiked,
            start=ledger.start if ledger.start and entries.newcomers else {},
            kept={index: kept[index] for index in kept if index in rounds},
        )

    def without(self, ledger: Ledger, site: str) -> Ledger:
        """Say goodbye for a site that cannot; raise if too little is known of it."""
        entry = ledger.entries[site]
        entries = ledger.entries | {site: entry._replace(gone=True)}
        if not entry.applied:
            return ledger._replace(entries=entries)
        if site not in ledger.copies:
            raise ValueError(f"there is no copy of what {site} has contributed.")
        rd, down = self.rd(ledger.current), self.algorithm.broadcast(ledger.server)
        told = self.extras(ledger, site).get("settle", {})
        counted = Round(*entry.counted_in)
        memory = self.algorithm.settle(ledger.copies[site], told, counted)
        new = newcomer(self.algorithm, tree.zeros(ledger.server.x)).memory
        memory, up = retract(self.algorithm, memory, down, rd, new)
        goodbye = Reply(
            kind="goodbye",
            algorithm=repr(self.algorithm),
            job=self.job,
            site=site,
            incarnation=ledger.incarnation,
            epoch=ledger.epoch,
            round=ledger.current,
            seq=ledger.clock + 1,
            base=entry.applied,  # its push that was counted last; 0: none
            grads_done=entry.grads_done,
            latest=ledger.epoch,
        )
        memory = memory if self.keeps(ledger, site) else None
        ledger = self.count(ledger, goodbye, "", up, memory, norm(up))
        return ledger._replace(clock=goodbye.seq)
