"""One life of a job under random faults, and the laws that must hold in it.

After every commit what the server tracks is the sum of the states it keeps, and each of
these is the state its site computed. In the end the model is the optimum of those who
remain. Whatever was sent may be lost, come twice, late, or out of a future that a
restored backup has abandoned; the server may be killed at any moment, in particular
just before and just after every transaction; sites may lose everything.
"""

import logging
import os
import random
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from focusfl.core import CannotForget, tree
from focusfl.flower.protocol import ProtocolServer, Site
from focusfl.flower.protocol.messages import unpack
from focusfl.flower.protocol.store import HERE, Store
from world.job import (
    DEPLOYED,
    NAMES,
    START,
    N,
    Setting,
    error_after,
    gradient,
    optimum,
    play_round,
    rounds_without_faults,
    setting,
)
from world.sealed import TERMS, ReadableServer, in_whole_numbers, noisy_gradient, secure_site

ROUNDING = 1e-9
SPIKE = 1e16  # what a broken site adds to its gradient
FIRST = 1e300  # the same in the very first push, which a server without a limit counts
STEPS = 60  # of a sequence; then it is quiet
PATIENCE = 6  # quiet rounds after which everybody is counted in every round


class Killed(BaseException):
    """The server dies here."""


class Violation(AssertionError):
    """What must never happen has happened."""


class MortalStore(Store):
    """A store whose process may die just before or just after it commits."""

    dies: str = ""

    def commit(self):
        dies, self.dies = self.dies, ""
        if dies == "before":
            raise Killed
        Store.commit(self)
        if dies == "after":
            raise Killed


