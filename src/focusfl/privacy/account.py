"""A site's privacy account: the gradients that it has computed, counted on its disk.

The account is the one file that a site must not lose, and it trusts nobody else with it, not
even its server. The noise comes from the operating system, is new in every reply, and is not
stored.
"""

import hashlib
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
from focusfl.privacy.accounting import epsilons, gradients_within

VISITS_AHEAD = 16  # visits whose epsilon is computed together: the accountant starts slowly

log = logging.getLogger(__name__)


class BudgetExceeded(Exception):
    """A site's privacy budget does not allow another gradient."""


class Terms(NamedTuple):
    """How a site's gradients are made private: the fields of `Private`."""

    clip: float
    noise: float
    level: str
    delta: float
    budget: float | None
    accountant: str

    @classmethod
    def of(cls, problem: Any) -> "Terms":
        """Give the terms of a `Private` problem."""
        return cls(*(getattr(problem, name) for name in cls._fields))


class Balance(NamedTuple):
    """The content of a site's account on disk."""

    gradients: int  # computed, or about to be
    within: int | None  # as many as the budget allows; None: there is no budget
    epsilon_by_count: dict[str, float]  # number of gradients -> epsilon, as far as computed
    lost: bool  # whether gradients were computed that the account does not have


@dataclass(frozen=True)
class Account:
    """The account of one site in one job, a file that must not be lost.

    Gradients are counted before they are computed, so that after a crash a site has given
    away no more than the account says.
    """

    path: Path
    terms: Terms

    def spend(self, count: int, seen: int) -> None:
        """Record that `count` more gradients are going to be computed; all of them or none.

        Args:
            count: number of gradients.
            seen: number of gradients that the server has seen. If it is larger than that of
                the account, the account was lost or is an old backup.

        Raises:
            BudgetExceeded: If the budget does not allow them, or the account was lost.
        """
        make_folder(self.path.parent, private=True)
        with open(f"{self.path}.lock", "wb") as lock:
            take_lock(lock.fileno(), wait=True)
            self._spend(count, seen)

    def _spend(self, count: int, seen: int) -> None:
        balance, terms = self._read() or Balance(0, self._within(), {}, False), self.terms
        if seen > balance.gradients and not balance.lost:
            balance = balance._replace(lost=True)
            self._write(balance)
        if balance.lost:
            raise BudgetExceeded("its account is lost, and with it what it has given away")
        done = balance.gradients + count
        if balance.within is not None and done > balance.within:
            raise BudgetExceeded(
                f"its privacy budget of epsilon {terms.budget:g} allows "
                f"{balance.within} gradients, and {balance.gradients} are computed"
            )
        epsilon_by_count = balance.epsilon_by_count
        if str(done) not in epsilon_by_count and terms.noise:
            ahead = done + count * np.arange(VISITS_AHEAD)
            spent = epsilons(terms.noise, ahead, terms.delta, terms.accountant)
            epsilon_by_count = dict(zip(map(str, ahead.tolist()), spent.tolist(), strict=True))
        self._write(balance._replace(gradients=done, epsilon_by_count=epsilon_by_count))

    @property
    def summary(self) -> dict[str, float]:
        """What the site tells others: the number of gradients, and epsilon if it is finite."""
        balance = self._read()
        if balance is None or balance.lost:
            return {}
        epsilon = balance.epsilon_by_count.get(str(balance.gradients))
        by_name = {} if epsilon is None else {"epsilon": epsilon}
        return {"gradients": float(balance.gradients), **by_name}

    def _within(self) -> int | None:
        terms = self.terms
        if terms.budget is None:
            return None
        return gradients_within(terms.budget, terms.noise, terms.delta, terms.accountant)

    def _read(self) -> Balance | None:
        """Read the balance; None if there is no file. A damaged one counts as lost."""
        try:
            checksum, _, body = self.path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        if checksum != _checksum(body):
            log.warning("%s is damaged. It counts as lost.", self.path)
            return Balance(0, self._within(), {}, True)
        terms, balance = json.loads(body)
        if terms != list(self.terms):
            raise ValueError(
                f"{self.path} was opened with {terms}; this site has {list(self.terms)}. "
                "Give the job another name."
            )
        return Balance(*balance)

    def _write(self, balance: Balance) -> None:
        body = json.dumps([self.terms, balance]).encode()
        with renamed(self.path, private=True) as part:
            part.write_bytes(_checksum(body) + b"\n" + body)


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def with_secret_keys(batches: Iterator[Any]) -> Iterator[Drawn]:
    """Pair batches with a key for their noise: 64 bits from the operating system."""
    import jax

    seed = jax.numpy.asarray(np.frombuffer(os.urandom(8), np.uint32))
    key = jax.random.wrap_key_data(seed, impl="threefry2x32")
    return (Drawn(batch, Batch(key, n)) for n, batch in enumerate(batches))


def once_per_batch(grad_fn: GradFn) -> Callable[[Any, Drawn], Any]:
    """Refuse a second gradient with the same noise: their difference would have none."""
    used: set[int] = set()

    def gradient(x: Any, batch: Drawn) -> Any:
        if batch.noise.number in used:
            raise ValueError(
                "a private site needs an algorithm that asks for one gradient in a local step."
            )
        used.add(batch.noise.number)
        return grad_fn(x, batch)

    return gradient
