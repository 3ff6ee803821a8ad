"""FedAvg in focusfl."""

import os
import time

import numpy as np
from common import Task, params, read, report

TESTED = 2000  # images


def problem(task: Task):
    """The workload as a problem of focusfl."""
    import focusfl as ff

    work = task.work
    if task.kind == "logistic":
        rows = work["b"] != 0  # others are padding
        b = np.where(rows, work["b"], 1)
        return ff.problems.Logistic(work["A"], b, float(work["penalty"]), rows)
    if task.kind == "ridge":
        return ff.problems.LeastSquares(work["A"], work["b"], float(work["penalty"]))
    from focusfl.problems.models import cross_entropy

    start = params(work)

    def loss(model, samples, key=None):
        x = (samples["x"].astype("float32") - work["mean"]) / work["std"]
        drawn = key if any(task.rates) else None
        keep = dropout(drawn, len(x), *task.rates)
        return cross_entropy(scores(model, x, *keep), samples["y"])

    return ff.problems.from_loss(
        loss,
        {name: {k: start[f"{name}.{k}"] for k in "wb"} for name in layers_of(start)},
        [{"x": x, "y": y} for x, y in zip(work["x"], work["y"], strict=True)],
        batch_size=int(work["batch"]), stream="fixed_order",
        eval_data={"x": work["test_x"][:10], "y": work["test_y"][:10]},
    )  # fmt: skip


def dropout(key, count: int, first: float, second: float):
    """Draw what the units of so many samples are multiplied by: 1 without a key.

    Args:
        key: of jax, or None where nothing is drawn.
        count: samples.
        first: how often a unit after the pooling is dropped, a multiple of 1 / 256.
        second: the same after the hidden layer.
    """
    if key is None:
        return 1, 1
    import jax
    import jax.numpy as jnp

    def keep(key, rate, units):
        bits = jax.random.bits(key, (count, units), "uint8")
        return jnp.where(bits < int(256 * rate), 0.0, 1 / (1 - rate))

    one, two = jax.random.split(key)
    return keep(one, first, 14 * 14 * 64), keep(two, second, 128)


def scores(model, x, keep1=1, keep2=1):
    """Two convolutions, pooling, two dense layers; images are (batch, 32, 32, 3).

    `keep1` and `keep2` multiply the units that dropout drops at random.
    """
    import jax
    from jax import lax

    for layer in (model["conv1"], model["conv2"]):
        x = lax.conv_general_dilated(
            x, layer["w"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + layer["b"])
    smallest = np.array(-np.inf, x.dtype)
    x = lax.reduce_window(x, smallest, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(len(x), -1) * keep1
    x = jax.nn.relu(x @ model["hidden"]["w"] + model["hidden"]["b"]) * keep2
    return x @ model["out"]["w"] + model["out"]["b"]


def quality(work: dict, model: dict) -> dict[str, float]:
    """The loss that a model of any side has; on test images, with the accuracy."""
    if str(work["kind"]) != "cnn":
        clients, w = work["A"].astype(float), model["w"].astype(float)
        product, b, penalty = clients @ w, work["b"], float(work["penalty"])
        if str(work["kind"]) == "ridge":
            return {"loss": float(((product - b) ** 2).sum(1).mean() + penalty * w @ w)}
        each, real = np.logaddexp(0, -b * product), b != 0
        means = (each * real).sum(1) / real.sum(1)
        return {"loss": float(means.mean() + penalty * w @ w / 2)}
    import jax

    from focusfl.problems.models import accuracy, cross_entropy

    layers = {n: {k: model[f"{n}.{k}"] for k in "wb"} for n in layers_of(model)}
    x = (work["test_x"][:TESTED].astype(np.float32) - work["mean"]) / work["std"]
    found, y = jax.jit(scores)(layers, x), work["test_y"][:TESTED]
    return {
        "loss": float(cross_entropy(found, y).mean()),
        "accuracy": float(accuracy(found, y)),
    }


def layers_of(model: dict) -> list[str]:
    """The layers of a model whose arrays are named layer.w and layer.b."""
    return sorted({name.partition(".")[0] for name in model})


def main():
    task = read()
    os.environ["JAX_PLATFORMS"] = {"gpu": "cuda"}.get(task.device, task.device)
    devices = 1
    if task.kind == "cnn" and task.device == "cpu":
        # A batch of 10 is too little to share: every core has clients of its own.
        devices = task.threads
        os.environ["XLA_FLAGS"] = (
            f"--xla_force_host_platform_device_count={devices} --xla_cpu_multi_thread_eigen=false"
        )
    import focusfl as ff

    what, work, rounds = problem(task), task.work, task.warm + task.rounds
    masks = np.zeros((rounds, what.num_clients), bool)
    np.put_along_axis(masks, task.cohorts, True, 1)

    def run():
        return ff.simulate(
            ff.FedAvg(), what, ff.participation.Replay(masks), rounds=rounds,
            lr=float(work["lr"]), local_steps=int(work["local_steps"]), eval_every=rounds,
            options=ff.Options(devices=devices),
        )  # fmt: skip

    run()  # compiles: the warm-up is the whole run once
    start = time.time()
    model = run().x
    end = time.time()
    if not isinstance(model, dict):
        model = {"w": model}
    else:
        model = {f"{name}.{k}": layer[k] for name, layer in model.items() for k in "wb"}
    report(task, rounds, start, end, model, ["focusfl", "jax", "jaxlib", "numpy"])


if __name__ == "__main__":
    main()
