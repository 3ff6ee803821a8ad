"""One sequence of faults, drawn by a seed, and the laws that must hold throughout."""

import random
import tempfile
from collections import Counter
from pathlib import Path

from world.disk import Disk, Killed, memory

from focusfl.flower.protocol import Refused
from focusfl.flower.protocol.messages import fields_of, load_flat, nest
from focusfl.flower.secure import Failed
from secure.job import (
    NAMES,
    N,
    answer,
    error,
    gap,
    open_server,
    open_site,
    play,
)  # fmt: skip

SESSIONS = 5
CLOSE = 1e-11  # what is tracked, beside what is remembered: rounding
OPERATIONS = 24  # of a process on its disk, before one of which it may die


class Violation(AssertionError):
    """A law that did not hold."""


class Life:
    """A server and its sites, each on a disk of its own, and all that was said."""

    def __init__(self, seed, folder):
        self.rng, self.tally = random.Random(seed), Counter()
        self.home = Path(folder) / "server"
        self.disks = [Disk(Path(folder) / n, N * seed + i) for i, n in enumerate(NAMES)]
        self.sites = [open_site(disk.folder, i) for i, disk in enumerate(self.disks)]
        self.requests = [[] for _ in NAMES]
        self.replies = []
        self.images = [[] for _ in NAMES]  # of the sites' disks, at earlier times
        self.backups = []
        self.hurt = set()  # whose disk was put back or emptied, in this generation
        self.opened = {}  # (session, site, dealer) -> what of the dealer's was given
        self.masked = {}  # (session, site) -> the masked push
        self.most = 0.0
        self.server = None
        self.start()

    def chance(self, share):
        return self.rng.random() < share

    def start(self):
        if self.server is not None:
            self.server.close()
        self.server = open_server(self.home)

    def crash(self):
        """Kill the server; now and then its disk is a backup's."""
        self.tally["server kills"] += 1
        self.server.close()
        if self.backups and self.chance(0.15):
            path = self.home / "job" / "server.db"
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            path.write_bytes(self.rng.choice(self.backups))
            self.hurt |= {*NAMES}
            self.tally["server rollbacks"] += 1
        self.start()

    def live(self):
        for _ in range(SESSIONS):
            self.session()
            self.check()
            self.harm()

    def session(self):
        server = self.server
        server.begin([name for name in NAMES if not self.chance(0.05)])
        self.tally["sessions"] += 1
        while server.session:
            for _ in range(2):  # what did not come is asked for again
                for name in self.rng.sample(server.free, len(server.free)):
                    self.exchange(NAMES.index(name))
            if self.chance(0.03):
                return self.crash()
            try:
                server.advance()
            except Failed:
                self.tally["failed sessions"] += 1
                if server.restarts:
                    self.commit(lambda: server.new_generation(server.restarts))
                return
        if self.chance(0.05):
            return self.crash()  # the sum is known, and not on disk
        self.tally["sums"] += 1
        self.commit(server.close_round)

    def commit(self, act):
        """Have the server commit; it may die before or after."""
        generation = self.server.generation
        if self.chance(0.05):
            return self.crash()
        act()
        if self.server.generation != generation:
            self.hurt.clear()
            self.tally["generations"] += 1
        if self.chance(0.05):
            self.crash()

    def exchange(self, i):
        """A request and its reply, as far as they come."""
        request = self.server.request(NAMES[i])
        self.requests[i].append(request)
        if self.chance(0.1):
            self.tally["lost messages"] += 1
            return
        if self.chance(0.05):
            self.ask(i, self.rng.choice(self.requests[i]))  # an old one, once more
        reply = self.ask(i, request)
        if self.chance(0.1) and reply is not None:
            self.tally["doubled messages"] += 1
            if self.ask(i, request) not in (None, reply):
                raise Violation("a doubled request had another reply")
        if reply is None or self.chance(0.1):
            self.tally["lost messages"] += 1
            return
        self.give(NAMES[i], reply)
        if self.chance(0.1):
            self.tally["doubled messages"] += 1
            if self.give(NAMES[i], reply).applied:
                raise Violation("a doubled reply was counted twice")
        if self.chance(0.05):
            self.give(*self.rng.choice(self.replies))

    def give(self, name, reply):
        self.replies.append((name, reply))
        return self.server.receive(name, reply)

    def ask(self, i, request):
        """What a site replies; nothing if it refuses, or dies on the way."""
        calls = self.rng.randrange(OPERATIONS) if self.chance(0.08) else None
        try:
            with self.disks[i].running(calls):
                reply = answer(self.sites[i], request)
        except Refused:
            self.tally["refused requests"] += 1
            return None
        except Killed:
            self.tally["site kills"] += 1
            if self.chance(0.5):
                self.disks[i].lose_power(self.rng)
            return None
        self.note(i, reply)
        return reply

    def note(self, i, reply):
        """Hold what a site has said against all it has said before."""
        fields, flat = fields_of(reply), load_flat(reply["body"])
        session = fields["incarnation"], fields["session"]
        roots = {path.split("/")[0] for path in flat}
        parts = {root: nest(flat, root) for root in roots}
        if "masked" in parts:
            blob = parts["masked"].tobytes()
            if self.masked.setdefault((session, i), blob) != blob:
                raise Violation(f"{NAMES[i]} masked two pushes with one key")
        for what in ("seeds", "keys"):
            for dealer in parts.get(what, ()):
                if self.opened.setdefault((session, i, dealer), what) != what:
                    raise Violation(f"{NAMES[i]} gave seed and key of {dealer}")

    def harm(self):
        """Between sessions: disks are copied, put back, or emptied."""
        if self.chance(0.3):
            self.backups.append(self.server._store.db.serialize())
        i = self.rng.randrange(N)
        if self.chance(0.3):
            self.images[i].append(self.disks[i].image())
        if self.chance(0.04):
            self.tally["wiped disks"] += 1
            self.disks[i].restore({})
            self.hurt.add(NAMES[i])
        elif self.images[i] and self.chance(0.04):
            self.tally["rolled back disks"] += 1
            self.disks[i].restore(self.rng.choice(self.images[i]))
            self.hurt.add(NAMES[i])

    def check(self):
        """The server has the sum of what sites remember of the pushes it counted."""
        pushes = self.server.pushes
        if self.hurt & {name for name, count in pushes.items() if count}:
            return
        try:
            wrong = gap(self.server, self.sites)
        except KeyError as error:
            raise Violation(f"a site forgot what was counted: {error}") from None
        self.most = max(self.most, wrong)
        if not wrong <= CLOSE:
            raise Violation(f"what is tracked is wrong by {wrong:.1e}")

    def settle(self):
        """Without faults, it arrives; give the error."""
        rounds = 0
        while rounds < 30 and not error(self.server) < 1e-12:
            try:
                play(self.server, self.sites)
            except Failed:
                self.server.new_generation(self.server.restarts or "too few")
            except AssertionError:  # a site says that it has lost its memory
                self.server.new_generation(self.server.restarts)
            rounds += 1
        return error(self.server)


def live(seed, settle=True):
    """Live through a sequence: its tally, the largest gap, the error in the end."""
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        life = Life(seed, folder)
        try:
            life.live()
            found = life.settle() if settle else 0.0
        finally:
            life.server.close()
        if not found <= 1e-10:
            raise Violation(f"it ends at an error of {found:.1e}")
        return life.tally, life.most, found
