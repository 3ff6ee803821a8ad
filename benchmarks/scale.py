"""The simulator from a thousand clients to a million.

Logistic regression, d = 123, |S| = 100: time per round and peak memory while N grows.
Then the CNN of CIFAR-10, d = 541,094: 20,000 clients whose memory is on disk against 32
in memory. All its clients hold the same few made-up images, so that data is small.
Each case runs in a process of its own, those of logistic regression in several turns
of which the fastest counts. Evaluation is apart from the rounds.
Usage: python benchmarks/scale.py [--only logistic|cnn] [--json FILE]
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import made_up
import numpy as np

import focusfl as ff

CLIENTS = (10**3, 10**4, 10**5, 10**6)
DIM, ROWS, ACTIVE, STEPS = 123, 2, 100, 5
CHUNK, WINDOW = 256, 6  # rounds in a chunk; chunks in a row that are timed
CHUNKS = 24
TURNS, REPEATS = 3, 3
NEVER = 10**9
IMAGES, BATCH, FEW_ACTIVE = 8, 8, 8
GIB = 2**30


def peak() -> int:
    """The largest size that this process has had in memory, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("no VmHWM in /proc/self/status")


def timed(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def logistic(num_clients: int, chunks: int) -> dict:
    """Time a round and an evaluation; measure memory."""
    problem = made_up.logistic(num_clients, ROWS, DIM)
    times = []

    def run():
        ff.simulate(
            ff.Focus(), problem, ff.participation.Uniform(ACTIVE),
            rounds=chunks * CHUNK, lr=0.1 / num_clients, local_steps=STEPS, eval_every=NEVER,
            callbacks=lambda *_: times.append(time.perf_counter()),
        )  # fmt: skip

    run()
    needs = sum(a.nbytes for a in problem.data.values()) + 8 * DIM * num_clients
    memory, found = peak(), []
    for _ in range(REPEATS):
        times.clear()
        run()
        ends = np.array(times[1:-1])  # all chunks but the first and the last
        found.append((ends[WINDOW:] - ends[:-WINDOW]).min() / (WINDOW * CHUNK))
    return {
        "clients": num_clients,
        "round_s": min(found),
        "evaluation_s": evaluation(problem),
        "state_and_data_bytes": needs,
        "peak_bytes": memory,
    }


def evaluation(problem) -> float:
    """Seconds that the metrics of one model take."""
    import jax

    objective = problem.objective
    with jax.enable_x64(True):
        evaluate = jax.jit(objective.evaluate)
        x, eval_data = jax.device_put((problem.x0, problem.eval_data))
        jax.block_until_ready(evaluate(x, eval_data))
        return min(
            timed(lambda: jax.block_until_ready(evaluate(x, eval_data))) for _ in range(REPEATS)
        )


def in_turns(sizes: tuple[int, ...], turns: int, chunks: int) -> list[dict]:
    """Time all sizes turn by turn: others on this machine disturb some of them."""
    found = [[apart("logistic", n, chunks) for n in sizes] for _ in range(turns)]
    rows = []
    for same in zip(*found, strict=True):
        row = {name: min(one[name] for one in same) for name in same[0]}
        rows.append(row | {"peak_bytes": max(one["peak_bytes"] for one in same)})
    return rows


def cnn(num_clients: int, client_state: str, rounds: int) -> dict:
    """Rounds per second of the CNN, and memory."""
    from focusfl.problems import loss, models, networks

    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (IMAGES, 32, 32, 3), np.uint8)
    shared = {"x": x, "y": rng.integers(0, 10, IMAGES).astype(np.int32)}
    samples = {name: np.broadcast_to(a, (num_clients, *a.shape)) for name, a in shared.items()}
    objective = loss.MeanLoss(
        networks.image_loss, networks.image_metrics, BATCH, "with_replacement"
    )
    problem = loss.LossProblem(
        objective, samples, np.full(num_clients, IMAGES, np.int32), shared,
        models.cnn_params(),
    )  # fmt: skip

    def run(number):
        return ff.simulate(
            ff.Focus(), problem, ff.participation.Uniform(FEW_ACTIVE), rounds=number,
            lr=1e-4, eval_every=NEVER, options=ff.Options(client_state=client_state), seed=number,
        )  # fmt: skip

    run(16)
    short, long = (timed(lambda k=k: run(k)) for k in (16, 16 + rounds))
    return {
        "clients": num_clients,
        "client_state": client_state,
        "rounds_per_s": rounds / (long - short),
        "state_bytes": 4 * 541_094 * num_clients,
        "peak_bytes": peak(),
    }


CASES = {"logistic": logistic, "cnn": cnn}


def apart(name: str, *arguments) -> dict:
    """Run one case in a process of its own."""
    command = [sys.executable, __file__, "--case", name, json.dumps(arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=-1).stdout)


def print_logistic(rows: list[dict]) -> None:
    print(f"logistic regression, d = {DIM}, {ROWS} rows a client, |S| = {ACTIVE},")
    print(f"{STEPS} local steps")
    columns = ("clients", "round", "evaluation", "peak", "state + data", "ratio")
    print("".join(f"{name:>14}" for name in columns))
    for r in rows:
        peak, needs = r["peak_bytes"], r["state_and_data_bytes"]
        print(
            f"{r['clients']:>14,}{1e6 * r['round_s']:>11.0f} us"
            f"{1e3 * r['evaluation_s']:>11.2f} ms{peak / GIB:>10.2f} GiB"
            f"{needs / GIB:>10.2f} GiB{peak / needs:>14.2f}"
        )
    ratio = rows[-1]["round_s"] / rows[0]["round_s"]
    print(f"a round at the last N takes {ratio:.2f} times that at the first\n")


def print_cnn(rows: list[dict]) -> None:
    print(f"CNN, d = 541,094, |S| = {FEW_ACTIVE}, one local step on {BATCH} images")
    for r in rows:
        print(
            f"{r['clients']:>14,} on {r['client_state']:<8}{r['rounds_per_s']:>7.2f} "
            f"rounds/s, state {r['state_bytes'] / GIB:.2f} GiB, "
            f"peak {r['peak_bytes'] / GIB:.2f} GiB"
        )
    ratio = rows[1]["rounds_per_s"] / rows[0]["rounds_per_s"]
    print(f"on disk: {ratio:.2f} times the rounds per second in memory")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=CASES, help="leave the other part out")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        name, arguments = options.case
        print(json.dumps(CASES[name](*json.loads(arguments))))
        return
    numbers = {}
    if options.only != "cnn":
        few = (CLIENTS[:1], 1, WINDOW + 3)
        how = few if options.quick else (CLIENTS, TURNS, CHUNKS)
        numbers["logistic"] = in_turns(*how)
        print_logistic(numbers["logistic"])
    if options.only != "logistic":
        many, rounds = (64, 16) if options.quick else (20_000, 200)
        numbers["cnn"] = [
            apart("cnn", 32, "device", rounds), apart("cnn", many, "disk", rounds)
        ]  # fmt: skip
        print_cnn(numbers["cnn"])
    if options.json:
        options.json.write_text(json.dumps(numbers, indent=2))


if __name__ == "__main__":
    main()
