"""Rounds and uplink bits to 1e-8 with every compressor, each at its own best step.

    python benchmarks/compressors.py               # some minutes on 2 cores
    python benchmarks/compressors.py others        # SCAFFOLD, MIFA and FedVARP alone
    python benchmarks/compressors.py matrix        # low rank: the same model as a matrix
    python benchmarks/compressors.py images        # four bits on a small CNN, by scales
    python benchmarks/compressors.py cifar10       # on all of CIFAR-10: for a GPU, minutes

Ridge regression, 16 clients whose coins are .1 to .9, float64, two local steps; the
medians over three seeds. `fewer bits` is against the same algorithm without compressor.
For low rank the same 100 numbers are a matrix of 10 rows, which changes nothing else.
Images are 2,000 of CIFAR-10, by 8 clients of uneven classes, or all of it as the paper
has it; FOCUS with mean memory takes every compressor at the same step there.
"""

import argparse
import time
import tomllib
from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import focusfl as ff
from focusfl import (
    Chain,
    Compressed,
    FixedPoint,
    LowRank,
    Quantize,
    RandomK,
    TopK,
    data,
)
from focusfl.flower.protocol.limits import norm
from focusfl.problems import models, networks

GOAL, SEEDS = 1e-8, [0, 1, 2]
COMPRESSORS = [
    None,
    Quantize(8),
    Quantize(8, "stochastic"),
    Quantize(4),
    Quantize(4, "stochastic"),
    Quantize(4, block=32),
    Quantize(2),
    Quantize(2, "stochastic"),
    TopK(0.1),
    RandomK(0.1),
    FixedPoint(32, 22),
    Chain(TopK(0.1), Quantize(4)),
]
SCALES = [
    None,
    Quantize(8),
    Quantize(4),
    Quantize(4, "stochastic"),
    Quantize(4, block=64),
    Quantize(4, "stochastic", block=64),
    Quantize(4, block=16),
]
ON_CIFAR10 = [
    None,
    Quantize(8),
    Quantize(4, block=64),
    Quantize(4, "stochastic", block=64),
    Quantize(4, block=16),
    Quantize(4),
    LowRank(4),
]
MATRIX = [None, Quantize(4), LowRank(1), LowRank(2), LowRank(4)]
OTHERS = [(ff.Scaffold(), 2), (ff.MIFA(), 1), (ff.MIFA(), 5), (ff.FedVARP(), 1)]
COINS = ff.participation.Bernoulli(np.linspace(0.1, 0.9, 16))


def best(algorithm, problem, L, local_steps, rounds, largest):
    """Median rounds and bits to the goal at the best step, or the least error."""
    lrs = largest * 2.0 ** (-np.arange(11) / 2) / L
    stop = ff.Stop(tolerance=GOAL / 10)
    runs = ff.sweep(
        algorithm, problem, COINS, rounds=rounds, lrs=lrs, seed=SEEDS,
        local_steps=local_steps, callbacks=stop, options=ff.Options(on_divergence="ignore"),
    )  # fmt: skip
    found = []
    for own in np.reshape(np.array(runs, object), (len(SEEDS), len(lrs))).T:
        ends = [arrived(run) for run in own]
        error = np.median([last(run) for run in own])
        found.append((*np.median(ends, axis=0), error))
    fastest = min(range(len(lrs)), key=lambda k: (found[k][0], found[k][2]))
    return found[fastest], lrs[fastest] * L


def arrived(run):
    """The rounds and the uplink bits until the goal; infinite if it was not met."""
    there = np.flatnonzero(run.metrics["distance"] <= GOAL)
    if not len(there) or run.diverged_at is not None:
        return np.inf, np.inf
    return float(there[0]), 8 * float(run.metrics["bytes_up"][: there[0] + 1].sum())


def last(run):
    return np.inf if run.diverged_at is not None else run.metrics["distance"][-1]


def row(name, algorithm, problem, L, local_steps, plain=None, rounds=1000, largest=1):
    found, step = best(algorithm, problem, L, local_steps, rounds, largest)
    took, bits, error = found
    fewer = f"{plain / bits:.1f}" if plain and np.isfinite(bits) else ""
    end = f"{took:.0f}" if np.isfinite(took) else f"never: {error:.1e}"
    sent = f"{bits:.3g}" if np.isfinite(bits) else "–"
    print(f"| {name} | {end} | {sent} | {fewer} | {step:.2f} |", flush=True)
    return bits


def of_focus(problem, L, compressors):
    for memory in ("last", "mean"):
        focus, plain = ff.Focus(memory=memory), None
        for compressor in compressors:
            coded = focus if compressor is None else Compressed(focus, compressor)
            name = f"FOCUS, {memory}: {compressor or 'no compressor'}"
            rounds = 4000 if isinstance(compressor, RandomK | LowRank) else 1000
            bits = row(name, coded, problem, L, 2, plain, rounds)
            plain = bits if plain is None else plain


