"""What must hold after every step, and what the job must come to in the end."""

from collections.abc import Callable
from functools import cache

import numpy as np
from helpers import gap

from focusfl.engines.protocol import tracking_error
from focusfl.engines.protocol.format import leaves
from focusfl.engines.protocol.tracking import TRACKED
from world.job import NAMES, OFFSETS, SLOPES, START, N, Setting, Violation
from world.oracle import Oracle
from world.world import World

ROUNDING = 1e-9  # what two ways to the same sum may differ by
EXACT = 1e-8  # how near the optimum is near enough
PATIENCE = 8  # quiet rounds after which everybody is counted in every round
LONG = 60  # rounds: whoever is slower without faults is not asked to arrive


def check(world: World) -> None:
    """Raise unless server and sites hold what the oracle says."""
    ledger, oracle = world.server.ledger, world.oracle
    if world.books() != oracle.key:
        raise Violation(f"the books say {world.books()} and must {oracle.key}")
    _near("the server's state", ledger.server, oracle.server)
    if oracle.counted:
        _near("the sum of the open round", ledger.total, oracle.total)
    if len(ledger.kept) > N:
        raise Violation(f"what was said is kept of {len(ledger.kept)} rounds")
    for i, name in enumerate(NAMES):
        done = ledger.entries[name].grads_done
        if done != oracle.numbers[i]:
            raise Violation(
                f"{name} computed {oracle.numbers[i]} gradients, not {done}"
            )
        if oracle.copied[i] and leaves(oracle.pushed[i]):
            _near(f"the copy of {name}", ledger.copies.get(name), oracle.pushed[i])
    for i in sorted(world.changed):
        _check_memory(world, i)
    world.changed.clear()
    if not oracle.counted and oracle.contributed:
        _check_tracking(world)


def _check_memory(world: World, i: int) -> None:
    """A site holds the memory the server counts on, or has lost its disk."""
    oracle, name = world.oracle, NAMES[i]
    state, digest = world.sites[i].disk.load(), oracle.digests[i]
    if not digest or (state is None and digest in world.excused[i]):
        return
    applied = world.server.ledger.entries[name].applied
    for snapshot in (state.acked, state.pending) if state else ():
        if (snapshot.seq, snapshot.digest) == (applied, digest):
            return _near(f"the memory of {name}", snapshot.memory, oracle.pushed[i])
    if digest not in world.excused[i]:
        raise Violation(f"{name} does not hold push {applied}, which was counted")


def _check_tracking(world: World) -> None:
    oracle, server = world.oracle, world.server.server
    if type(server) not in TRACKED:
        return
    ids = sorted(oracle.contributed)
    memories, weights = [oracle.memory[i] for i in ids], oracle.weights
    if any("dx" in getattr(memory, "unsent", ()) for memory in memories):
        return  # coded SCAFFOLD keeps movements, and the server tracks gradients
    error = tracking_error(
        server, memories, oracle.weight_of(range(N)),
        weights and [weights[i] for i in ids],
    )  # fmt: skip
    world.gap = world.gap if world.spiked else max(world.gap, error)
    if not error <= ROUNDING and not world.spiked:
        raise Violation(f"the server tracks {error:.2g} beside what the sites hold")


def _near(what: str, ours: object, theirs: object) -> None:
    if ours is None:
        raise Violation(f"{what} is not there")
    if not (apart := gap(ours, theirs)) <= ROUNDING:
        raise Violation(f"{what} is {apart:.2g} from what was counted")


def check_end(world: World, ids: list[int], through_protocol: bool) -> float:
    """Play without faults; raise unless all are counted and arrive. Give the error.

    What becomes of the job from there on is the oracle's to find, which check has
    compared with all that the server and the disks hold; or, dearer, the protocol's.
    """
    world.noise = 0.0
    _settle_down(world, ids)
    setting, gone = world.setting, tuple({*range(N)} - {*ids})
    limit = _rounds_without_faults(setting, gone)
    if limit is None:
        return 0.0
    if world.spiked:
        limit *= 3  # it was farther away
    if through_protocol or world.spiked:
        x = _far(lambda: _play(world, ids), lambda: world.server.x, setting, ids, limit)
        check(world)
        return x
    oracle = world.oracle.copy()
    return _far(lambda: oracle.play(ids), lambda: oracle.server.x, setting, ids, limit)


def _settle_down(world: World, ids: list[int]) -> None:
    """Everybody is counted in every round, and no epoch begins, before long."""
    good = 0
    for _ in range(PATIENCE):
        epoch = world.server.epoch
        statuses = _play(world, ids)
        check(world)
        well = world.server.epoch == epoch and {*statuses} <= {"applied", "counted"}
        good = good + 1 if well else 0
        if good == 2:
            return
    raise Violation(f"after {PATIENCE} quiet rounds sites are still {statuses}")


def _play(world: World, ids: list[int]) -> list[str]:
    """A round in which nothing goes wrong."""
    statuses = [world.play(i) for i in ids]
    world.close()
    return statuses


def _far(
    play: Callable, where: Callable, setting: Setting, ids: list[int], limit: int
) -> float:
    """How far from the optimum a job ends that should be there in so many rounds."""
    optimum = optimum_of(setting, ids)
    for _ in range(3 * limit + 30):
        if (error := float(np.abs(where() - optimum).max())) <= EXACT:
            return error
        play()
    raise Violation(f"it ends {error:.2g} from the optimum")


def optimum_of(setting: Setting, ids: list[int]) -> np.ndarray:
    """Where the sum of these sites' gradients is zero."""
    weights = np.array(setting.weights or [1.0] * N)[ids, None]
    return (weights * OFFSETS[ids]).sum(0) / (weights * SLOPES[ids]).sum(0)


@cache
def _rounds_without_faults(setting: Setting, gone: tuple[int, ...]) -> int | None:
    """How many rounds it takes where nothing goes wrong; None: too many, or no end."""
    below = setting.algorithm.exact_below(float(SLOPES.max()), setting.local_steps)
    ids = [i for i in range(N) if i not in gone]
    if not ids or setting.lr >= below:
        return None
    grads = [lambda x, batch, i=i: SLOPES[i] * x - OFFSETS[i] for i in range(N)]
    oracle = Oracle(
        setting.algorithm,
        START,
        grads,
        setting.lr,
        setting.local_steps,
        setting.weights,
    )
    oracle.gone = {*gone}
    for rounds in range(LONG):
        if np.abs(oracle.server.x - optimum_of(setting, ids)).max() <= EXACT:
            return rounds
        oracle.play(ids)
    return None
