"""A site's privacy account: what it gives away is on its disk before it leaves.

The account is the one thing a site must not lose, and it trusts nobody with it, its
server least of all: the noise comes from the operating system, is new in every answer,
and is forgotten.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from focusfl.core import Batch, Drawn, GradFn
from focusfl.core.files import make_folder, renamed, take_lock
from focusfl.flower.protocol.messages import digest

AT_ONCE = 16  # visits whose epsilon is computed together: the accountant starts slowly

log = logging.getLogger(__name__)


class Spent(Exception):
    """The site may give nothing away any more."""


class Terms(NamedTuple):
    """By which rule a site's gradients are private: see `Private`."""

    clip: float
    noise: float
    level: str
    delta: float
    budget: float | None
    accountant: str

    @classmethod
    def of(cls, problem: Any) -> "Terms":
        """Those of a `Private` problem."""
        return cls(*(getattr(problem, name) for name in cls._fields))


class Balance(NamedTuple):
    """What the account of one site says on disk."""

    gradients: int  # computed, or about to be
    within: int | None  # as many as the budget allows; None: there is none
    known: dict[str, float]  # epsilon by the number of gradients, as far as computed
    lost: bool  # the site was here before and does not know how often


@dataclass(frozen=True)
class Account:
    """What one site has given away in one job: a file that must last.

    Gradients are counted before they are computed: a crash can only make a site give
    away less than it has written down.
    """

    path: Path
    terms: Terms

    def spend(self, count: int, seen: int) -> None:
        """Write down that so many more gradients are computed.

        Args:
            count: how many; all of them or none.
            seen: as many as the server knows of. If that is more than the account says,
                the account was lost, or is an old backup.

        Raises:
            Spent: If that is more than the budget allows, or nobody knows.
        """
        make_folder(self.path.parent, private=True)
        with open(f"{self.path}.lock", "wb") as lock:
            take_lock(lock.fileno(), wait=True)
            self._spend(count, seen)

    def _spend(self, count: int, seen: int) -> None:
        balance = self._read() or Balance(0, self._within(), {}, False)
        if seen > balance.gradients and not balance.lost:
            balance = balance._replace(lost=True)
            self._write(balance)
        if balance.lost:
            raise Spent("its account is lost, and with it what it has given away")
        done = balance.gradients + count
        if balance.within is not None and done > balance.within:
            raise Spent(
                f"its privacy budget of epsilon {self.terms.budget:g} allows "
                f"{balance.within} gradients, and {balance.gradients} are computed"
            )
        known, terms = balance.known, self.terms
        if str(done) not in known and terms.noise:
            from focusfl.privacy import epsilons

            ahead = done + count * np.arange(AT_ONCE)
            found = epsilons(terms.noise, ahead, terms.delta, terms.accountant)
            known = dict(zip(map(str, ahead.tolist()), found.tolist(), strict=True))
        self._write(balance._replace(gradients=done, known=known))

    @property
    def summary(self) -> dict[str, float]:
        """What may be known of it: gradients, and their epsilon if it is finite."""
        balance = self._read()
        if balance is None or balance.lost:
            return {}
        epsilon = balance.known.get(str(balance.gradients))
        found = {} if epsilon is None else {"epsilon": epsilon}
        return {"gradients": float(balance.gradients), **found}

    def _within(self) -> int | None:
        terms = self.terms
        if terms.budget is None:
            return None
        from focusfl.privacy import gradients_within

        return gradients_within(terms.budget, terms.noise, terms.delta, terms.accountant)

    def _read(self) -> Balance | None:
        """What is on disk; None if there is none. What is damaged counts as lost."""
        try:
            name, _, body = self.path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        if name != digest(body).encode():
            log.warning("%s is damaged. It counts as lost.", self.path)
            return Balance(0, self._within(), {}, True)
        terms, balance = json.loads(body)
        if terms != list(self.terms):
            raise ValueError(
                f"{self.path} was opened with {terms}; this site has "
                f"{list(self.terms)}. Give the job another name."
            )
        return Balance(*balance)

    def _write(self, balance: Balance) -> None:
        body = json.dumps([self.terms, balance]).encode()
        with renamed(self.path, private=True) as part:
            part.write_bytes(digest(body).encode() + b"\n" + body)


def with_noise(batches: Iterator[Any]) -> Iterator[Drawn]:
    """Batches with a key for their noise: 64 bits of the operating system's."""
    import jax

    seed = jax.numpy.asarray(np.frombuffer(os.urandom(8), np.uint32))
    key = jax.random.wrap_key_data(seed, impl="threefry2x32")
    return (Drawn(batch, Batch(key, n)) for n, batch in enumerate(batches))


def once_per_batch(grad_fn: GradFn) -> Callable[[Any, Drawn], Any]:
    """Refuse a second gradient with the same noise: the difference would have none."""
    used: set[int] = set()

    def gradient(x: Any, batch: Drawn) -> Any:
        if batch.noise.number in used:
            raise ValueError(
                "a private site needs an algorithm that asks for one gradient in a local step."
            )
        used.add(batch.noise.number)
        return grad_fn(x, batch)

    return gradient