def as_matrix(problem, high=10):
    """The same clients, whose model is a matrix."""
    clients = []
    for i in range(problem.num_clients):
        own = {name: a[i] for name, a in problem.data.items()}
        slope = partial(problem.objective.grad, data=own, batch=None)
        h = -slope(problem.x0)
        H = np.stack([slope(e) + h for e in np.eye(len(h))])
        clients.append({"H": H[None], "h": h[None]})

    def loss(params, one):
        x = params["x"].reshape(-1)
        return (one["H"] @ x @ x) / 2 - one["h"] @ x  # of the one sample a client has

    def distance(params, at):
        x, goal = params["x"].reshape(-1), at["optimum"][0]
        return {"distance": jnp.linalg.norm(x - goal) / jnp.linalg.norm(goal)}

    return ff.problems.from_loss(
        loss, {"x": np.zeros((high, len(problem.x0) // high))},
        clients, batch_size=None, dtype="float64", metrics_fn=distance,
        eval_data={"optimum": problem.optimum[None]},
    )  # fmt: skip


def of_others(problem):
    for inner, steps in OTHERS:
        name = f"{type(inner).__name__}, {steps} local steps"
        how = {"rounds": 3000, "largest": 16}  # their mean of moves takes larger steps
        plain = row(f"{name}: no compressor", inner, problem, problem.L, steps, **how)
        coded = Compressed(inner, Quantize(8))
        row(
            f"{name}: {coded.compressor}",
            coded,
            problem,
            problem.L,
            steps,
            plain,
            **how,
        )


def images(train=2000, test=1000):
    """Some of CIFAR-10, dealt out by class, and a CNN of 17,962 numbers."""
    found = data.cifar10()
    x, y = found.train_x[:train], found.train_y[:train]
    parts = data.dirichlet_balanced(y, 8, alpha=0.3, seed=0, drop_rest=True)
    return ff.problems.from_loss(
        networks.image_loss, models.cnn_params(channels=(8, 16), hidden=16),
        [{"x": x[part], "y": y[part]} for part in parts], batch_size=16,
        eval_data={"x": found.test_x[:test], "y": found.test_y[:test]},
        metrics_fn=networks.image_metrics,
    )  # fmt: skip


def of_scales():
    law = ff.participation.Bernoulli(np.linspace(0.2, 0.9, 8))
    accuracies(images(), law, SCALES, SEEDS, last=5, rounds=400, lrs=[0.01], eval_every=20)


def of_cifar10():
    # Not by focusfl.studies, which wants more than a machine with a GPU may have.
    path = Path(ff.__file__).with_name("experiment") / "studies" / "cifar10.toml"
    study = tomllib.loads(path.read_text())  # the paper's setting
    law = ff.participation.Bernoulli(np.array(study["participation"]["bernoulli"]["p"]))
    accuracies(
        networks.cifar10(), law, ON_CIFAR10, study["seeds"], last=10,
        rounds=study["rounds"], lrs=[study["algorithms"]["focus-mean"]["lr"]],
        eval_every=study["every"],
    )  # fmt: skip


def accuracies(problem, law, compressors, seeds, last, **how):
    """Accuracy and loss of the last evaluations, and what clients have unsent."""
    focus = ff.Focus(memory="mean")
    for compressor in compressors:
        coded = focus if compressor is None else Compressed(focus, compressor)
        start = time.perf_counter()
        runs = ff.sweep(
            coded,
            problem,
            law,
            seed=seeds,
            local_steps=3,
            options=ff.Options(on_divergence="ignore"),
            **how,
        )
        took = time.perf_counter() - start
        ends = [
            [np.mean(run.metrics[name][run.evaluated][-last:]) for run in runs]
            for name in ("accuracy", "loss")
        ]
        fewer = focus.traffic(problem.x0)[1] / coded.traffic(problem.x0)[1]
        each = ", ".join(f"{one:.3f}" for one in ends[0])
        owed = np.nan if compressor is None else np.mean([unsent(run) for run in runs])
        print(
            f"| {compressor or 'no compressor'} | {np.mean(ends[0]):.3f} ({each}) | "
            f"{np.mean(ends[1]):.3f} | {owed:.2f} | {fewer:.1f} | {took:.0f} |",
            flush=True,
        )


def unsent(run):
    """The norm of what clients have not told, over that of what they remember."""
    return norm(run.clients.unsent["y"]) / norm(run.clients.inner.grad)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parts = ["others", "matrix", "images", "cifar10"]
    parser.add_argument("part", choices=parts, nargs="?", help="this alone")
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    if options.part in ("images", "cifar10"):
        print("| | accuracy | loss | unsent | fewer bits | seconds |\n|" + " --- |" * 6)
        try:
            return of_scales() if options.part == "images" else of_cifar10()
        except ValueError as error:  # no data
            parser.exit(2, f"{error}\n")
    problem = ff.problems.ridge(num_clients=16, dim=100, rows=40)
    print("| | rounds | uplink bits | fewer bits | step times L |\n|" + " --- |" * 5)
    if options.quick:
        return of_focus(problem, problem.L, COMPRESSORS[:2])
    if options.part == "matrix":
        return of_focus(as_matrix(problem), problem.L, MATRIX)
    if options.part != "others":
        of_focus(problem, problem.L, COMPRESSORS)
    of_others(problem)


if __name__ == "__main__":
    main()
