"""ProxSkip for federated learning: everybody trains, and rarely communicates.

Mishchenko et al. ICML 2022. https://arxiv.org/abs/2202.09357
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from focusfl.algorithms.scaffnew import CorrectedDescent, Local
from focusfl.core import ALGORITHMS, Tree, tree
from focusfl.core.validation import check_count, check_seed, is_number, shown

TURNS = 8  # of the hash; from 5 on no test of ours finds a pattern
HALF = 0xFFFF  # 16 bits: times an odd number of 15 bits, they fit an int32
STIR = 27_791
FINE = 30  # bits that a coin is cut from


class Server(NamedTuple):
    x: Tree  # the last average


class Client(NamedTuple):
    z: Tree
    h: Tree  # what this client's gradient is at the optimum; sums to 0 over clients


@ALGORITHMS.register("proxskip", style=9, invariant="Σ hᵢ = 0")
@dataclass(frozen=True)
class ProxSkip(CorrectedDescent[Server, Client]):
    """Toss one coin per round, shared by all; average and correct only on heads.

    A round is one iteration of the paper: run it with local_steps=1 and everybody
    taking part, which is what its theory asks for.
    """

    p: float = 0.2  # chance of heads, in (0, 1]
    seed: int = 0  # of the coin
    period: int = 0  # if positive, heads every so many rounds instead of a coin

    def __post_init__(self):
        if not is_number(self.p) or not 0 < self.p <= 1:
            raise ValueError(f"p must lie in (0, 1]; got {shown(self.p)}.")
        check_seed("seed", self.seed)
        check_count("period", self.period, least=0)

    @property
    def cost(self):
        often = 1 / self.period if self.period else self.p
        return often, often

    def coin(self, index) -> Any:
        """1 for heads, 0 for tails: everybody works it out from the round's number."""
        if self.period:
            return 1 * ((index + 1) % self.period == 0)
        low, high = index & HALF, (index >> 16) & HALF
        for key in _keys(self.seed):  # a Feistel network: another number for each round
            noise = (high ^ key) * STIR
            low, high = high, low ^ (noise >> 15) ^ (noise & HALF)
        noise = (low << 14) | (high & 0x3FFF)
        return 1 * (noise < max(1, round(self.p * 2**FINE)))

    def max_exact_lr(self, L, local_steps):
        # At rest no step moves anybody, with heads or with tails; between heads that
        # come by the clock, local steps may lead back to where they began.
        return math.inf if local_steps == 1 and not self.period else 2 / L

    def init(self, params):
        return Server(params), Client(params, tree.zeros(params))

    def pull(self, client, down):
        return Local(client.z, client.h)

    def push(self, client, down, local, rd):
        return Client(local.z, client.h), {"z": local.z}

    def update(self, server, total, rd):
        average = rd.mean(total["z"], of_nobody=server.x)
        heads = self.coin(rd.index)
        return Server(tree.axpy(heads, tree.sub(average, server.x), server.x))

    def state_after(self, client, up, down, rd):
        return Client(up["z"], client.h)

    def after_update(self, client, down, rd):
        heads = self.coin(rd.index)
        gap = tree.scale(heads, tree.sub(down["x"], client.z))
        p = 1 / self.period if self.period else self.p
        return Client(tree.add(client.z, gap), tree.axpy(p / rd.lr, gap, client.h))


@cache
def _keys(seed: int) -> tuple[int, ...]:
    """Sixteen bits for every turn, from a seed, as splitmix64 draws them."""
    keys, whole = [], 2**64 - 1
    for turn in range(1, TURNS + 1):
        z = (seed + turn * 0x9E3779B97F4A7C15) & whole
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & whole
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & whole
        keys.append((z ^ (z >> 31)) >> 48)
    return tuple(keys)
