"""How far FOCUS's tracker drifts from what clients store, in float32: is it worth it to
keep the low bits of the server's sum?

Three ways to add up in the simulator itself: as the library does; with the server's sum
kept in two numbers (two-sum); and with pushes, too, that are exactly what the stored
gradient changes by, where floating point has such a number. With full gradients and
with noisy ones. The gap: |y - sum of stored gradients| / sum of their norms.
Usage: python benchmarks/drift.py [--rounds 1000000]
"""

import argparse
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import focusfl as ff
from focusfl.algorithms import focus
from focusfl.core import tree
from focusfl.core.tree import Tree

CLIENTS, DIM, LR, STEPS, SHARE = 20, 10, 0.01, 2, 0.3


class Server(NamedTuple):
    x: Tree
    y: Tree
    low: Tree  # what y has lost by rounding


@dataclass(frozen=True)
class TwoSum(ff.Focus):
    """FOCUS whose server keeps the low bits of its sum."""

    def init(self, params):
        server, client = super().init(params)
        return Server(*server, tree.zeros(params)), client

    def update(self, server, total, rd):
        a, b = server.y, tree.add(total["y"], server.low)
        y = tree.add(a, b)
        back = tree.sub(y, a)
        low = tree.add(tree.sub(a, tree.sub(y, back)), tree.sub(b, back))
        return Server(tree.axpy(-rd.lr, y, server.x), y, low)


@dataclass(frozen=True)
class ExactPush(TwoSum):
    """And whose clients store what they have pushed, and not what they have found."""

    def push(self, client, down, local, rd):
        stored = tree.add(client.grad, tree.sub(local.grad, client.grad))
        return focus.Client(stored), {"y": tree.sub(stored, client.grad)}


@dataclass(frozen=True, eq=False)
class Single(ff.problems.Quadratic):
    dtype = "float32"

    @property
    def x0(self):
        return np.zeros(DIM, "float32")


@dataclass(frozen=True, eq=False)
class NoisySingle(ff.problems.Noisy):
    dtype = "float32"


def gap(result: ff.Result) -> float:
    grads = np.asarray(result.clients.grad, float)
    held = np.asarray(result.server.y, float)
    held = held + np.asarray(getattr(result.server, "low", 0.0), float)
    return float(np.linalg.norm(held - grads.sum(0)) / np.linalg.norm(grads, axis=1).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    rounds = 300 if options.quick else options.rounds
    drawn = ff.problems.random_quadratic(num_clients=CLIENTS, dim=DIM, L=1.1)
    exact = Single(drawn.H, drawn.h)
    problems = {"full gradients": exact, "noisy gradients": NoisySingle(exact, 1.0)}
    print(f"| after {rounds:,} rounds | as it is | two-sum | and exact pushes |")
    print("| --- | --- | --- | --- |")
    for words, problem in problems.items():
        found = []
        for algorithm in (ff.Focus, TwoSum, ExactPush):
            began = time.perf_counter()
            result = ff.simulate(
                algorithm(memory="last"), problem, ff.participation.Bernoulli(SHARE),
                rounds=rounds, lr=LR, local_steps=STEPS, eval_every=rounds,
            )  # fmt: skip
            found.append(f"{gap(result):.1e} ({time.perf_counter() - began:.0f} s)")
        print(f"| {words} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
