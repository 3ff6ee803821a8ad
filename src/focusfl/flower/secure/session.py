"""A session as the server knows it: in memory alone, and of no use once it is over."""

from dataclasses import dataclass, field

import numpy as np

from focusfl.flower.protocol.messages import Refused, Reply, Wired
from focusfl.flower.secure import crypto
from focusfl.flower.secure.messages import STAGES, Said, blob, only, table
from focusfl.flower.secure.policy import Secure

PUBLIC = 2 * crypto.SECRET  # bytes of a site's public keys


class Failed(Exception):
    """A session that came to no sum; whose fault it is, if anybody's."""

    def __init__(self, why: str, site: str = ""):
        Exception.__init__(self, why)
        self.site = site


@dataclass
class Session:
    """Who has said what in which stage. What is refused has changed nothing."""

    secure: Secure
    number: int
    members: list[str] = field(default_factory=list)  # of this stage
    at: int = 0  # the stage, by its place among STAGES
    public: dict[str, bytes] = field(default_factory=dict)  # by site, as all below
    sealed: dict[str, dict[str, bytes]] = field(default_factory=dict)  # by dealer
    digests: dict[str, dict[str, bytes]] = field(default_factory=dict)  # by dealer
    seeds: dict[str, bytes] = field(default_factory=dict)  # checksums
    pushes: dict[str, tuple[Reply, str]] = field(default_factory=dict)
    masked: dict[str, np.ndarray] = field(default_factory=dict)
    shares: dict[str, tuple[dict[str, bytes], dict[str, bytes]]] = field(default_factory=dict)
    sent: dict[str, Wired] = field(default_factory=dict)  # in this stage

    @property
    def stage(self) -> str:
        return STAGES[self.at]

    @property
    def answered(self) -> set[str]:
        """Who has answered in this stage."""
        return {*(self.public, self.sealed, self.pushes, self.shares)[self.at]}

    @property
    def least(self) -> int:
        """How many must answer in this stage."""
        if self.at == 0:
            return max(self.secure.minimum, self.secure.opening(0))
        return self.secure.needed(len(self.public))

    def advance(self) -> None:
        """Go on with those who have answered; Failed if they are too few."""
        here = self.answered
        if len(here) < self.least:
            raise Failed(
                f"{len(here)} of {len(self.members)} sites answered to {self.stage}; "
                f"at least {self.least} must."
            )
        if self.at == 0 and len(here) < self.secure.needed(len(here)):
            raise Failed(f"{len(here)} sites are too few for {self.secure}.")
        if self.at < 2:  # who has pushed may be asked to unmask, who has not may not
            self.members = sorted(here)
        else:
            self.members = sorted(self.masked)
        self.at, self.sent = self.at + 1, {}

    def take_keys(self, site: str, said: Said) -> None:
        only(said, "public")
        public = blob(said, "public", PUBLIC)
        if public in self.public.values():
            raise Refused("its keys are another site's.")
        self.public[site] = public

    def take_shares(self, site: str, said: Said) -> None:
        only(said, "sealed", "digests", "seed")
        sealed = table(said, "sealed", PUBLIC + 28)  # with nonce and tag
        digests = table(said, "digests", PUBLIC)
        seed = blob(said, "seed", crypto.SECRET)
        if not sealed.keys() == digests.keys() == self.public.keys():
            raise Refused("it must hold a share for every site of this session.")
        self.sealed[site], self.digests[site] = sealed, digests
        self.seeds[site] = seed

    def take_unmasking(self, site: str, said: Said) -> None:
        only(said, "seeds", "keys")
        seeds = table(said, "seeds", crypto.SECRET)
        keys = table(said, "keys", crypto.SECRET)
        gone = self.sealed.keys() - self.masked.keys()
        if not (seeds.keys() <= self.masked.keys() and keys.keys() <= gone):
            raise Refused("it holds shares of other sites than was asked for.")
        for start, shares in ((0, seeds), (crypto.SECRET, keys)):
            for dealer, share in shares.items():
                known = self.digests[dealer][site][start : start + crypto.SECRET]
                if crypto.digest(share) != known:
                    raise Refused(f"its share of {dealer} is not the one it was dealt.")
        self.shares[site] = seeds, keys

    def total(self) -> np.ndarray:
        """The sum of all pushes that came, modulo 2^64: nothing else is opened."""
        total = sum(self.masked.values(), np.zeros(1, "<u8"))
        gone = [site for site in self.sealed if site not in self.masked]
        for site in self.masked:
            seed = self._secret(site, 0)
            if crypto.digest(seed) != self.seeds[site]:
                raise Failed(f"the shares of {site} do not give its seed.", site)
            total = total - crypto.mask(seed, total.size)
        here = {site: self.public[site][crypto.SECRET :] for site in self.masked}
        for site in gone:
            key = self._secret(site, 1)
            if crypto.public_of(key) != self.public[site][crypto.SECRET :]:
                raise Failed(f"the shares of {site} do not give its key.", site)
            # What others have added for it is the opposite of what it would have.
            total = total + crypto.between(site, key, here, total.size)
        return total

    def _secret(self, dealer: str, which: int) -> bytes:
        places = {site: place for place, site in enumerate(sorted(self.public))}
        found = {
            places[site]: shares[which][dealer]
            for site, shares in self.shares.items()
            if dealer in shares[which]
        }
        threshold = self.secure.opening(len(self.public))
        if len(found) < threshold:
            raise Failed(f"{len(found)} shares of {dealer}; it takes {threshold}.")
        return crypto.combine(dict(list(found.items())[:threshold]))
