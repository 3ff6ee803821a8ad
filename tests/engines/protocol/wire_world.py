"""A server, its sites and the unreliable space between them, in one process.

Every event is a method; after each, `check` compares with the oracle.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from helpers import quadratic, same
from wire_oracle import Oracle

import focusfl.files
from focusfl import tree
from focusfl.algorithms import focus
from focusfl.algorithms.transported import Line
from focusfl.engines.protocol import (
    ProtocolServer,
    Refused,
    Site,
    files,
    header,
    tracking_error,
)

LR, DIM = 0.05, 3


def scratch():
    """A folder for a while; in memory where we can, where an fsync costs nothing."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)


class Killed(BaseException):
    """The process dies here."""


class Killing:
    """The operating system, up to the moment of death: before its n-th call."""

    def __init__(self, os, calls):
        self.os, self.calls = os, calls

    def __getattr__(self, name):
        found = getattr(self.os, name)
        if name not in ("open", "fsync", "replace"):
            return found

        def call(*arguments):
            self.calls -= 1
            if self.calls < 0:
                raise Killed
            return found(*arguments)

        return call


POINTS = 8  # of a site: the lock, then open, open, fsync, replace, open, fsync
REPLACED = 4  # calls, of a server, after which the new checkpoint is there


def killed_at(point, action):
    """Die at the given point of writing a file, if the action writes one."""
    dying = Killing(os, point)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "os", dying)  # which locks
        patch.setattr(focusfl.files, "os", dying)  # and writes
        try:
            return action()
        except Killed:
            return None


def noisy_grads(problem):
    """Gradients that differ with the number of those before: a cursor that counts."""

    def grad(i):
        return lambda x, batch: (
            problem.H[i] @ x - problem.h[i] + 0.1 * np.cos(batch.number + i)
        )

    return [grad(i) for i in range(problem.num_clients)]


def tracked(server, total):
    """The server with what the open round has counted, where that is in the pushes."""
    if isinstance(server, focus.Server):
        return server._replace(y=tree.add(server.y, total["y"]))
    if hasattr(server, "line") and "b" in total:
        line = tree.add(server.line, Line(total["b"], total["rho"]))
        return server._replace(line=line)
    return None