class World:
    """A server, three sites, and all messages that were ever sent."""

    def __init__(self, job: Setting, seed: int, server_type, site_type):
        self.job, self.rng, self.tally = job, random.Random(seed), Counter([job.kind])
        self.folder = Path(tempfile.mkdtemp(dir=memory()))
        if job.kind == "sealed":
            server_type, site_type = ReadableServer, secure_site
        elif job.kind == "private":
            site_type = partial(Site, private=TERMS, folder=self.folder)
        self.kind = type("Mortal", (server_type,), {})
        if server_type.store_type is Store:
            self.kind.store_type = MortalStore
        else:  # a planted bug
            self.kind.store_type = type("M", (MortalStore, server_type.store_type), {})
        # A spike is counted in some jobs, and refused in others.
        self.max_norm = self.rng.choice([None, float("inf")])
        self.spiked = False
        self.sites = [site_type(job.algorithm, "job", name) for name in NAMES]
        self.requests: list[tuple[int, dict]] = []
        self.replies: list[tuple[int, dict]] = []
        self.computed: dict[str, bytes] = {}  # states that sites came to, by version
        self.backup: bytes | None = None
        self.gap = 0.0
        self.start()

    def start(self) -> None:
        job = self.job
        weights = job.weights and dict(zip(NAMES, job.weights, strict=True))
        self.server = self.kind(
            job.algorithm, START, NAMES, self.folder, job="job", lr=job.lr,
            local_steps=job.local_steps, weights=weights, max_norm=self.max_norm,
        )  # fmt: skip
        self.committed()

    def close(self) -> None:
        self.server.close()
        shutil.rmtree(self.folder)

    # What may happen

    def ask(self, i: int) -> None:
        if NAMES[i] in self.server.free:
            self.requests.append((i, self.server.request(NAMES[i])))

    def answer(self, more: float = 0.0) -> None:
        """A site answers any request that was ever sent."""
        if not self.requests:
            return
        recent = self.rng.random() < 0.7
        i, request = self.rng.choice(self.requests[-N:] if recent else self.requests)
        self.reply(i, request, more)

    def reply(self, i: int, request: dict, more: float = 0.0) -> dict:
        work, site = gradient(i, more), self.sites[i]
        if self.job.kind == "private":
            work = noisy_gradient(i, more)
        reply = site.answer(request, work)
        if self.job.kind == "private" and site.answer(request, work) != reply:
            raise Violation(f"{site.site} gave two noises for one request")
        self.computed.update(self.sites[i].cache)
        self.replies.append((i, reply))
        return reply

    def deliver(self) -> None:
        """Any reply that was ever sent arrives: late, twice, or never."""
        if self.replies:
            recent = self.rng.random() < 0.8
            some = self.replies[-2:] if recent else self.replies
            i, reply = self.rng.choice(some)
            receipt = self.server.receive(NAMES[i], reply)
            self.tally[receipt.status] += 1

    def play(self) -> list[str]:
        """A round of everybody in which nothing is lost."""
        said = []
        for i in range(N):
            if NAMES[i] in self.server.free:
                reply = self.reply(i, self.server.request(NAMES[i]))
                said.append(self.server.receive(NAMES[i], reply).status)
        self.close_round()
        return said

    def close_round(self) -> None:
        self.server.close_round()
        self.tally["rounds"] += 1
        self.committed()

    def spike(self, i: int, first: bool) -> None:
        """A site that is broken for a moment gives a far too large gradient."""
        if NAMES[i] in self.server.free:
            self.spiked = True
            size = FIRST if first and self.max_norm is None else SPIKE
            try:
                reply = self.reply(i, self.server.request(NAMES[i]), size)
            except ValueError:  # no number comes out of it: the site has no reply
                self.tally["spike fails at its site"] += 1
                return
            words = "first spike" if first else "spike"
            self.tally[f"{words} {self.server.receive(NAMES[i], reply).status}"] += 1
            self.close_round()

    def kill(self) -> None:
        """The process dies; or it dies in its next commit."""
        when = self.rng.choice(["now", "before", "after"])
        before, x = self.server.round, None
        if when != "now":
            self.server._store.dies = when
            try:
                self.server.close_round()
            except Killed:
                pass
            x = self.server.x
        self.tally[f"killed {when}"] += 1
        self.server.close()
        self.start()
        if when == "before" and self.server.round != before:
            raise Violation("a round was counted that was not committed")
        if when == "after" and gap(self.server.x, x):
            raise Violation("a commit is not on disk")

    def save(self) -> None:
        """A backup of the database, as an operator makes it."""
        self.server._store.commit() if not self.server.counted else None
        if not self.server.counted:
            self.backup = self.server._store.db.serialize()
            self.tally["backups"] += 1

    def restore(self) -> None:
        if self.backup is None:
            return
        self.server.close()
        path = self.folder / "job" / "server.db"
        for suffix in ("-wal", "-shm"):
            if os.path.exists(f"{path}{suffix}"):
                os.remove(f"{path}{suffix}")
        path.write_bytes(self.backup)
        self.tally["restored"] += 1
        self.start()

    def wipe(self) -> None:
        self.rng.choice(self.sites).cache.clear()
        self.tally["wiped"] += 1

    def leave(self) -> None:
        """A site leaves, by its own word or the operator's."""
        here = [name for name in NAMES if name not in self.server.gone]
        if len(here) == 1:
            return
        site = self.rng.choice(here)
        i = NAMES.index(site)
        if self.rng.random() < 0.5:
            request = self.server.request(site)
            self.replies.append((i, self.sites[i].leave(request)))
        elif not self.server.counted:
            self.server.remove(site)
            self.tally["removed"] += 1
            self.committed()

    def renew(self) -> None:
        self.server.new_generation()
        self.tally["generations"] += 1
        self.committed()

    # Laws

    def committed(self) -> None:
        """What must hold after every commit."""
        server, algorithm = self.server, self.job.algorithm
        scale = max(1.0, server._largest, float(np.abs(server.x).max()))
        try:
            expected = algorithm.recompute(server.server, server.states())
            # Sums may have lost as many digits as the largest push took.
            self.gap = max(self.gap, gap(server.server, expected) / scale)
        except CannotForget:
            pass
        if self.gap > ROUNDING:
            raise Violation(f"the server tracks {self.gap:.2g} beside the states")
        if self.job.kind == "private":
            for site in self.sites:
                done, row = site.account.summary, server._store.site(site.site)
                if done.get("gradients", 0) < row.grads_done:
                    raise Violation(f"{site.site} has not accounted for what was counted")
        coded = "Compressed" in repr(algorithm) and not algorithm.sends_state
        if coded or algorithm.has_after_update:
            return
        for row in server._store.sites(HERE):
            own = self.computed.get(row.version)
            if own is not None:
                state = unpack(own, server._like_state)
                if gap(state, server.state(row.name)) > ROUNDING * scale:
                    raise Violation(f"{row.name} came to another state")

    def finish(self) -> float:
        """Play without faults. Give the error in the end."""
        good = 0
        for _ in range(PATIENCE):
            said = self.play()
            good = good + 1 if {*said} <= {"applied"} and said else 0
            if good == 2:
                break
        else:
            raise Violation(f"after {PATIENCE} quiet rounds replies are still {said}")
        server, job = self.server, self.job
        gone = {NAMES.index(name) for name in server.gone}
        ids = tuple(i for i in range(N) if i not in gone)
        self._check_round(ids)
        rounds = rounds_without_faults(job, ids)
        inexact = job.kind == "private" or (self.spiked and "Adam" in repr(job.algorithm))
        if rounds is None or inexact:
            return 0.0
        if self.spiked:  # the sums are repaired on the way, by the protocol alone
            for _ in range(6 * rounds + 60):
                if np.abs(self.server.x - optimum(job, ids)).max() <= 1e-8:
                    return 0.0
                self.play()
        states = {i: server.state(NAMES[i]) for i in ids}
        limit = 4 * rounds + 60
        error, _ = error_after(job, server.server, states, server.round, limit)
        if error > 1e-8:
            raise Violation(f"it ends {error:.2g} from the optimum of {ids}")
        return error

    def _check_round(self, ids: tuple[int, ...]) -> None:
        """Raise unless a round through the protocol is a round without it."""
        server, coded = self.server, "Compressed" in repr(self.job.algorithm)
        if (
            self.spiked or coded or self.job.kind == "private"
        ):  # coded sites know what they have not sent
            return
        states = {i: server.state(NAMES[i]) for i in ids}
        expected = play_round(self.job, server.server, states, server.round)
        self.play()
        found = server.server, {i: server.state(NAMES[i]) for i in ids}
        apart = max(gap(*pair) for pair in zip(found, expected, strict=True))
        if apart > ROUNDING:
            raise Violation(f"a round comes to {apart:.2g} beside what it should")


