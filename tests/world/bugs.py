"""Bugs that somebody could write, each a subclass of what it breaks."""

from typing import NamedTuple

import focusfl as ff
from focusfl.core import Algorithm
from focusfl.flower.protocol import ProtocolServer, Site
from focusfl.flower.protocol.store import Store
from world.job import setting
from world.world import live


class NoCompare(ProtocolServer):
    def _check_reply(self, sender, reply):
        row = self._store.site(sender)
        return super()._check_reply(sender, reply._replace(version=row.version))

    def _add(self, row, reply, *more):
        super()._add(row, reply._replace(version=row.version), *more)


class NoTransaction(ProtocolServer):
    class store_type(Store):  # noqa: N801
        def begin(self): ...


class NoSettling(ProtocolServer):
    def _change_states_after_update(self, counted, rd): ...


class NoRepair(ProtocolServer):
    def _recompute_sums(self): ...


class StatesOutliveGenerations(ProtocolServer):
    def _begin_generation(self, why):
        self._set_server(self.algorithm.init(self.x)[0])
        self.generation += 1


class NewestState(Site):
    def _state(self, request, message, like):
        for version in reversed(self.cache):
            request = request._replace(version=version)
            message = {"header": b""}
            break
        return super()._state(request, message, like)


class StaleScaffold(ff.Scaffold):
    accepts_stale_model = True


class ForgetfulFocus(ff.Focus):
    def state_after(self, client, up, down, rd):
        return client


class StickyFocus(ff.Focus):
    def forget(self, server, client, weight, num_clients):
        return server


class SloppyMIFA(ff.MIFA):
    tracks_mean = False


class Bug(NamedTuple):
    name: str
    seed: int  # of a sequence that shows it
    algorithm: Algorithm
    server: type[ProtocolServer] = ProtocolServer
    site: type[Site] = Site


BUGS = [
    Bug("replies count whatever they were computed from", 0, ff.Focus(), NoCompare),
    Bug("rows are committed before the round is", 2, ff.Focus(), NoTransaction),
    Bug("states are not settled", 0, ff.Scaffnew(), NoSettling),
    Bug("lost digits are not repaired", 23, ff.Focus(), NoRepair),
    Bug("states outlive generations", 0, ff.Focus(), StatesOutliveGenerations),
    Bug("a site computes from its newest state", 0, ff.Focus(), site=NewestState),
    Bug("SCAFFOLD accepts a stale model", 4, StaleScaffold()),
    Bug("the server does not follow a client's state", 0, ForgetfulFocus()),
    Bug("a leaver's gradient stays", 13, StickyFocus()),
    Bug("a mean is taken for a sum", 0, SloppyMIFA()),
]


def shows(bug: Bug, seed: int) -> str:
    """Which law the sequence of a seed violates with this bug; nothing if none."""
    job = setting(bug.algorithm, 1 + seed % 2)
    return live(seed, job, bug.server, bug.site).wrong


def first_seed(bug: Bug, seeds: range) -> int | None:
    return next((seed for seed in seeds if shows(bug, seed)), None)
