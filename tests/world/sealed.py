"""Servers and sites of the world with secure sums, and with sites that add noise."""

import focusfl as ff
from focusfl.core import Algorithm
from focusfl.flower.protocol import Site
from focusfl.flower.secure import Keys, Secure, SecureServer, SecureSite
from focusfl.flower.secure.policy import check_job
from focusfl.privacy.account import Terms
from focusfl.privacy.discrete import discrete_gaussian
from focusfl.privacy.mechanism import grid, sum_in_steps
from world.job import NAMES, START, gradient

KEYS = Keys((bytes(range(32)),))
SECURE = Secure(minimum=1)
TERMS = Terms(clip=10.0, noise=1e-3, level="client", delta=1e-5, budget=None)
STEPS = grid(TERMS.noise, TERMS.clip, len(START))


def in_whole_numbers(algorithm: Algorithm) -> Algorithm | None:
    """Give an algorithm what secure sums need; None where they cannot be."""
    try:
        coded = ff.Compressed(algorithm, ff.FixedPoint(50, 44))
        check_job(SECURE, coded, START, len(NAMES), {})
    except ValueError:
        return None
    return coded


class ReadableServer(SecureServer):
    """A server of secure sums that the world reads, with the key that only sites have."""

    def __init__(self, *args, max_norm, weights, **options):
        super().__init__(*args, secure=SECURE, **options)

    @property
    def server(self):
        return self.open_job(KEYS)[0]

    @property
    def x(self):
        return self.server.x

    def states(self):
        return self.open_job(KEYS)[1]

    def state(self, site):
        names = list(self._store.column("name", "here"))
        return self.states()[names.index(site)][1]


def secure_site(algorithm, job, name) -> Site:
    """Open a site that has the key."""
    return SecureSite(algorithm, job, name, secure=SECURE, keys=KEYS)


def noisy_gradient(i: int, more: float):
    """Give a site's gradient as a deployed private site does: clipped, and with noise."""
    exact = gradient(i, more)

    def noisy(x, batch):
        rows = exact(x, batch)[None]
        total = sum_in_steps([(rows, [TERMS.clip])], STEPS)
        return STEPS.spacing * (total + discrete_gaussian(STEPS.bits, len(total)))

    return noisy
