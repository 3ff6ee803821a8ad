"""A CNN of plain convolutions: rewritten as products, as it is, and in PyTorch.

Rounds of FOCUS with the paper's network on random images, each side in the same run:
with convolutions rewritten, as they are (with --plain: minutes on a CPU), and an eager
PyTorch loop over the clients (with --torch).

Usage: python benchmarks/convolutions.py [--clients 8] [--rounds 4] [--plain] [--torch]
"""

import argparse
import json
import time

import jax
import numpy as np

import focusfl as ff
from focusfl.problems import vision

BATCH, STEPS, SAMPLES, TURNS = 128, 3, 512, 3


def loss(params, samples):
    scores = vision.cnn(params, samples["x"])
    return ff.problems.cross_entropy(scores, samples["y"])


def images(clients):
    rng = np.random.default_rng(0)
    return [
        {
            "x": rng.standard_normal((SAMPLES, 32, 32, 3), np.float32),
            "y": rng.integers(0, 10, SAMPLES).astype(np.int32),
        }
        for _ in range(clients)
    ]


def ours(clients, rounds, fast):
    """A function that runs rounds, compiled; and the model it comes to."""
    problem = ff.problems.from_loss(
        loss, vision.cnn_params(), clients, batch_size=BATCH,
        eval_data={k: v[:10] for k, v in clients[0].items()}, fast_convolutions=fast,
    )  # fmt: skip

    def run():
        return ff.simulate(
            ff.Focus(), problem, ff.participation.Full(), rounds=rounds, lr=1e-3,
            local_steps=STEPS, every=rounds,
        ).x  # fmt: skip

    return run


def eager(clients, rounds):
    """The same gradients in PyTorch, client by client."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = [
        m
        for i, o in ((3, 16), (16, 32), (32, 64))
        for m in (
            torch.nn.Conv2d(i, o, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
        )
    ]
    net = torch.nn.Sequential(
        *layers, torch.nn.Flatten(), torch.nn.Linear(1024, 500), torch.nn.ReLU(),
        torch.nn.Linear(500, 10),
    ).to(device)  # fmt: skip
    data = [
        (torch.tensor(c["x"]).permute(0, 3, 1, 2).contiguous().to(device),
         torch.tensor(c["y"]).long().to(device)) for c in clients
    ]  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)

    def run():
        for _ in range(rounds):
            for x, y in data:
                for _ in range(STEPS):
                    at = torch.randint(0, SAMPLES, (BATCH,), device=device)
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(net(x[at]), y[at]).backward()
                    optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--plain", action="store_true", help="as it is, too")
    parser.add_argument("--torch", action="store_true", help="an eager loop, too")
    options = parser.parse_args()
    clients = images(options.clients)
    sides = {
        "rewritten": ours(clients, options.rounds, True),
    }
    if options.plain:
        sides["as it is"] = ours(clients, options.rounds, False)
    if options.torch:
        sides["eager PyTorch"] = eager(clients, options.rounds)
    models, seconds = {}, {name: [] for name in sides}
    first = {}
    for name, run in sides.items():
        start = time.perf_counter()
        models[name] = run()
        first[name] = time.perf_counter() - start
    for _ in range(TURNS):
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            seconds[name].append((time.perf_counter() - start) / options.rounds)
    best = {name: min(times) for name, times in seconds.items()}
    for name, time_ in best.items():
        print(
            f"{name:>14}: {1e3 * time_:8.1f} ms a round, "
            f"{time_ / best['rewritten']:6.2f} of rewritten; first run "
            f"{first[name]:.1f} s"
        )
    if options.plain:
        leaves = map(jax.tree.leaves, (models["rewritten"], models["as it is"]))
        gap = max(np.abs(a - b).max() for a, b in zip(*leaves, strict=True))
        print(f"models of the first two are {gap:.1e} apart on {jax.devices()[0]}")
    print(json.dumps(best))


if __name__ == "__main__":
    main()
