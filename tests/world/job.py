"""The jobs of the world: three sites, two numbers, lines as gradients."""

from functools import cache, reduce
from typing import NamedTuple

import numpy as np

import focusfl as ff
from focusfl.algorithms import ALGORITHMS
from focusfl.core import Algorithm, Round, gradient_sum, tree
from focusfl.simulation.client_round import client_round

NAMES = ("north", "east", "south")
N = len(NAMES)
SLOPES = np.array([[1.0, 0.8], [1.2, 1.0], [0.9, 1.1]])  # of the sites' gradients
OFFSETS = np.array([[1.0, 2.0], [-1.0, 0.0], [0.5, -3.0]])
START = np.array([-1.0, 1.0])
EXACT = 1e-8  # how near the optimum is near enough
LONG = 120  # rounds: who is slower without faults is not asked to arrive

# What is deployed: Stale is the simulator's, and around it sites are late by themselves.
DEPLOYED = [kind() for name, kind in ALGORITHMS.items() if name != "stale"] + [
    ff.Focus(memory="last"), ff.Focus(warm_start=True), ff.Scaffold(option=1),
    ff.TScaffold(option=2), ff.TScaffold(option="1-up"),
    ff.ServerOpt(ff.Focus(), "momentum", 0.5, 0.3), ff.ServerOpt(ff.FedLT()),
    ff.ClientOpt(ff.Scaffold(), prox=0.1), ff.ClientOpt(ff.Focus(), prox=0.1),
    ff.Compressed(ff.MIFA(), ff.Quantize()), ff.Compressed(ff.Scaffold(option=1), ff.Quantize()),
    ff.Compressed(ff.Focus(), ff.TopK(0.5)), ff.Compressed(ff.FedADMM(), ff.Quantize()),
]  # fmt: skip


class Setting(NamedTuple):
    """What a job is."""

    algorithm: Algorithm
    lr: float
    local_steps: int
    weights: tuple[float, ...] | None
    kind: str = "plain"  # or "sealed", with secure sums; or "private", with noise of the sites

    def weight(self, i: int) -> float:
        return self.weights[i] if self.weights else 1.0


def setting(algorithm: Algorithm, local_steps: int, weights=None) -> Setting:
    """A job with a step that suits it: servers that sum need smaller ones."""
    sums = gradient_sum(algorithm.init(START)[0]) is not None
    return Setting(algorithm, 0.15 if sums else 0.3, local_steps, weights)


def gradient(i: int, more: float = 0.0):
    """One site's gradient, to which something may be added."""
    return lambda x, batch: SLOPES[i] * x - OFFSETS[i] + more


def optimum(job: Setting, ids: tuple[int, ...]) -> np.ndarray:
    """Where the sum of these sites' gradients is zero."""
    weights = np.array([[job.weight(i)] for i in ids])
    return (weights * OFFSETS[list(ids)]).sum(0) / (weights * SLOPES[list(ids)]).sum(0)


def play_round(job: Setting, server, states: dict, index: int):
    """One round of everybody without the protocol: the new server and states."""
    algorithm, total = job.algorithm, sum(map(job.weight, states))
    rd = Round(index, job.lr, job.local_steps, total, total)
    down, ups = algorithm.broadcast(server), []
    for i in states:
        new, up = client_round(
            algorithm, states[i], down, gradient(i), [None] * job.local_steps, rd
        )
        states = {**states, i: new}
        ups.append(tree.scale(job.weight(i), up))
    server = algorithm.update(server, reduce(tree.add, ups), rd)
    down = algorithm.broadcast(server)
    return server, {i: algorithm.after_update(states[i], down, rd) for i in states}


def error_after(job: Setting, server, states: dict, index: int, rounds: int):
    """Play rounds of everybody without the protocol, until x is the optimum.

    Returns:
        The error in the end, and how many rounds it took.
    """
    best, played = optimum(job, tuple(states)), 0
    while (error := float(np.abs(server.x - best).max())) > EXACT and played < rounds:
        server, states = play_round(job, server, states, index + played)
        played += 1
    return error, played


@cache
def rounds_without_faults(job: Setting, ids: tuple[int, ...]) -> int | None:
    """How many rounds it takes where nothing goes wrong; None: it does not arrive."""
    if job.lr >= job.algorithm.max_exact_lr(float(SLOPES.max()), job.local_steps):
        return None
    server, client = job.algorithm.init(START)
    error, rounds = error_after(job, server, dict.fromkeys(ids, client), 0, LONG)
    return rounds if error <= EXACT else None
