"""A sequence: a job, and what happens to it, all drawn from one seed."""

import logging
import random
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from helpers import ALL, Diary

from focusfl.algorithms import Coded
from focusfl.engines.protocol.requirements import requirements
from world import laws
from world.disk import Death, memory
from world.job import NAMES, START, N, Setting, Violation, job
from world.network import damaged
from world.world import POINTS, World

CODED = [algorithm for algorithm in ALL if isinstance(algorithm, Coded)]
CODED_SEEDS = 4, 8  # by nine: two of nine, and none that shows a planted bug
ALGORITHMS = [*(algorithm for algorithm in ALL if algorithm not in CODED), Diary()]
EXACT = [algorithm for algorithm in ALGORITHMS if algorithm.exact_below(2.0, 1)]
NEEDS = {algorithm: requirements(algorithm, START, N) for algorithm in EXACT}
DELICATE = [a for a in EXACT if NEEDS[a].settle or not NEEDS[a].late]
LINES = 2 * POINTS  # of a server that writes lines to a file of their own
STEPS = 40  # of a sequence at most, before the faults stop
SPIKED = 0.06  # of all sequences have a gradient that is far too large
Event = tuple[str, int]  # its name, and the seed of its own chance


def _death(rng: random.Random, points: int = POINTS) -> Death:
    return Death(rng.randrange(points), rng if rng.random() < 0.6 else None)


def _play(world: World, rng: random.Random) -> None:
    name = rng.choice(NAMES)
    if name in world.server.free:
        world.play(NAMES.index(name))


def _ask(world: World, rng: random.Random) -> None:
    if world.server.free:
        world.ask(NAMES.index(rng.choice(world.server.free)))


def _carry(world: World, rng: random.Random, **how: Any) -> None:
    """A request arrives: late, out of order, perhaps not for the last time."""
    sent = world.network.take(world.network.requests, rng, doubled=0.25)
    if sent is not None:
        world.answer(sent, **how)
        if rng.random() < 0.3:
            world.images[sent.site].append(world.disks[sent.site].image())


def _answer_twice(world: World, rng: random.Random) -> None:
    """A site answers, gets back its disk of just before, and answers again."""
    sent = world.network.take(world.network.requests, rng, doubled=0)
    if sent is not None:
        before = world.disks[sent.site].image()
        world.answer(sent)
        world.rewind(sent.site, before)
        world.answer(sent)


def _goodbye(world: World, rng: random.Random) -> None:
    """A site leaves, rather one that has something to take back."""
    world.play(rng.choice([*world.oracle.contributed, *range(N)]), goodbye=True)


def _bring(world: World, rng: random.Random) -> None:
    """A reply arrives: late, out of order, perhaps not for the last time."""
    sent = world.network.take(world.network.replies, rng, doubled=0.2)
    if sent is not None:
        world.bring(sent)


def _spike(world: World, rng: random.Random) -> None:
    """A site's gradients are far too large, once; perhaps the server takes them."""
    if world.server.free:
        world.ask(NAMES.index(rng.choice(world.server.free)))
        if world.answer(world.network.requests.pop(), spike=True):
            world.bring(world.network.replies.pop())


def _lose(world: World, rng: random.Random) -> None:
    world.tally["lost messages"] += world.network.lose(rng)


def _damage(world: World, rng: random.Random) -> None:
    """Messages arrive damaged: nobody works with them."""
    made = sum(map(len, world.made))
    if sent := world.network.take(world.network.requests, rng, doubled=0):
        world.answer(sent._replace(message=damaged(sent.message, rng)))
    if sum(map(len, world.made)) > made:  # an answer may be repeated, none be made
        raise Violation("a damaged request was answered")
    if sent := world.network.take(world.network.replies, rng, doubled=0):
        if world.bring(sent._replace(message=damaged(sent.message, rng))) != "refused":
            raise Violation("a damaged reply was taken")


def _site_loses_power(world: World, rng: random.Random) -> None:
    i = rng.randrange(N)
    world.changed.add(i)
    world.tally["crashes"] += 1
    world.disks[i].lose_power(rng)


def _wipe(world: World, rng: random.Random) -> None:
    world.tally["wiped disks"] += 1
    world.rewind(rng.randrange(N), {})


def _rewind(world: World, rng: random.Random) -> None:
    i = rng.randrange(N)
    world.tally["rollbacks"] += 1
    world.rewind(i, rng.choice(world.images[i]))


def _restore_server(world: World, rng: random.Random) -> None:
    world.tally["server rollbacks"] += 1
    world.restore(*rng.choice(world.backups))


def _lose_server(world: World, rng: random.Random) -> None:
    world.tally["server rollbacks"] += 1
    world.restore(*world.backups[0])


def _damage_books(world: World, rng: random.Random) -> None:
    """The server's last books are damaged: it goes on from those before them.

    Or from them, where the damage says nothing: of an empty array, where it begins.
    """
    image = world.home.damaged("job/server.ledger", rng)
    if any(path.endswith("server.1.ledger") for path in image):
        world.tally["damaged books"] += 1
        world.restore(image, world.earlier, world.saved)


def _site_dies(world: World, rng: random.Random) -> None:
    _carry(world, rng, dying=_death(rng))


def _server_dies(world: World, rng: random.Random) -> None:
    """The server dies and comes back, perhaps with another mind about copies."""
    world.copies ^= rng.random() < 0.1
    power = rng if rng.random() < 0.6 else None
    world.restart(power, _death(rng, LINES) if rng.random() < 0.3 else None)


def _server_dies_at(world: World, rng: random.Random) -> None:
    """The server dies while it writes its books."""
    closing = [world.close] * 3
    rng.choice([*closing, world.save, world.new_epoch])(_death(rng, LINES))


