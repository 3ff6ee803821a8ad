"""A site's privacy account: all gradients that it has computed, in any job, counted on its disk.

The account is the one file that a site must not lose, and it trusts nobody else with it, not
even its server. What a server can choose, such as the name of a job, starts no new account.
"""

import hashlib
import json
import logging
import math
from collections import Counter
from dataclasses import dataclass
from itertools import count as numbers_from
from pathlib import Path
from typing import Any, NamedTuple

from focusfl.core import GradFn
from focusfl.core.files import make_folder, renamed, take_lock
from focusfl.privacy.accounting import rdp_epsilon

log = logging.getLogger(__name__)


class BudgetExceeded(Exception):
    """A site's privacy budget does not allow another gradient."""


class Terms(NamedTuple):
    """How the gradients of a job are made private: fields of `Private`."""

    clip: float
    noise: float
    level: str
    delta: float
    budget: float | None

    @classmethod
    def of(cls, problem: Any) -> "Terms":
        """Give the terms of a `Private` problem."""
        return cls(*(getattr(problem, name) for name in cls._fields))


class Limit(NamedTuple):
    """The most that a site may reveal, in all jobs together."""

    epsilon: float
    delta: float


class Balance(NamedTuple):
    """The content of a site's account on disk."""

    level: str  # the unit that epsilons are of
    gradients: dict[str, dict[str, int]]  # job -> noise -> computed, or about to be
    limits: dict[str, float]  # delta -> smallest budget of a job so far
    lost: bool  # whether gradients were computed that the account does not have

    def epsilon(self, delta: float) -> float:
        """Compute the epsilon of all gradients; infinite if one was without noise."""
        per_noise: Counter[float] = Counter()
        for counts in self.gradients.values():
            per_noise.update({float(noise): number for noise, number in counts.items()})
        if per_noise.pop(0.0, 0):
            return math.inf
        rho = math.fsum(number / (2 * noise**2) for noise, number in per_noise.items())
        return rdp_epsilon(rho, delta) if rho else 0.0

    def done(self, job: str) -> int:
        """Count the gradients of one job."""
        return sum(self.gradients.get(job, {}).values())


@dataclass(frozen=True)
class Account:
    """What one site has revealed of one data set, a file that must not be lost.

    Gradients are counted before they are computed, so that after a crash a site has given
    away no more than the account says.

    The gradients of all jobs compose, whatever their clips and noises. The limit is that of
    the site, if it has one, and the budget of the job; a site without one of its own keeps
    to the smallest budget that a job of it has had.
    """

    path: Path
    job: str
    terms: Terms
    limit: Limit | None = None

    def spend(self, count: int, seen: int) -> None:
        """Record that `count` more gradients are going to be computed; all of them or none.

        Args:
            count: number of gradients.
            seen: number of gradients of this job that the server has seen. If it is larger
                than that of the account, the account was lost or is an old backup.

        Raises:
            BudgetExceeded: If a budget does not allow them, or the account was lost.
            ValueError: If the account is of other units than those of this job.
        """
        make_folder(self.path.parent, private=True)
        with open(f"{self.path}.lock", "wb") as lock:
            take_lock(lock.fileno(), wait=True)
            self._spend(count, seen)

    def _spend(self, count: int, seen: int) -> None:
        balance, (_, noise, level, delta, budget) = self._read(), self.terms
        if balance.level != level:
            raise ValueError(
                f"{self.path} counts what gradients reveal of a {balance.level}; this job "
                f'protects a {level}. All jobs on the same data must have level="'
                f'{balance.level}". For other data, give the site another state folder.'
            )
        if seen > balance.done(self.job) and not balance.lost:
            balance = balance._replace(lost=True)
            self._write(balance)
        if balance.lost:
            raise BudgetExceeded("its account is lost, and with it what it has given away")
        limits, key = dict(balance.limits), repr(float(delta))
        if budget is not None:
            limits[key] = min(budget, limits.get(key, math.inf))
        of_job = balance.gradients.get(self.job, {})
        of_job = of_job | {repr(float(noise)): of_job.get(repr(float(noise)), 0) + count}
        after = balance._replace(gradients=balance.gradients | {self.job: of_job}, limits=limits)
        for most in self._limits(limits):
            if after.epsilon(most.delta) > most.epsilon:
                raise BudgetExceeded(
                    f"its privacy budget of epsilon {most.epsilon:g} (by RDP, at delta "
                    f"{most.delta:g}, for all its jobs together) does not allow "
                    f"{count} more gradients with noise {noise:g}; it has spent "
                    f"{balance.epsilon(most.delta):.4g}"
                )
        self._write(after)

    def _limits(self, remembered: dict[str, float]) -> list[Limit]:
        if self.limit is None:
            return [Limit(budget, float(delta)) for delta, budget in remembered.items()]
        budget = self.terms.budget
        of_job = [] if budget is None else [Limit(budget, self.terms.delta)]
        return [self.limit, *of_job]

    @property
    def summary(self) -> dict[str, float]:
        """What the site tells others, of all its jobs together: the number of gradients, and
        epsilon at the job's delta if it is finite."""
        balance = self._read()
        if balance.lost or not balance.gradients:
            return {}
        epsilon = balance.epsilon(self.terms.delta)
        by_name = {"epsilon": epsilon} if math.isfinite(epsilon) else {}
        return {"gradients": float(sum(map(balance.done, balance.gradients))), **by_name}

    def _read(self) -> Balance:
        """Read the balance. A damaged one counts as lost; where there is none it is empty."""
        try:
            checksum, _, body = self.path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return Balance(self.terms.level, {}, {}, False)
        if checksum != _checksum(body):
            log.warning("%s is damaged. It counts as lost.", self.path)
            return Balance(self.terms.level, {}, {}, True)
        return Balance(*json.loads(body))

    def _write(self, balance: Balance) -> None:
        body = json.dumps(balance).encode()
        with renamed(self.path, private=True) as part:
            part.write_bytes(_checksum(body) + b"\n" + body)


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def at_most(count: int, grad_fn: GradFn) -> GradFn:
    """Refuse more gradients than `count`, as they would not be counted."""
    numbers = numbers_from(1)

    def gradient(x: Any, batch: Any) -> Any:
        if next(numbers) > count:
            raise ValueError(
                "a private site needs an algorithm that asks for one gradient in a local step."
            )
        return grad_fn(x, batch)

    return gradient
