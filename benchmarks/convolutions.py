"""A CNN of plain convolutions: rewritten as products, as it is, and in PyTorch.

Rounds of FOCUS with the paper's network on random images, each side in the same run:
with convolutions rewritten, as they are (with --plain: minutes on a CPU), and with
--torch the same network as a PyTorch module, translated by `from_torch` and in an eager
loop over the clients; with --flax as a Flax module. With --resnet the last two alone,
of a ResNet-18 for 32 pixels.

Usage: python benchmarks/convolutions.py [--clients 8] [--rounds 4] [--plain] [--flax]
                                         [--torch] [--resnet]
"""

import argparse
import copy
import json
import time

import jax
import numpy as np

import focusfl as ff
from focusfl.problems import models

BATCH, STEPS, SAMPLES, TURNS = 128, 3, 512, 3


def loss(params, samples):
    scores = models.cnn_scores(params, samples["x"])
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
    """What runs rounds, compiled, and gives the model it comes to."""
    problem = ff.problems.from_loss(
        loss, models.cnn_params(), clients, batch_size=BATCH,
        eval_data={k: v[:10] for k, v in clients[0].items()}, fast_convolutions=fast,
    )  # fmt: skip
    return simulated(problem, rounds)


def flax(clients, rounds):
    """The same network as Flax has it."""
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            widths = zip((3, 16, 32), (16, 32, 64), strict=True)
            self.convs = nnx.List([nnx.Conv(*io, (3, 3), rngs=rngs) for io in widths])
            self.hidden = nnx.Linear(1024, 500, rngs=rngs)
            self.out = nnx.Linear(500, 10, rngs=rngs)

        def __call__(self, x):
            for conv in self.convs:
                x = nnx.max_pool(nnx.relu(conv(x)), (2, 2), (2, 2))
            return self.out(nnx.relu(self.hidden(x.reshape(len(x), -1))))

    def each(net, samples):
        return ff.problems.cross_entropy(net(samples["x"]), samples["y"])

    problem = ff.problems.from_flax(
        Net(nnx.Rngs(0)), each, clients, batch_size=BATCH,
        eval_data={k: v[:10] for k, v in clients[0].items()},
    )  # fmt: skip
    return simulated(problem, rounds)


def translated(net, clients, rounds):
    """The same of a PyTorch module."""
    import torch

    data = [
        (np.ascontiguousarray(c["x"].transpose(0, 3, 1, 2)), c["y"].astype(np.int64))
        for c in clients
    ]
    problem = ff.problems.from_torch(
        net, torch.nn.CrossEntropyLoss(), data, batch_size=BATCH,
        eval_data=tuple(a[:10] for a in data[0]),
    )  # fmt: skip
    return simulated(problem, rounds)


def simulated(problem, rounds):
    def run():
        return ff.simulate(
            ff.Focus(), problem, ff.participation.Full(), rounds=rounds, lr=1e-3,
            local_steps=STEPS, eval_every=rounds,
        ).x  # fmt: skip

    return run


def cnn():
    """The network of models.cnn_scores, in PyTorch."""
    import torch

    layers = [
        m
        for i, o in ((3, 16), (16, 32), (32, 64))
        for m in (
            torch.nn.Conv2d(i, o, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
        )
    ]
    return torch.nn.Sequential(
        *layers, torch.nn.Flatten(), torch.nn.Linear(1024, 500), torch.nn.ReLU(),
        torch.nn.Linear(500, 10),
    )  # fmt: skip


def resnet18():
    """ResNet-18 for images of 32 pixels, with group norm: 11 million parameters."""
    import torch
    from torch import nn

    def conv(into, out, size, stride):
        return nn.Sequential(
            nn.Conv2d(into, out, size, stride, size // 2, bias=False),
            nn.GroupNorm(8, out),
        )

    class Block(nn.Module):
        def __init__(self, into, out, stride):
            super().__init__()
            self.first, self.second = conv(into, out, 3, stride), conv(out, out, 3, 1)
            same = stride == 1 and into == out
            self.around = nn.Identity() if same else conv(into, out, 1, stride)

        def forward(self, x):
            return torch.relu(self.second(torch.relu(self.first(x))) + self.around(x))

    widths = (64, 64, 128, 256, 512)
    blocks = [
        Block(a if i == 0 else b, b, 2 if i == 0 and b > 64 else 1)
        for a, b in zip(widths, widths[1:], strict=False)
        for i in range(2)
    ]
    return nn.Sequential(
        conv(3, 64, 3, 1), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(512, 10),
    )  # fmt: skip


def eager(net, clients, rounds):
    """The same gradients in PyTorch, client by client."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = copy.deepcopy(net).to(device)
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
    parser.add_argument("--flax", action="store_true", help="as a Flax module, too")
    parser.add_argument("--torch", action="store_true", help="as a torch module, too")
    parser.add_argument("--resnet", action="store_true", help="ResNet-18 in its place")
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    if options.quick:
        options.clients = options.rounds = 1
    clients, sides = images(options.clients), {}
    few = max(1, options.rounds // 10)  # of the eager loop, which has no beginning
    if not options.resnet:
        sides["rewritten"] = ours(clients, options.rounds, True)
        if options.plain:
            sides["as it is"] = ours(clients, options.rounds, False)
    if options.flax:
        sides["Flax"] = flax(clients, options.rounds)
    if options.torch or options.resnet:
        net = resnet18() if options.resnet else cnn()
        sides["translated"] = translated(net, clients, options.rounds)
        sides["eager PyTorch"] = eager(net, clients, few)
    base = next(iter(sides))
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
            rounds = few if name.startswith("eager") else options.rounds
            seconds[name].append((time.perf_counter() - start) / rounds)
    best = {name: min(times) for name, times in seconds.items()}
    for name, time_ in best.items():
        print(
            f"{name:>14}: {1e3 * time_:8.1f} ms a round, "
            f"{time_ / best[base]:6.2f} of {base}; first run "
            f"{first[name]:.1f} s"
        )
    if "as it is" in models:
        leaves = map(jax.tree.leaves, (models["rewritten"], models["as it is"]))
        gap = max(np.abs(a - b).max() for a, b in zip(*leaves, strict=True))
        print(f"models of the first two are {gap:.1e} apart on {jax.devices()[0]}")
    print(json.dumps(best))


if __name__ == "__main__":
    main()
