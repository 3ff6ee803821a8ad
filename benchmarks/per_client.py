"""What per_client=True adds to an evaluation, and to compiling one.

Each problem has a common test set of as many samples as clients' own have together.
Compiling is in seconds of the CPU, an evaluation in milliseconds of the clock, the best
of several: a shared machine is slow at times.
Usage: python benchmarks/per_client.py [--quick]
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import focusfl as ff
from focusfl.core import metrics as evaluation
from focusfl.problems import models, networks, neural

RNG = np.random.default_rng(0)


def main() -> None:
    """Print a row of a table for each problem."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    quick = parser.parse_args().quick
    print("| problem | mean, ms | per client, ms | compiling, CPU s | per client |")
    print("| --- | --- | --- | --- | --- |")
    row("ridge, 100 clients, 100 dimensions", ff.problems.ridge(100, 100, 100), 300)
    if quick:
        return
    whole = ff.problems.PerSample(models.AccuracyAndLoss(neural.dense_scores))
    for lengths in (1, 10, 30):
        sets = [rows(20 + i % lengths) for i in range(100)]
        for name, metrics in (
            ("PerSample", whole),
            ("function", lambda x, s: whole(x, s)),
        ):
            problem = made(
                models.CrossEntropy(neural.dense_scores),
                models.dense_params([20, 64, 2], 0),
                sets,
                metrics,
            )
            row(f"network, 100 clients, {lengths} lengths, {name}", problem, 100)
    sets = [images(100) for _ in range(20)]
    problem = made(networks.image_loss, models.cnn_params(), sets, networks.image_metrics)
    row("CNN, 20 clients, 100 images each", problem, 4)


def made(loss, params, sets, metrics) -> ff.problems.LossProblem:
    """A problem that is evaluated on these sets, together and one by one."""
    together = {name: np.concatenate([one[name] for one in sets]) for name in ("x", "y")}
    few = [{name: a[:4] for name, a in one.items()} for one in sets]
    return ff.problems.from_loss(
        loss, params, few, batch_size=2, eval_data=together, client_eval_data=sets,
        metrics_fn=metrics,
    )  # fmt: skip


def rows(count: int) -> dict[str, np.ndarray]:
    x = RNG.normal(size=(count, 20)).astype("float32")
    return {"x": x, "y": (x[:, 0] > 0).astype(int)}


def images(count: int) -> dict[str, np.ndarray]:
    x = RNG.integers(0, 255, (count, 32, 32, 3)).astype("uint8")
    return {"x": x, "y": RNG.integers(0, 10, count)}


def row(name: str, problem: ff.problems.Problem, repeats: int) -> None:
    """Time both kinds of evaluation, turn by turn."""
    with jax.enable_x64(problem.dtype == "float64"):
        x = jax.tree.map(lambda a: jnp.asarray(a, problem.dtype), problem.x0)
        calls, compiling = [], []
        for per_client in (False, True):
            data = jax.device_put(evaluation.eval_data_of(problem, per_client))

            def evaluate(x, data, per_client=per_client):
                return evaluation.evaluate(problem.objective, per_client, x, data)

            start = time.process_time()
            ready = jax.jit(evaluate).lower(x, data).compile()
            compiling.append(time.process_time() - start)
            calls.append(lambda ready=ready, data=data: ready(x, data))
        best = [np.inf, np.inf]
        for _ in range(repeats):
            for which, call in enumerate(calls):
                start = time.perf_counter()
                jax.block_until_ready(call())
                best[which] = min(best[which], time.perf_counter() - start)
    cells = [f"{1e3 * value:.3g}" for value in best]
    cells += [f"{value:.2g}" for value in compiling]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