class World:
    """One job, and all that may happen to it."""

    def __init__(
        self, algorithm, folder, num_clients=3, local_steps=2, copies=False,
        weights=None,
    ):  # fmt: skip
        self.algorithm, self.folder, self.copies = algorithm, folder, copies
        self.weights = weights
        self.local_steps = local_steps
        self.x0 = np.linspace(-1, 1, DIM)
        problem = quadratic(num_clients, DIM)
        self.grads = noisy_grads(problem)
        self.names = [f"site-{i}" for i in range(num_clients)]
        self.sites = [Site(algorithm, folder, "job", name) for name in self.names]
        lr = self.lr = LR if weights is None else LR / max(weights)
        self.oracle = Oracle(algorithm, self.x0, self.grads, lr, local_steps, weights)
        self.requests = []  # (client, message) on their way
        self.replies = []
        self.lost_at = {}  # the last number given out when a client's disk was lost
        self.backups = {}
        self.vault = None  # a backup of the server's disk, and what it must come to
        self.may_restart = False  # somebody has reported a loss
        self.events = dict.fromkeys(("applied", "refused", "lost", "ahead", "late"), 0)
        self.protocol = self.open()

    def open(self):
        return ProtocolServer(
            self.algorithm, self.x0, self.names, self.folder, job="job", lr=self.lr,
            local_steps=self.local_steps, copies=self.copies,
            weights=self.weights and dict(zip(self.names, self.weights, strict=True)),
        )  # fmt: skip

    # Ordinary events.

    def ask(self, i):
        """Request client i, unless it was counted; an answer it owes becomes void."""
        if self.names[i] in self.protocol.counted:
            return
        self.requests.append((i, self.protocol.request(self.names[i])))
        self.oracle.ask(self.protocol.ledger.clock)

    def ask_free(self, i):
        if self.names[i] in self.protocol.free:
            self.ask(i)

    def carry(self, k, remove=True, point=None, goodbye=False):
        """Bring the k-th request to its site, whose reply sets out."""
        if not self.requests:
            return
        i, message = self.requests[k % len(self.requests)]
        if remove:
            self.requests.pop(k % len(self.requests))
        site = self.sites[i]
        if header(message).fields["incarnation"] != self.protocol.ledger.incarnation:
            self.lost_at[i] = self.protocol.ledger.clock  # it may move on from there

        def answer():
            if goodbye:
                return site.goodbye(message)
            return site.answer(message, self.grads[i])

        try:
            reply = answer() if point is None else killed_at(point, answer)
        except Refused:
            return
        except ValueError:
            assert goodbye  # not every algorithm has one
            return
        if reply is not None:
            self.replies.append((i, reply))

    def bring(self, k, remove=True):
        """Bring the k-th reply to the server."""
        if not self.replies:
            return
        i, reply = self.replies[k % len(self.replies)]
        if remove:
            self.replies.pop(k % len(self.replies))
        before, asked = self.protocol.ledger, header(reply).fields["round"]
        receipt = self.protocol.receive(self.names[i], reply)
        self.events[receipt.status] += 1
        if receipt.applied:
            entry = self.protocol.ledger.entries[self.names[i]]
            self.events["late"] += asked < self.protocol.ledger.current
            zero = (lambda x, batch: 0 * x) if entry.gone else None
            self.oracle.count(i, entry.applied, zero)
        else:
            assert self.protocol.ledger is before
            self.may_restart |= receipt.status == "lost" and not self.copies
            self.may_restart |= receipt.status == "ahead"

    def close(self):
        epoch, waits = (
            self.protocol.epoch,
            self.protocol._rules.waits(self.protocol.ledger),
        )
        self.protocol.close_round()
        if not waits:
            self.oracle.close()
        self.settle_epoch(epoch)
        self.oracle.save()

    def settle_epoch(self, epoch):
        if self.protocol.epoch > epoch:
            assert self.may_restart
            self.oracle.begin(self.oracle.server.x)
            self.may_restart = False

    def play(self, i, goodbye=False):
        """Client i takes part, and nothing goes wrong."""
        if self.names[i] not in self.protocol.free:
            return
        self.ask(i)
        before = len(self.replies)
        self.carry(-1, goodbye=goodbye)
        if len(self.replies) > before:
            self.bring(-1)

    # Faults.

    def lose_request(self, k):
        if self.requests:
            self.requests.pop(k % len(self.requests))

    def lose_reply(self, k):
        if self.replies:
            self.replies.pop(k % len(self.replies))

    def wipe(self, i):
        """Client i loses its disk."""
        self.sites[i].disk.path.unlink(missing_ok=True)
        self.lost_at[i] = self.protocol.ledger.clock

    def rewind(self, i):
        """Client i gets back what was on its disk at an earlier time."""
        path = self.sites[i].disk.path
        now = path.read_bytes() if path.exists() else None
        before, self.backups[i] = self.backups.get(i), now
        if before is not None:
            path.write_bytes(before)
            self.lost_at[i] = self.protocol.ledger.clock

    def crash_hub(self):
        """The server dies and comes back, with what is on disk."""
        self.protocol.close()
        self.oracle.roll_back()
        self.may_restart = False
        self.protocol = self.open()
        self.oracle.save()

    def back_up(self):
        """Somebody copies the server's disk."""
        self.vault = self.protocol._path.read_bytes(), self.oracle.saved

    def restore(self):
        """The server's disk dies, and is what it was at an earlier time, or empty."""
        self.protocol.close()
        if self.vault is None:
            self.protocol._path.unlink()
            self.oracle.numbers = [0] * self.oracle.num_clients
            self.oracle.begin(self.x0)
            self.oracle.save()
        else:
            blob, self.oracle.saved = self.vault
            self.protocol._path.write_bytes(blob)
        clock = self.protocol.ledger.clock
        self.crash_hub()
        for i in range(len(self.sites)):
            self.lost_at[i] = max(clock, self.protocol.ledger.clock)

    def crash_closing(self, point):
        """The server dies while it writes the checkpoint of a round."""
        before, waits = (
            self.protocol.ledger,
            self.protocol._rules.waits(self.protocol.ledger),
        )
        killed_at(point, self.protocol.close_round)
        if point >= REPLACED:  # the new checkpoint is there
            if not waits:
                self.oracle.close()
            self.protocol.close()
            restart, self.may_restart = self.may_restart, False
            self.protocol = self.open()
            self.may_restart = restart
            self.settle_epoch(before.epoch)
            self.may_restart = False
            self.oracle.save()
        else:
            self.crash_hub()

    def crash_opening(self, point):
        """The server dies, and dies again while it comes back."""
        self.protocol.close()
        protocol = killed_at(point, self.open)
        if protocol:
            protocol.close()
        self.crash_hub()

    def forget(self, i):
        """The operator gives client i up for good."""
        if self.names[i] in self.protocol.counted:
            return
        epoch, applied = self.protocol.epoch, self.protocol.applied[self.names[i]]
        self.protocol.forget(self.names[i])
        if self.protocol.epoch > epoch:
            self.oracle.begin(self.oracle.server.x)
            self.may_restart = False
        elif applied:
            assert self.copies
            self.oracle.ask(self.protocol.ledger.clock)
            self.oracle.count(i, self.protocol.ledger.clock, lambda x, batch: 0 * x)
            self.lost_at[i] = self.protocol.ledger.clock
        self.oracle.save()

    def save(self):
        self.protocol.save()
        self.oracle.save()

    def give_up(self, i):
        self.protocol.give_up(self.names[i])

    def new_epoch(self):
        self.protocol.new_epoch()
        self.oracle.begin(self.oracle.server.x)
        self.oracle.save()
        self.may_restart = False

    # What must hold after each of them.

    def check(self):
        ledger, oracle = self.protocol.ledger, self.oracle
        assert ledger.current == oracle.index
        assert same(ledger.server, oracle.server)
        assert [self.names[i] for i in oracle.counted] == list(ledger.counted)
        if oracle.counted:
            assert same(ledger.total, oracle.total)
        assert len(ledger.kept) <= len(self.sites)
        memories, weights = [], []
        for i, site in enumerate(self.sites):
            entry = ledger.entries[site.site]
            assert (entry.applied > 0) == (i in oracle.contributed)
            assert entry.grads_done == oracle.numbers[i]
            if not entry.applied:
                continue
            state = site.disk.load()
            held = [state.acked, state.pending] if state else []
            held = [s for s in held if (s.seq, s.digest) == entry[:2]]
            if not held:
                # Made before the loss, it may have counted since.
                assert entry.applied <= self.lost_at.get(i, -1)
                continue
            (snapshot,) = held
            memories.append(snapshot.memory)
            weights.append(self.weights[i] if self.weights else 1)
            assert same(snapshot.memory, oracle.pushed[i])
        held = tracked(ledger.server, ledger.total)
        if held and len(memories) == len(oracle.contributed):
            gap = tracking_error(held, memories, len(self.sites), weights)
            assert gap < 1e-12 * max(self.weights or [1])
