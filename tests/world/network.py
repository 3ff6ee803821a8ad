"""What is on its way: it may be lost, doubled, damaged, late, and out of order."""

import random
from typing import NamedTuple

from focusfl.engines.protocol import Wired


class Sent(NamedTuple):
    """A message, which site it is for or from, and how often the server was restored
    from a backup before."""

    site: int
    message: Wired
    restored: int = 0


class Network:
    """Requests and replies that have been sent. Whoever takes one says which."""

    def __init__(self) -> None:
        self.requests: list[Sent] = []
        self.replies: list[Sent] = []

    def take(self, way: list[Sent], rng: random.Random, doubled: float) -> Sent | None:
        """Any message that is on its way; perhaps it will come once more."""
        if not way:
            return None
        k = rng.randrange(len(way))
        return way[k] if rng.random() < doubled else way.pop(k)

    def lose(self, rng: random.Random) -> bool:
        """Lose one, if one is there."""
        way = rng.choice([self.requests, self.replies])
        return self.take(way, rng, doubled=0) is not None


def damaged(message: Wired, rng: random.Random) -> Wired:
    """The message with one byte changed, or one part missing."""
    name = rng.choice(sorted(message))
    blob = bytearray(message[name])
    if not blob or rng.random() < 0.2:
        return {part: content for part, content in message.items() if part != name}
    blob[rng.randrange(len(blob))] ^= 1 << rng.randrange(8)
    return message | {name: bytes(blob)}