def gap(a, b) -> float:
    """The largest difference between two trees."""
    parts = [0.0]
    tree.map(lambda a, b: parts.append(float(np.max(np.abs(a - b), initial=0))), a, b)
    return max(parts)


def memory() -> str | None:
    """A folder in memory, where a commit costs nothing, if this system has one."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


@dataclass
class Outcome:
    """What happened in a sequence; `wrong` says which law was violated."""

    tally: Counter = field(default_factory=Counter)  # events by name
    wrong: str = ""
    gap: float = 0.0
    error: float = 0.0


def draw(seed: int) -> Setting:
    """The job of a sequence: every algorithm comes in turn."""
    rng = random.Random(f"job {seed}")
    algorithm = DEPLOYED[seed % len(DEPLOYED)]
    weights = tuple(rng.choice([0.5, 1.0, 2.0]) for _ in NAMES)
    job = setting(algorithm, rng.choice([1, 2]), weights if rng.random() < 0.3 else None)
    kind = random.Random(f"kind {seed}").random()
    coded = in_whole_numbers(algorithm)
    if kind < 0.15 and coded:
        return job._replace(algorithm=coded, weights=None, kind="sealed")
    return job._replace(kind="private") if 0.15 <= kind < 0.25 else job


def live(
    seed: int,
    job: Setting | None = None,
    server_type: type[ProtocolServer] = ProtocolServer,
    site_type: type[Site] = Site,
) -> Outcome:
    """Live through the sequence of a seed."""
    world = World(job or draw(seed), seed, server_type, site_type)
    rng, outcome = world.rng, Outcome()
    leaves = rng.random() < 0.4
    spikes = rng.random() < 0.15
    first = random.Random(f"spike {seed}").random() < 0.5
    acts = [
        (20, lambda: world.ask(rng.randrange(N))), (20, world.answer),
        (24, world.deliver), (8, world.close_round), (4, world.play), (2, world.kill),
        (2, world.save), (1, world.restore), (3, world.wipe), (0.3, world.renew),
        (0.7 * leaves, world.leave),
    ]  # fmt: skip
    weights, calls = zip(*acts, strict=True)
    try:
        for step in range(STEPS):
            if spikes and step == (0 if first else STEPS // 2):
                world.spike(rng.randrange(N), first)
            rng.choices(calls, weights)[0]()
        outcome.error = world.finish()
    except Violation as error:
        outcome.wrong = f"{world.job}: {error}"
    finally:
        world.close()
    outcome.tally = world.tally
    outcome.gap = world.gap
    return outcome


def lived(seed: int) -> tuple[int, Outcome]:
    """The same in a process of its own, which says nothing."""
    logging.disable(logging.CRITICAL)
    return seed, live(seed)
