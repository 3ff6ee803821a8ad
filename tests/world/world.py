"""A server, its sites, their disks and what is between them; what happens is a method.

All chance comes from the generators that events are given: the same events with the
same seeds are the same world. What must hold meanwhile is in laws.py.
"""

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from focusfl.engines.protocol import ProtocolServer, Refused, Site, books, header
from focusfl.engines.protocol.format import leaves
from focusfl.engines.protocol.incidents import STRIKES
from focusfl.engines.protocol.rules import LOSSES
from world.disk import Death, Disk, Image, Killed
from world.job import NAMES, OFFSETS, SLOPES, START, N, Setting, Violation
from world.network import Network, Sent
from world.oracle import Oracle

MEMORY = re.compile("memory(/|$)")  # the part of a reply that is to be kept
SPIKE = 1e16  # a gradient that takes all digits of the others with it
POINTS = 16  # operations on files, and a few more than a process has in one action


class World:
    """One job, and what is true of it: its oracle goes with it, step by step."""

    def __init__(self, setting: Setting, folder: Path):
        self.setting, self.copies = setting, setting.copies
        self.noise = 0.1  # of gradients, by how many came before and in which answer
        self.answers = 0  # that were computed; no two are alike
        self.answer_of: dict[str, int] = {}  # which it was, by the checksum of a push
        self.present = 0  # the one that is being computed
        self.computed = 0  # the last that was, and is not repeated
        self.spikes: set[int] = set()  # those whose gradients are far too large
        self.spiked = False  # one of them was counted
        self.tally: Counter[str] = Counter()
        self.gap = 0.0  # the largest seen between what is tracked and what sites hold
        self.network = Network()
        self.home = Disk(folder / "server")
        self.disks = [Disk(folder / name, i + 1) for i, name in enumerate(NAMES)]
        self.sites = [
            Site(setting.algorithm, disk.folder, "job", name)
            for disk, name in zip(self.disks, NAMES, strict=True)
        ]
        self.changed = set(range(N))  # whose disk is to be looked at again
        self.made: list[set[str]] = [set() for _ in NAMES]  # pushes, by checksum
        self.excused: list[set[str]] = [set() for _ in NAMES]  # those a disk has lost
        self.strikes = [0] * N  # how often a site was ahead since it was counted
        self.restored = 0  # how often the server's disk was
        self.may_restart = False  # somebody has said that it has lost its memory
        self.oracle = Oracle(
            setting.algorithm, START, [self.gradient(i) for i in range(N)],
            setting.lr, setting.local_steps, setting.weights,
        )  # fmt: skip
        self.saved = self.oracle.copy()  # what the server has on disk
        self.earlier = self.saved  # what it had before, and still has
        self.backups = [(self.home.image(), self.saved)]
        self.images: list[list[Image]] = [[{}] for _ in NAMES]
        with self.home.running():
            self.server = self.open()

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()

    def gradient(self, i: int) -> Callable[[Any, Any], Any]:
        def gradient(x: Any, batch: Any) -> Any:
            self.computed = self.present
            size = SPIKE if self.present in self.spikes else self.noise
            noise = size * np.cos(batch.number + i + self.present)
            return SLOPES[i] * x - OFFSETS[i] + noise

        return gradient

    def open(self) -> ProtocolServer:
        own, weights = self.setting, self.setting.weights
        with patch.object(books, "MOST", own.most):
            return ProtocolServer(
                own.algorithm, START, NAMES, self.home.folder, job="job", lr=own.lr,
                local_steps=own.local_steps, copies=self.copies,
                weights=weights and dict(zip(NAMES, weights, strict=True)),
            )  # fmt: skip

    # Messages.

    def ask(self, i: int) -> None:
        """Request a site, unless it was counted; an answer it owes becomes void."""
        if NAMES[i] in self.server.counted:
            return
        message = self.server.request(NAMES[i])
        self.network.requests.append(Sent(i, message, self.restored))
        self.oracle.ask(self.server.asked[NAMES[i]])

    def answer(
        self,
        sent: Sent,
        goodbye: bool = False,
        dying: Death | None = None,
        spike: bool = False,
    ) -> bool:
        """Let a site answer, and give whether it did; it may die at it."""
        i, site, disk = sent.site, self.sites[sent.site], self.disks[sent.site]
        self.changed.add(i)
        if sent.restored < self.restored:  # who asks this will never be heard of again
            self.excused[i] |= self.made[i]
        self.answers = self.present = self.answers + 1
        if spike:
            self.spikes.add(self.present)
        try:
            with disk.running(dying and dying.calls):
                if goodbye:
                    reply = site.goodbye(sent.message)
                else:
                    reply = site.answer(sent.message, self.oracle.grads[i])
        except Killed:
            self.die(disk, dying.power)
            if state := site.disk.load():  # it may have got so far
                self.made[i].add(state.pending.digest)
                self.answer_of.setdefault(state.pending.digest, self.present)
            return False
        except Refused:
            self.tally["refused by a site"] += 1
            return False
        except ValueError as error:
            if not goodbye or "has no goodbye" not in str(error):
                raise
            return False
        if header(reply).fields["kind"] in ("push", "goodbye"):
            self.made[i].add(digest := header(reply).digest)
            # Codes of two answers may be the same: what is left of the last is on disk.
            if digest not in self.answer_of or self.computed == self.present:
                self.answer_of[digest] = self.present
        self.network.replies.append(Sent(i, reply))
        return True

    def bring(self, sent: Sent) -> str:
        """Bring a reply to the server, and say what became of it."""
        i = sent.site
        receipt = self.server.receive(NAMES[i], sent.message)
        self.tally[receipt.status] += 1
        if receipt.applied:
            head = header(sent.message)
            self.tally["late"] += head.fields["round"] < self.oracle.index
            goodbye = head.fields["kind"] == "goodbye"
            self.present = self.answer_of[head.digest]
            self.spiked |= self.present in self.spikes
            self.tally["spikes"] += self.present in self.spikes
            self.oracle.count(i, head.fields["seq"], head.digest, goodbye)
            self.oracle.copied[i] = any(map(MEMORY.match, sent.message))
            self.strikes[i] = 0
            self.changed.add(i)
        elif receipt.status == "refused":
            self.strikes[i] += "its norm is" in receipt.why
        else:
            if receipt.status == "ahead" and not self.restored:
                raise Violation(f"{NAMES[i]} is ahead of a server that lost nothing")
            self.strikes[i] += receipt.status == "ahead"
            copied = receipt.status == "lost" and self.oracle.copied[i]
            self.may_restart |= not copied
        return receipt.status

    def play(self, i: int, goodbye: bool = False) -> str:
        """A site takes part, and nothing goes wrong."""
        if NAMES[i] in self.server.counted:
            return "counted"
        self.ask(i)
        if not self.answer(self.network.requests.pop(), goodbye):
            return "refused by the site"
        return self.bring(self.network.replies.pop())

    # The server's books.

    def commit(
        self, action: Callable[[], Any], *after: Oracle, dying: Death | None = None
    ) -> None:
        """Let the server write its books, which then say one of these; it may die."""
        before = self.saved
        try:
            with self.home.running(dying and dying.calls):
                action()
        except Killed:
            self.die(self.home, dying.power)
            return self.reopen(before, *after)
        self.adopt(*after)
        self.earlier = before
        if self.oracle.epoch > before.epoch:
            self.tally["epochs"] += 1
            self.may_restart = False

    def reopen(self, *those: Oracle) -> None:
        """The server comes back with what is on disk, which must be one of these."""
        self.server.close()
        self.may_restart, self.strikes = False, [0] * N
        with self.home.running():
            self.server = self.open()
        self.adopt(*(oracle.unbarred() for oracle in those))
        self.earlier = self.saved

    def adopt(self, *those: Oracle) -> None:
        """Find which of these the server's books are, and go on from it."""
        books = self.books()
        for oracle in those:
            if oracle.epoch > self.saved.epoch:  # sites may know of later ones
                oracle.epoch = max(oracle.epoch, books[0])
            if books == oracle.key:
                self.oracle, self.saved = oracle.copy(), oracle
                self.changed.update(range(N))
                break
        else:
            must = "\n  or ".join(str(oracle.key) for oracle in those)
            raise Violation(f"the books say\n     {books}\nand must\n     {must}")
        if self.tally["commits"] % 3 == 0:
            self.backups.append((self.home.image(), self.saved))
        self.tally["commits"] += 1

    def books(self) -> tuple:
        """What the server's ledger says, in the words of an oracle."""
        ledger, entries = self.server.ledger, self.server.ledger.entries
        return (
            ledger.epoch,
            ledger.current,
            [NAMES.index(name) for name in ledger.counted],
            [entries[name].digest for name in NAMES],
            {i for i, name in enumerate(NAMES) if entries[name].gone},
            {i for i, name in enumerate(NAMES) if entries[name].applied},
        )

    def close(self, dying: Death | None = None) -> None:
        """Close the round."""
        after = self.oracle.copy()
        if not after.waits:
            after.close()
        restart = [after.restarted()] if self.may_restart or self.spiked else []
        after = [after, *restart]
        struck = {i for i in range(N) if self.strikes[i] >= STRIKES}
        if struck and {*range(N)} - after[0].gone - struck:
            for i in struck:
                after = [one for oracle in after for one in self.without(oracle, i)]
                self.strikes[i] = 0
            for oracle in after:
                oracle.barred |= struck
        self.commit(self.server.close_round, *after, dying=dying)

    def keeps(self, i: int) -> bool:
        """Whether the server keeps a site's memory: all, or of who has lost it."""
        return self.copies or self.server.ledger.entries[NAMES[i]].losses >= LOSSES

    def forget(self, i: int, dying: Death | None = None) -> None:
        """The operator gives a site up for good."""
        if NAMES[i] in self.server.counted:
            return
        after = self.without(self.oracle, i)
        self.commit(lambda: self.server.forget(NAMES[i]), *after, dying=dying)

    def without(self, oracle: Oracle, i: int) -> list[Oracle]:
        """What may become of a job that goes on without a site."""
        gone = oracle.copy()
        gone.gone.add(i)
        if i not in oracle.contributed:
            return [gone]
        after = [gone.restarted()]
        if oracle.copied[i] or not leaves(oracle.pushed[i]):
            after.append(oracle.copy())
            after[-1].ask(-1)
            after[-1].count(i, -1, "", goodbye=True)
            after[-1].copied[i] = self.keeps(i)
        return after

    def save(self, dying: Death | None = None) -> None:
        self.commit(self.server.save, self.oracle.copy(), dying=dying)

    def new_epoch(self, dying: Death | None = None) -> None:
        self.commit(self.server.new_epoch, self.oracle.restarted(), dying=dying)

    # Disks.

    def die(self, disk: Disk, power: random.Random | None) -> None:
        """A process is dead; perhaps its machine has lost power too."""
        self.tally["crashes"] += 1
        if power is not None:
            disk.lose_power(power)

    def rewind(self, i: int, image: Image) -> None:
        """A site's disk is as it was at another time."""
        self.disks[i].restore(image)
        self.changed.add(i)
        self.excused[i] |= self.made[i]

    def restart(
        self, power: random.Random | None = None, dying: Death | None = None
    ) -> None:
        """The server dies and comes back; perhaps it dies at that too."""
        self.server.close()
        self.die(self.home, power)
        if dying:
            try:
                with self.home.running(dying.calls):
                    self.server = self.open()
            except Killed:
                self.die(self.home, dying.power)
        self.reopen(self.saved)

    def restore(self, image: Image, *then: Oracle) -> None:
        """The server comes back with the books of another time, or none."""
        self.restored += 1
        self.server.close()
        self.home.restore(image)
        for i in range(N):
            self.excused[i] |= self.made[i]
        self.reopen(*then)
