"""Somebody's CNN, written with plain convolutions, against our own and against PyTorch.

Rounds of FOCUS with the paper's network on random images, each side in the same run:
our own kernels, a plain jax network with its convolutions rewritten, the same as it is
(with --plain: on a CPU it takes minutes), and an eager PyTorch loop over the clients.

Usage: python benchmarks/convolutions.py [--clients 8] [--rounds 4] [--plain] [--torch]
"""

import argparse
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import focusfl as ff
from focusfl.problems import vision

BATCH, STEPS, SAMPLES, TURNS = 128, 3, 512, 3


def plain_cnn(params, x):
    """The paper's network as most people would write it: NHWC, relu, then a pool."""
    for i in range(3):
        layer = params[f"conv{i}"]
        x = lax.conv_general_dilated(
            x, layer["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + layer["b"])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(x @ params["hidden"]["w"] + params["hidden"]["b"])
    return x @ params["out"]["w"] + params["out"]["b"]


def loss_of(network):
    def loss(params, samples):
        return ff.problems.cross_entropy(network(params, samples["x"]), samples["y"])

    return loss


def images(clients):
    rng = np.random.default_rng(0)
    return [
        {
            "x": rng.standard_normal((SAMPLES, 32, 32, 3), np.float32),
            "y": rng.integers(0, 10, SAMPLES).astype(np.int32),
        }
        for _ in range(clients)
    ]


def ours(network, clients, rounds, fast):
    """A function that runs rounds, compiled; and the model it comes to."""
    problem = ff.problems.from_loss(
        loss_of(network), vision.cnn_params(), clients, batch_size=BATCH,
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
        "own kernels": ours(vision.cnn, clients, options.rounds, False),
        "rewritten": ours(plain_cnn, clients, options.rounds, True),
    }
    if options.plain:
        sides["as it is"] = ours(plain_cnn, clients, options.rounds, False)
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
    gap = max(
        float(np.abs(a - b).max())
        for a, b in zip(
            *map(jax.tree.leaves, (models["own kernels"], models["rewritten"])),
            strict=True,
        )
    )
    for name, time_ in best.items():
        print(
            f"{name:>14}: {1e3 * time_:8.1f} ms a round, "
            f"{time_ / best['own kernels']:6.2f} of our own; first run "
            f"{first[name]:.1f} s"
        )
    print(f"models of the first two are {gap:.1e} apart on {jax.devices()[0]}")
    print(json.dumps(best))


if __name__ == "__main__":
    main()
