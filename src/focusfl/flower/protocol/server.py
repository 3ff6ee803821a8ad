"""The server of a job: one truth, one rule.

The database is the only truth. **A reply counts if and only if it was computed from the
version of its site's state that is current** (compare and swap) and, for algorithms
that do not accept a stale model, from the model that is current. Lost, doubled and late
replies, crashes of either side, sites that lost everything and a database restored from
a backup need no further rule: what was not computed from what is current is refused,
and nothing is lost by a refusal, because the site is simply asked again.

Both sides name the new state of a site alike, without sending it: its new version is the
digest of the header of the reply that led to it.
"""

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from focusfl.algorithms.compressed import coded_in
from focusfl.core import Algorithm, CannotForget, Client, Round, tree
from focusfl.core import Server as ServerState
from focusfl.core.tree import Tree
from focusfl.core.validation import shown
from focusfl.flower.protocol import limits
from focusfl.flower.protocol.messages import (
    KINDS,
    UNKNOWN,
    Receipt,
    Refused,
    Reply,
    Request,
    Wired,
    decode,
    digest,
    encode,
    leaves,
    pack,
    unpack,
)
from focusfl.flower.protocol.settings import (
    check_max_memory,
    check_settings,
    check_unchanged,
    identity_of,
    settings_of,
)
from focusfl.flower.protocol.store import BARRED, FORMAT, HERE, LEFT, JobRow, SiteRow, Store
from focusfl.flower.protocol.uplink import Uplink
from focusfl.simulation.step_sizes import step_at

DATABASE = "server.db"  # in the folder of a job

log = logging.getLogger(__name__)


