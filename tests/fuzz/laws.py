"""One attempt at a target, and random changes of an input."""

import logging
import random
import re
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzz.targets import Broken, Target

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 2.0  # of the processor, that less than 64 KiB may take
MAX_LENGTH = 1 << 16  # bytes of an input
NUMBERS = (b"-1", b"0", b"255", b"65536", b"4294967295", b"9223372036854775808", b"1e308", b"nan")
BYTES = (0, 1, 0x22, 0x2C, 0x5B, 0x7B, 0x7F, 0x80, 0xFF)


class Slow(BaseException):
    """An input took too long: no parser may catch this."""


def attempt(target: Target, content: bytes, seconds: float | None = None) -> bool:
    """Read an input; whether it was read, and not refused.

    Raises:
        Broken: If the target's law does not hold: another error, too many seconds.
    """
    loud = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with _limit(seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read(content)
        return True
    except target.errors:
        return False
    except Slow:
        raise Broken(f"more than {seconds} s") from None
    finally:
        logging.disable(loud)


@contextmanager
def _limit(seconds: float | None) -> Iterator[None]:
    """Raise Slow after so many seconds, at the next step of Python."""
    if seconds is None:
        yield
        return

    def stop(number, frame):
        raise Slow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def corpus_of(name: str) -> dict[str, bytes]:
    """The inputs in the repository's corpus of a target, by the names of their files."""
    return {f.name: f.read_bytes() for f in sorted((CORPUS / name).glob("*"))}


def mutate(content: bytes, others: list[bytes], words: tuple[bytes, ...], seed: int) -> bytes:
    """Change an input at random, at a few places."""
    rng, out = random.Random(seed), bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        start = rng.randrange(len(out) + 1)
        stop = min(len(out), start + rng.choice((0, 1, 1, 2, 4, 8, 64)))
        match rng.randrange(8):
            case 0 if out:
                out[start % len(out)] ^= 1 << rng.randrange(8)
            case 1 if out:
                out[start % len(out)] = rng.choice(BYTES)
            case 2:
                out[start:stop] = b""
            case 3:
                out[start:stop] = rng.randbytes(rng.choice((1, 2, 4, 8)))
            case 4:
                out[start:stop] = rng.choice((*words, *NUMBERS))
            case 5 if digits := [m.span() for m in re.finditer(rb"-?\d+(\.\d+)?", out)]:
                first, last = rng.choice(digits)
                out[first:last] = rng.choice(NUMBERS)
            case 6:
                other = rng.choice(others)
                cut = rng.randrange(len(other) + 1)
                out[start:] = other[cut:]
            case _:
                out[start:start] = out[start:stop] * rng.choice((1, 2, 100))
    return bytes(out[:MAX_LENGTH])