EVENTS: dict[str, tuple[int, Callable]] = {  # and how often each, where it happens
    "play": (12, _play),
    "close": (7, lambda world, rng: world.close()),
    "ask": (4, _ask),
    "carry": (6, _carry),
    "bring": (6, _bring),
}
FAULTS: dict[str, tuple[int, Callable]] = {
    "ask again": (2, lambda world, rng: world.ask(rng.randrange(N))),
    "lose": (3, _lose),
    "damage": (1, _damage),
    "site dies answering": (4, _site_dies),
    "site loses power": (2, _site_loses_power),
    "site wiped": (1, _wipe),
    "site rewound": (1, _rewind),
    "site answers twice": (1, _answer_twice),
    "server dies": (2, _server_dies),
    "server dies writing": (3, _server_dies_at),
    "save": (1, lambda world, rng: world.save()),
    "give up": (1, lambda world, rng: world.server.give_up(rng.choice(NAMES))),
    "goodbye": (2, _goodbye),
    "late goodbye": (1, lambda world, rng: _carry(world, rng, goodbye=True)),
    "forget": (1, lambda world, rng: world.forget(rng.randrange(N))),
    "forget dying": (
        1,
        lambda world, rng: world.forget(rng.randrange(N), _death(rng, LINES)),
    ),
    "spike": (0, _spike),
    "new epoch": (1, lambda world, rng: world.new_epoch()),
}
SERVER_FAULTS: dict[str, tuple[int, Callable]] = {
    "server rolled back": (2, _restore_server),
    "server lost": (1, _lose_server),
    "books damaged": (2, _damage_books),
}
DO = {name: do for name, (_, do) in {**EVENTS, **FAULTS, **SERVER_FAULTS}.items()}


class Life(NamedTuple):
    """A sequence: a job, what happens to it, and the seed of its end."""

    setting: Setting
    events: Sequence[Event]
    end: int


def drawn(seed: int, server_faults: bool = True) -> Life:
    """The sequence of a seed. It knows only some of the faults, others know others."""
    rng = random.Random(seed)
    algorithm = rng.choice(rng.choice([ALGORITHMS, EXACT, DELICATE]))
    setting = job(
        algorithm,
        local_steps=rng.choice([1, 2]),
        copies=rng.random() < 0.4,
        weights=(1.5, 2.0, 0.5) if rng.random() < 0.5 else None,
    )
    faults = FAULTS | (SERVER_FAULTS if server_faults and rng.random() < 0.5 else {})
    share = rng.choice([0.2, 0.5, 1.0])
    faults = {name: fault for name, fault in faults.items() if rng.random() < share}
    often = {
        name: times * rng.choice([0.2, 1.0, 3.0])
        for name, (times, _) in (EVENTS | faults).items()
    }
    names = rng.choices([*often], [*often.values()], k=rng.randint(5, STEPS))
    events = [(name, rng.getrandbits(32)) for name in names]
    if rng.random() < SPIKED:
        at = rng.randrange(len(events))
        events.insert(at, ("spike", at))
    end = rng.getrandbits(32)
    if rng.random() < 0.5:
        setting = setting._replace(most=1)
    if seed % 9 in CODED_SEEDS:
        other = job(rng.choice(CODED), setting.local_steps, setting.copies)
        setting = setting._replace(algorithm=other.algorithm, lr=other.lr)
    return Life(setting, events, end)


class Lived(NamedTuple):
    """What a sequence came to."""

    wrong: str  # what was violated; empty: nothing
    step: int  # at which event; after the last: in the end
    tally: dict[str, int]
    gap: float
    error: float


def live(life: Life) -> Lived:
    """Live through a sequence, and look after every step."""
    step, error, wrong = -1, 0.0, ""
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        world = World(life.setting, Path(folder))
        try:
            laws.check(world)
            for step, (name, seed) in enumerate(life.events):  # noqa: B007
                DO[name](world, random.Random(seed))
                laws.check(world)
            step += 1
            error = _end(world, random.Random(life.end))
        except Violation as violation:
            wrong = str(violation)
        except Exception:
            wrong = traceback.format_exc()
        finally:
            world.server.close()
        world.tally["steps"] += step + 1
        world.tally["operations"] = sum(
            d.operations for d in (world.home, *world.disks)
        )
    return Lived(wrong, step, dict(world.tally), world.gap, error)


def _end(world: World, rng: random.Random) -> float:
    """The faults stop: what is on its way arrives, and the job goes on."""
    while sent := world.network.take(world.network.requests, rng, doubled=0):
        world.answer(sent)
        laws.check(world)
    while sent := world.network.take(world.network.replies, rng, doubled=0):
        world.bring(sent)
        laws.check(world)
    back = rng.random() < 0.5  # whoever has left may return
    ids = [i for i in range(N) if back or i not in world.oracle.gone]
    return laws.check_end(world, ids, through_protocol=rng.random() < 0.05)


def shrunk(life: Life) -> Life:
    """As few of the events as still lead to a violation: none can be left out."""
    events, size = list(life.events), len(life.events)
    while size:
        for start in range(0, len(events), size):
            fewer = events[:start] + events[start + size :]
            if live(life._replace(events=fewer)).wrong:
                events = fewer
                break
        else:
            size //= 2
    return life._replace(events=events)


def lived(seed: int, server_faults: bool) -> tuple[int, Lived]:
    """What the sequence of a seed comes to; in any process."""
    logging.disable(logging.CRITICAL)  # the protocol says a lot about faults
    return seed, live(drawn(seed, server_faults))