class ProtocolServer:
    """The server of one job. Killed at any moment, it continues from its last commit.

    A round is always open: send requests, receive replies, close it. A round is one
    transaction: replies change the sites' rows as they come, `close_round` changes the
    server's state and commits both. So a crash can lose an open round, and never half of one.

    Args:
        algorithm: the algorithm of the server and of all sites.
        params: the model to start from: arrays of floating point numbers.
        sites: names of all sites.
        folder: the database is FOLDER/JOB/server.db.
        job: name of the job.
        lr: step size, or a function of the round's number.
        local_steps: gradients a site computes in a round.
        on_empty: "step" if a round without replies moves the model, as momentum would.
        max_norm: the largest Euclidean norm of a push that counts; None: as the pushes before
            it suggest.
        max_memory: the largest Euclidean norm of what all pushes of a site add up to at the
            server, such as its last gradient; None: any. A push beyond it is refused.
        weights: how much each site counts, by site; None: all alike.
        changed: "accept" if a job may continue with other settings than it was begun with.

    Raises:
        ValueError: If a setting is wrong, the job was begun with others, or another
            process has it open.
    """

    store_type: ClassVar[type[Store]] = Store
    carries: ClassVar[set[str]] = {"up", "state"}  # parts of a push

    server: ServerState  # the algorithm's state
    generation: int  # 1, and one more each time that all states were emptied
    round: int  # how many rounds are closed
    warming: bool  # the open round is before round 0: everybody must be heard in it
    num_clients: float | int  # the sum of weights of who is here

    def __init__(
        self,
        algorithm: Algorithm,
        params: Tree,
        sites: Sequence[str],
        folder: str | Path,
        *,
        job: str,
        lr: float | int | Callable[[int], float],
        local_steps: int = 1,
        on_empty: Literal["skip", "step"] = "skip",
        max_norm: float | int | None = None,
        max_memory: float | int | None = None,
        weights: Mapping[str, float | int] | None = None,
        changed: Literal["refuse", "accept"] = "refuse",
    ):
        check_settings(job, sites, lr, local_steps, on_empty, max_norm, weights)
        params = tree.map(np.asarray, params)
        pack(params)  # raises on what cannot travel
        if not all(leaf.dtype.kind == "f" for leaf in leaves(params)):
            raise ValueError("params must be arrays of floating point numbers.")
        if "x" not in algorithm.broadcast(algorithm.init(params)[0]):
            raise ValueError(f"{algorithm!r} must broadcast x to be deployed.")
        self.algorithm, self.job, self.sites = algorithm, job, tuple(sites)
        self._lr, self._local_steps = cache(partial(step_at, lr)), int(local_steps)
        check_max_memory(max_memory, algorithm, params)
        self._on_empty, self._max_norm, self._max_memory = on_empty, max_norm, max_memory
        # What comes off the wire or the disk must have the structure of these.
        self._like_server, self._like_state = algorithm.init(params)
        self._uplink = Uplink(algorithm, params)
        coded = coded_in(algorithm)
        # A push of some coordinates alone says nothing about the size of a whole one.
        self._comparable = coded is None or coded.compressor.sends_all
        self.spent: set[str] = set()  # their privacy budgets, while this server runs
        self._strikes: Counter[str] = Counter()  # pushes refused in a row
        self._leaving: set[str] = set()  # when this round is closed
        # Versions that a site has in its cache, as far as this process has heard.
        self._cached: dict[str, tuple[str, ...]] = {}
        self._store = self.store_type(Path(folder).expanduser() / job / DATABASE)
        try:
            identity = identity_of(algorithm, job, sites, weights)
            settings = settings_of(params, lr, local_steps, on_empty)
            self._open(params, weights, identity, settings, changed)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "ProtocolServer":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the job. Commits nothing."""
        self._store.close()

    # How the job stands

    @property
    def x(self) -> Tree:
        """The model."""
        return self.server.x

    @property
    def counted(self) -> tuple[str, ...]:
        """Sites whose pushes are in the open round."""
        return tuple(self._counted)

    @property
    def gone(self) -> tuple[str, ...]:
        """Sites that have left, or are left out."""
        return tuple(self._store.column("name", LEFT, BARRED))

    @property
    def barred(self) -> tuple[str, ...]:
        """Sites that are left out until the server is started again."""
        return tuple(self._store.column("name", BARRED))

    @property
    def pushes(self) -> dict[str, int]:
        """How many pushes of each site were counted in this generation."""
        return self._store.column("pushes", HERE, LEFT, BARRED)

    @property
    def free(self) -> tuple[str, ...]:
        """Sites that may be asked: they are here, and not counted in the open round."""
        here = self._store.column("pushes", HERE)
        busy = {*self._counted, *self.spent, *self._leaving}
        if self.warming:  # each is heard once
            busy |= {site for site, pushes in here.items() if pushes}
        return tuple(site for site in here if site not in busy)

    def state(self, site: str) -> Client:
        """Read a site's state, as the server keeps it."""
        return self._state(self._row(site))

    def states(self) -> list[tuple[float, Client]]:
        """Read weight and state of every site that is here."""
        return [(row.weight, self._state(row)) for row in self._store.sites(HERE)]

    # One round

    def request(self, site: str) -> Wired:
        """Make the request for a push from a site's current state and the current model.

        The state itself travels only if the site is not known to have it.
        """
        row = self._row(site)
        if row.status != HERE:
            raise ValueError(f"{site} has left this job.")
        rd, (down, model) = self._rd(), self._model()
        # The reply repeats version and model, and that is all it is judged by: neither
        # side counts messages or acknowledges them.
        request = Request(
            algorithm=repr(self.algorithm), job=self.job, site=site,
            version=row.version, model=model, round=rd.index, lr=rd.lr,
            local_steps=rd.local_steps, num_clients=rd.num_clients,
            grads_done=row.grads_done,
        )  # fmt: skip
        parts = self._parts(row, down)
        if leaves(self._like_state) and row.version not in self._cached.get(site, ()):
            self._add_state(parts, row)
        return encode(request, parts)

    def receive(self, sender: str, message: Wired) -> Receipt:
        """Count a reply in the open round, or refuse it; then nothing changes.

        Args:
            sender: the site that it came from, as the transport knows it.
            message: the reply, as it came.

        Returns:
            What became of it, and why.
        """
        try:
            reply, name = decode(message, Reply, self.carries)
            row = self._check_reply(sender, reply)
            if reply.kind != "push":
                return self._report(reply, row, message.keys() - {"header"})
            # The site holds the state before its push and the one after: it cannot know
            # which of them is current until it is asked again.
            self._cached[sender] = (reply.version, name)
            self._count(row, reply, name, message)
        except Refused as error:
            if isinstance(error, limits.TooLarge):  # all else may come of a lost race
                self._strikes[sender] += 1
            log.warning("refused a message from %s: %s", ascii(sender), error)
            return Receipt("refused", str(error))
        self._strikes.pop(sender, None)
        return Receipt("applied")

    def close_round(self) -> tuple[str, ...] | None:
        """Move the model, commit, and open the next round.

        Returns:
            Sites that were counted; None while the warm-up lacks somebody.

        Raises:
            ArithmeticError: If the model would be infinite. The round is dropped.
        """
        counted, warming = self.counted, self.warming
        # Begun by the first push already, unless nobody was counted. A kill before the
        # commit below forgets pushes and update together: sites are asked again.
        self._store.begin()
        if counted or (self._on_empty == "step" and not self.warming):
            rd = self._rd()._replace(num_active=_sum(self._counted.values()))
            try:
                self._update(rd)
            except ValueError as error:
                self.drop_round()
                words = f"round {self.round} cannot be closed: {error} Lower lr."
                raise ArithmeticError(words) from None
            if self.algorithm.has_after_update:
                self._change_states_after_update(counted, rd)
        # After the update: a departure takes back all that the site has pushed, what it
        # pushed in this round included.
        for site in sorted(self._leaving):
            self._move(site, LEFT)
        for site in self._struck():
            log.warning("%s is left out: refused %s times", site, limits.STRIKES)
            self._move(site, BARRED)
        self._recompute_sums()
        if warming:
            self.warming = not all(self._store.column("pushes", HERE).values())
        else:
            self.round += 1
        self._commit()
        return None if warming and self.warming else counted

    def drop_round(self) -> None:
        """Forget what the open round has counted; its sites are asked again."""
        self._store.rollback()
        self._load()

    # Who takes part

    def remove(self, site: str) -> None:
        """Go on without a site: what it has contributed is taken back.

        Where the algorithm cannot do that, a new generation begins without the site.
        """
        if self._counted:
            raise ValueError(f"close the open round before {site} is removed.")
        if self._row(site).status == HERE:
            self._store.begin()
            self._move(site, LEFT)
            self._commit()

    def new_generation(self, why: str = "asked for") -> None:
        """Empty all states and keep the model. Drops what the open round counted."""
        self.drop_round()
        self._store.begin()
        self._begin_generation(why)
        self._commit()

    # Inside

    def _open(
        self, params: Tree, weights: Mapping[str, float | int] | None, identity: str,
        settings: dict[str, Any], changed: str,
    ) -> None:  # fmt: skip
        """Create the job, or continue it."""
        store, job = self._store, self._store.job()
        if job is None:
            server, state = self._first_states(params)
            weight_by_site = weights or dict.fromkeys(self.sites, 1.0)
            store.create(
                JobRow(identity, json.dumps(settings), server, state, self.algorithm.starts_warm),
                [SiteRow(site, float(weight_by_site[site]), digest(state)) for site in self.sites],
            )
            return self._load()
        path = self._store.path
        if (job.format, job.identity) != (FORMAT, identity):
            raise ValueError(f"{path} is another job: {job.identity}; this one is {identity}.")
        try:
            for words in check_unchanged(job.settings, settings, changed):
                log.warning("%s continues: %s", self.job, words)
        except ValueError as error:
            raise ValueError(f"cannot resume from {path}: {error}") from None
        weight_by_site = {site: weights[site] if weights else 1.0 for site in self.sites}
        if store.column("weight", HERE, LEFT, BARRED) != weight_by_site:
            raise ValueError(f"{path} is damaged: its sites or their weights are others.")
        self._load()
        store.begin()
        store.set_job(settings=json.dumps(settings))
        for site in self.barred:  # they get another chance
            self._move(site, HERE)
        self._commit()

    def _load(self) -> None:
        """Read the last commit, and open a round."""
        job = self._store.job()
        assert job is not None
        self.generation, self.round = job.generation, job.round
        self.warming, self._largest = bool(job.warming), job.largest
        self._read_server(job.server)
        self._initial = job.initial
        self.num_clients = self._weight_here()
        self._open_round()

    def _open_round(self) -> None:
        self._counted: dict[str, float] = {}  # weights, by site
        self._total: Any = None
        self._leaving.clear()
        self._broadcast: tuple[bytes, str] | None = None

    def _model(self) -> tuple[bytes, str]:
        """Give the broadcast, and a name for all that a push is computed from beside the
        site's state."""
        if self._broadcast is None:
            down = pack(self.algorithm.broadcast(self.server))
            self._broadcast = down, digest(down, repr(self._rd()).encode())
        return self._broadcast

    def _commit(self) -> None:
        """Put everything on disk, and open a round."""
        self._store.set_job(
            generation=self.generation, round=self.round, warming=self.warming,
            largest=self._largest, server=self._packed_server(), initial=self._initial,
        )  # fmt: skip
        self._store.commit()
        self._open_round()

    def _rd(self, index: int | None = None) -> Round:
        """Describe a round while it is open: the current one, or that of a reply."""
        if index is None:
            index = -1 if self.warming else self.round
        lr, steps = (0.0, 1) if index < 0 else (self._lr(index), self._local_steps)
        return Round(index, float(lr), steps, self.num_clients, UNKNOWN)

    def _check_reply(self, sender: str, reply: Reply) -> SiteRow:
        """Raise Refused unless a reply may count now."""
        row = self._store.site(sender)
        if row is None or reply.site != sender:
            raise Refused(f"{ascii(sender)} is not site {reply.site[:80]!a} here.")
        if row.status != HERE:
            raise Refused(f"{sender} has left this job.")
        if reply.kind not in KINDS:
            raise Refused(f"kind must be one of {KINDS}; got {reply.kind[:80]!a}.")
        for what, got, expected in [
            ("algorithm", reply.algorithm, repr(self.algorithm)),
            ("job", reply.job, self.job),
        ]:
            if got != expected:
                raise Refused(f"it belongs to {what} {got[:80]!a}; this is {expected}.")
        # The one rule. A copy, a reply given up and asked for again, one from before a
        # backup was restored: each names a version that is not current any more.
        if reply.version != row.version:
            raise Refused(
                f"it was computed from state {reply.version[:80]!a}; the current one "
                f"is {row.version}."
            )
        if reply.kind == "push" and sender in self._leaving:
            raise Refused(f"{sender} is leaving.")
        if reply.round > (-1 if self.warming else self.round):
            # Of a future that a restored backup has abandoned. The version may be current
            # all the same, if the site had not pushed since the backup was made.
            raise Refused(f"round {reply.round} is still to come.")
        stale = self.algorithm.accepts_stale_model
        if reply.kind == "push" and not stale and reply.model != self._model()[1]:
            raise Refused(
                f"it was computed from another model, which {self.algorithm!r} does not accept."
            )
        return row

    def _report(self, reply: Reply, row: SiteRow, parts: set[str]) -> Receipt:
        """Note what a site reports instead of a push: it lacks its state, leaves, or has
        spent its privacy budget."""
        if parts:
            raise Refused(f"a reply that is no push carries {sorted(parts)}.")
        if row.name in self._counted:
            raise Refused(f"{row.name} is counted in this round already.")
        if reply.kind == "missing":
            # We believed it had its state: from a reply that it sent before it lost that.
            self._cached.pop(row.name, None)  # the next request carries the state
            return self._missing(row)
        if reply.kind == "spent":
            self.spent.add(row.name)
            if self.warming:
                self._leaving.add(row.name)  # nobody could wait for it
            why = "has spent its privacy budget: it is asked no more."
            return Receipt("spent", f"{row.name} {why}")
        if len(self._store.column("name", HERE)) <= len(self._leaving) + 1:
            raise Refused("the last site of a job cannot leave it.")
        self._leaving.add(row.name)
        return Receipt("leaving", f"{row.name} leaves when this round is closed.")

    def _count(self, row: SiteRow, reply: Reply, name: str, message: Wired) -> None:
        """Take a push into the open round."""
        up, state = self._read(row, reply, message)
        size = limits.norm(up)
        others, largest = self._store.has_pushed(row.name), self._largest * self._comparable
        of_model = limits.limit_of_model(self.x, self._lr(self.round))
        limits.check_size(size, self._max_norm, largest, row.pushes, others, of_model)
        if self._max_memory is not None:
            memory = limits.norm(self.algorithm.tracked(self.server, state))
            limits.check_memory(memory, self._max_memory)
        # Here a push is multiplied by its site's weight, and nowhere else: a site cannot
        # choose its own, and its state is the same whatever it weighs.
        weighed = up if row.weight == 1 else tree.scale(row.weight, up)
        with np.errstate(all="ignore"):
            total = weighed if self._total is None else tree.add(self._total, weighed)
        if not all(np.isfinite(leaf).all() for leaf in leaves(total)):
            raise Refused("it is so large that the sum of all pushes is infinite.")
        blob = None if state is None else pack(state)
        self._add(row, reply, name, blob, limits.norm(state or {}))
        self._total, self._largest = total, max(self._largest, size)

    def _read(self, row: SiteRow, reply: Reply, message: Wired) -> tuple[Any, Any]:
        """Read the push of a reply, and the site's state after it."""
        sends = self.algorithm.sends_state
        if message.keys() != {"header", "up", "state"} - (set() if sends else {"state"}):
            raise Refused("a push must carry up, and state if the algorithm sends it.")
        up = self._uplink.read(unpack(message["up"], self._uplink.like), reply.round)
        if sends:
            return up, unpack(message["state"], self._like_state)
        # What the site computed from the same three: its state need not travel.
        down, rd = self.algorithm.broadcast(self.server), self._rd(reply.round)
        return up, self.algorithm.state_after(self._state(row), up, down, rd)

    def _add(self, row: SiteRow, reply: Reply, name: str, state: bytes | None, norm: float) -> None:
        """Swap a site's version for the next one: from here on the reply counts."""
        self._store.begin()
        swapped = self._store.set_site(
            row.name, reply.version, version=name,
            state=state, norm=norm,
            grads_done=row.grads_done + self._rd(reply.round).local_steps,
            pushes=row.pushes + 1,
        )  # fmt: skip
        # One process has the database, so that nobody can have come between.
        assert swapped, "the version was compared before"
        self._counted[row.name] = row.weight

    def _change_states_after_update(self, counted: Sequence[str], rd: Round) -> None:
        """Apply `after_update` for the sites, which never hear the server's answer.

        Their states change once more, and so do the versions: such a state travels with
        the next request.
        """
        down = self.algorithm.broadcast(self.server)
        for site in counted:
            state = self.algorithm.after_update(self.state(site), down, rd)
            blob = pack(state)
            version = digest(self._row(site).version.encode(), blob)
            norm = limits.norm(state)
            self._store.set_site(site, None, version=version, state=blob, norm=norm)

    def _recompute_sums(self) -> None:
        """Recompute the server's sums if a far too large push took their digits."""
        now = self._store.largest_norm()
        if not limits.lost_digits(self._largest, now, self.x):
            return
        try:
            server = self.algorithm.recompute(self.server, self.states())
        except CannotForget as error:
            return self._begin_generation(f"sums have lost their digits: {error}")
        if server is self.server:  # no sums are kept: states do not tell the size of pushes
            return
        self._set_server(server)
        log.warning("round %s: recomputed the sums from all states", self.round)
        self._largest = now
        # Own states may differ from those kept here by what was lost: continue from
        # these, under names that no site has.
        for row in list(self._store.sites(HERE)):
            renamed = digest(row.version.encode())
            self._store.set_site(row.name, None, version=renamed)

    def _move(self, site: str, status: str) -> None:
        """Take a site's contribution out of the sums, or add that of one that returns.

        It returns with the state of a newcomer, which it was given as it left. The last
        site that is here stays.
        """
        row, before, returns = self._row(site), self.num_clients, status == HERE
        if not returns and len(self._store.column("name", HERE)) == 1:
            return log.warning("%s is the last site: it stays", site)
        self._store.set_site(site, None, status=status)
        self.num_clients = self._weight_here()
        self._strikes.pop(site, None)
        weight = -row.weight if returns else row.weight
        try:
            self._forget(row, weight, before)
        except CannotForget as error:
            self._begin_generation(str(error))
        # A reply from its first days, which may have counted then, must not count again.
        version = digest(self._initial, f"{self.generation} {row.grads_done}".encode())
        self._store.set_site(site, None, version=version, state=None, norm=0.0, pushes=0)

    def _begin_generation(self, why: str) -> None:
        """Empty all states and keep the model."""
        log.warning("generation %s: %s", self.generation + 1, why)
        self.generation += 1
        self.warming, self._initial = self.algorithm.starts_warm, self._empty()
        self._largest, version = 0.0, digest(self._initial, str(self.generation).encode())
        self._store.set_sites(version=version, state=None, norm=0, pushes=0)

    # What follows is all that knows the server's state: secure sums have another.

    def _first_states(self, params: Tree) -> tuple[bytes, bytes]:
        """Give the server's state and a newcomer's as a job begins."""
        server, state = map(pack, self.algorithm.init(params))
        return server, state

    def _read_server(self, blob: bytes) -> None:
        """Take the server's state from the database."""
        self.server = unpack(blob, self._like_server)

    def _packed_server(self) -> bytes:
        """Give the server's state for the database."""
        return pack(self.server)

    def _parts(self, row: SiteRow, down: bytes) -> dict[str, bytes]:
        """Give what a request carries beside the site's state."""
        del row
        return {"down": down}

    def _update(self, rd: Round) -> None:
        """Change the server's state by the sum of the open round."""
        total = tree.zeros(self._uplink.up) if self._total is None else self._total
        with np.errstate(all="ignore"):  # `_set_server` refuses what is not finite
            server = self.algorithm.update(self.server, total, rd)
        self._set_server(server)

    def _forget(self, row: SiteRow, weight: float, before: float) -> None:
        """Take a site's contribution out of the server's state; CannotForget if it cannot be."""
        self._set_server(self.algorithm.forget(self.server, self._state(row), weight, before))

    def _empty(self) -> bytes:
        """Begin the server's state anew at the same model; give the state of a newcomer."""
        server, state = self.algorithm.init(self.x)
        self._set_server(server)
        return pack(state)

    def _set_server(self, server: ServerState) -> None:
        """Change the server's state; ValueError if it is not finite."""
        pack(server)
        self.server = server

    def _struck(self) -> list[str]:
        """List the sites to leave out: never all, or the fault is not theirs."""
        struck = [s for s, n in self._strikes.items() if n >= limits.STRIKES]
        here = self._store.column("name", HERE) if struck else {}
        struck = [site for site in struck if site in here]
        return struck if len(struck) < len(here) else []

    def _state(self, row: SiteRow) -> Client:
        return unpack(row.state or self._initial, self._like_state)

    def _add_state(self, parts: dict[str, bytes], row: SiteRow) -> None:
        parts["state"] = row.state or self._initial

    def _missing(self, row: SiteRow) -> Receipt:
        return Receipt("missing", f"{row.name} has no state: it is sent along.")

    def _weight_here(self) -> float | int:
        """Add up the weights of all who are here."""
        return _sum(self._store.column("weight", HERE).values())

    def _row(self, site: str) -> SiteRow:
        row = self._store.site(site)
        if row is None:
            raise ValueError(f"unknown site {site!r}; this job has {shown(self.sites)}.")
        return row


def _sum(weights: Collection[float]) -> float | int:
    """Count sites, or add up their weights."""
    return len(weights) if {*weights} <= {1} else math.fsum(weights)
