"""The workloads, written once as .npz files that every side reads.

logistic: a9a over 1,000 clients at random, five local steps on all rows of a client.
cnn: the CIFAR-10 benchmark of pfl-research: 1,000 clients with 50 images each, drawn at
random; one epoch in batches of 10, local step 0.1, 50 clients a round.
ridge: the paper's ridge regression, 4 of 16 clients a round.
With `quick` the first two are small and of random numbers, and no data set is read.
"""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from focusfl import data, problems
from focusfl.core import random as keys
from focusfl.core.files import renamed

CLIENTS, COHORT, SEED = 1000, 50, 0
MOST = {"logistic": 40_000, "cnn": 200, "ridge": 100_000}  # rounds drawn
SHAPES = {  # two convolutions without padding, 2 x 2 pooling, two dense layers
    "conv1": (3, 3, 3, 32),
    "conv2": (3, 3, 32, 64),
    "hidden": (14 * 14 * 64, 128),
    "out": (128, 10),
}
DROPOUT = 0.25, 0.5  # after the pooling, after the hidden layer


def write(folder: Path, prefix: str, quick: bool) -> None:
    """Write all workloads that are not there yet, each as PREFIX + name + .npz."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {"logistic": partial(logistic, quick), "cnn": partial(cnn, quick)}
    for name, make in {**made, "ridge": ridge}.items():
        path = folder / f"{prefix}{name}.npz"
        if path.exists():
            continue
        with renamed(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, kind=name, **make())
    plain = folder / f"{prefix}cnn-no-dropout.npz"
    if not plain.exists():
        work = dict(np.load(folder / f"{prefix}cnn.npz")) | {"dropout": np.zeros(2)}
        with renamed(plain) as temporary, open(temporary, "wb") as file:
            np.savez(file, **work)


def logistic(quick: bool) -> dict:
    clients, cohort = (8, 4) if quick else (CLIENTS, COHORT)
    if quick:
        rng = keys.rng(SEED, "peers", "quick")
        b = rng.choice([-1.0, 1.0], (clients, 5))
        rows = np.arange(5) < 4 + np.arange(clients)[:, None] % 2  # others are padding
        problem = problems.Logistic(rng.normal(size=(clients, 5, 10)), b, 0.01, rows)
    else:
        problem = problems.libsvm("a9a", clients, split="iid", seed=SEED)
    return {
        "A": problem.A.astype(np.float32), "b": problem.b.astype(np.float32),
        "penalty": problem.penalty, "lr": 0.5, "local_steps": 5,
        "cohorts": cohorts("logistic", clients, cohort),
        "x0.w": np.zeros(problem.A.shape[2], np.float32),
    }  # fmt: skip


def cnn(quick: bool) -> dict:
    clients, cohort = (8, 2) if quick else (CLIENTS, COHORT)
    if quick:
        rng = keys.rng(SEED, "peers", "quick")
        x, y = rng.integers(0, 256, (400, 32, 32, 3), "uint8"), rng.integers(0, 10, 400)
        images = SimpleNamespace(train_x=x, train_y=y, test_x=x[:20], test_y=y[:20])
    else:
        images = data.cifar10()
    parts = np.stack(data.iid(len(images.train_y), clients, SEED))
    x = np.asarray(images.train_x)
    by = {"axis": (0, 1, 2), "dtype": float}
    return {
        "x": x[parts], "y": images.train_y[parts].astype(np.int32),
        "test_x": images.test_x, "test_y": images.test_y.astype(np.int32),
        "mean": x.mean(**by).astype(np.float32), "std": x.std(**by).astype(np.float32),
        "batch": 10, "lr": 0.1, "local_steps": 5, "dropout": np.array(DROPOUT),
        "cohorts": cohorts("cnn", clients, cohort), **glorot(),
    }  # fmt: skip


def ridge() -> dict:
    problem = problems.ridge(seed=SEED)
    return {
        "A": problem.A, "b": problem.b, "penalty": problem.penalty,
        "H": problem.data["H"], "h": problem.data["h"],
        "lr": 2e-4, "local_steps": 5,
        "cohorts": cohorts("ridge", problem.num_clients, 4),
        "x0.w": problem.x0,
    }  # fmt: skip


def cohorts(name: str, clients: int, size: int) -> np.ndarray:
    """Who takes part, (rounds, size): uniform, without replacement."""
    rng = keys.rng(SEED, "peers", name)
    drawn = np.argpartition(rng.random((MOST[name], clients)), size, axis=1)
    return np.sort(drawn[:, :size], axis=1).astype(np.int32)


def glorot() -> dict[str, np.ndarray]:
    """Weights as in that benchmark, uniform by fan in and fan out; biases zero."""
    rng, start = keys.rng(SEED, "peers", "x0"), {}
    for name, shape in SHAPES.items():
        taps = np.prod(shape[:-2])
        bound = np.sqrt(6 / (taps * (shape[-2] + shape[-1])))
        start[f"x0.{name}.w"] = rng.uniform(-bound, bound, shape).astype(np.float32)
        start[f"x0.{name}.b"] = np.zeros(shape[-1], np.float32)
    return start
