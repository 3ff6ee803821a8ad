"""Measure algorithms at the steps that somebody would try first, on networks.

    python experiments/first-steps/measure.py digits    # 4 minutes on 2 cores
    python experiments/first-steps/measure.py mnist --auto     # 20 minutes on 2 cores

Clients come by coins from .9 to .05 and take 5 steps with batches of 16. A number is
the accuracy on held-out images after the last round, the mean over seeds.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import focusfl as ff
from focusfl.problems.models import ImageMetrics, accuracy_and_loss, cross_entropy
from focusfl.problems.networks import mlp_on
from focusfl.studies.report.table import markdown

ALGORITHMS = {
    "FedAvg": ff.FedAvg(),
    "SCAFFOLD": ff.Scaffold(),
    'FOCUS as published, `Focus(memory="last")`': ff.Focus(memory="last"),
    "FOCUS with mean memory, `Focus()`": ff.Focus(),
}
LOCAL_STEPS = 5


CHANNELS, GROUPS, TRAINING, TESTS = (8, 16), 4, 10_000, 2000


def digits(seed: int) -> ff.problems.LossProblem:
    return mlp_on("digits", hidden=[32], num_clients=20, split="dirichlet", alpha=0.3, seed=seed)


def mnist(seed: int) -> ff.problems.LossProblem:
    """The first 10,000 images over 30 clients, and 2,000 tests, for a small CNN."""
    images = ff.data.mnist()
    x, y = images.train_x[:TRAINING] / np.float32(255), images.train_y[:TRAINING]
    parts = ff.data.dirichlet(y, 30, 0.3, seed)
    clients = [{"x": x[part], "y": y[part]} for part in parts]
    rng = np.random.default_rng(seed)
    params: dict = {}
    for i, (wide, new) in enumerate(zip((1, *CHANNELS), CHANNELS, strict=False)):
        filters = rng.standard_normal((3, 3, wide, new)) * (2 / 9 / wide) ** 0.5
        params[f"conv{i}"] = {"w": filters, "scale": np.ones(new), "b": np.zeros(new)}
    flat = 7 * 7 * CHANNELS[-1]
    params["w"], params["b"] = rng.standard_normal((flat, 10)) / flat**0.5, np.zeros(10)
    tests = {
        "x": images.test_x[:TESTS] / np.float32(255), "y": images.test_y[:TESTS],
    }  # fmt: skip
    return ff.problems.from_loss(
        loss, params, clients, batch_size=16, eval_data=tests,
        metrics_fn=ImageMetrics(each),
    )  # fmt: skip


def scores(params, x):
    """Two convolutions of stride 2 with group norm and relu, and a dense layer."""
    for i in range(len(CHANNELS)):
        layer = params[f"conv{i}"]
        x = jax.lax.conv_general_dilated(
            x, layer["w"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        groups = x.reshape(*x.shape[:3], GROUPS, -1)
        mean = groups.mean((1, 2, 4), keepdims=True)
        variance = groups.var((1, 2, 4), keepdims=True)
        x = ((groups - mean) / jnp.sqrt(variance + 1e-5)).reshape(x.shape)
        x = jax.nn.relu(x * layer["scale"] + layer["b"])
    return x.reshape(len(x), -1) @ params["w"] + params["b"]


def loss(params, samples):
    return cross_entropy(scores(params, samples["x"]), samples["y"])


def each(params, samples):
    return accuracy_and_loss(scores(params, samples["x"]), samples["y"])


# the problem of a seed, steps, rounds and seeds
STUDIES = {
    "digits": (digits, (0.025, 0.05, 0.1, 0.2, 0.4, 0.8), 100, 3),
    "mnist": (mnist, (0.05, 0.1), 60, 2),
}


def accuracies(name: str, rounds: int, seeds: int, auto: bool) -> dict[str, np.ndarray]:
    """The accuracy in the end by algorithm, (seeds, steps); 0 for a run that broke.

    With `auto` a last column is that of the step which lr="auto" chose.
    """
    problem_of, lrs, _, _ = STUDIES[name]
    found: dict[str, list] = {label: [] for label in ALGORITHMS}
    for seed in range(seeds):
        problem = problem_of(seed)
        coins = ff.participation.Bernoulli(np.linspace(0.9, 0.05, problem.num_clients))
        for label, algorithm in ALGORITHMS.items():
            steps = list(lrs)
            if auto:
                choice = ff.theory.auto_lr(algorithm, problem, coins, LOCAL_STEPS)
                print(f"seed {seed}, {label}: {choice.lr:g}, {choice.why}", flush=True)
                steps.append(choice.lr)
            runs = ff.sweep(
                algorithm, problem, coins, lrs=steps, rounds=rounds, seed=seed,
                local_steps=LOCAL_STEPS, eval_every=rounds,
                options=ff.Options(on_divergence="ignore"),
            )  # fmt: skip
            row = [
                0.0 if run.diverged_at is not None else run.metrics["accuracy"][-1] for run in runs
            ]
            found[label].append(row)
            print(f"seed {seed}, {label}: {np.round(row, 4)}", flush=True)
    return {label: np.array(rows) for label, rows in found.items()}


def table(name: str, found: dict[str, np.ndarray]) -> str:
    """Means over seeds."""
    heads = [f"{lr:g}"[1:] for lr in STUDIES[name][1]]
    rows = [
        (label, *(f"{mean:.3f}"[1:] for mean in values.mean(0))) for label, values in found.items()
    ]
    return markdown(("", *heads, "auto")[: len(rows[0])], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--auto", action="store_true", help='try lr="auto" too')
    parser.add_argument("--rounds", type=int, help="as in the README if left out")
    parser.add_argument("--seeds", type=int, help="as in the README if left out")
    asked = parser.parse_args()
    _, _, rounds, seeds = STUDIES[asked.study]
    found = accuracies(asked.study, asked.rounds or rounds, asked.seeds or seeds, asked.auto)
    print(table(asked.study, found), end="")


if __name__ == "__main__":
    main()
