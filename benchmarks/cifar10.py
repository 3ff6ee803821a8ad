"""SG-FOCUS on CIFAR-10: focusfl against a straightforward PyTorch loop, in one run.

    python benchmarks/cifar10.py                 # on whatever device there is
    python benchmarks/cifar10.py --rounds 10000 --every 250 --compute-dtype bfloat16

Both run the paper's setting on the same clients in the same rounds: 32 clients, 3 local
steps, batches of 128, crops and flips. The PyTorch side keeps one module per client and
takes one step after the other, with all data on the device. As rounds differ in size,
the ratio is that of clients' local steps per second. Where CIFAR-10 is absent, images
are random: speed does not depend on them.
"""

import argparse
import json
import os
import sys
import time
import tomllib

import jax
import numpy as np

import focusfl as ff
from focusfl.participation import schedule
from focusfl.problems import models, networks
from focusfl.studies.spec import STUDIES
from focusfl.studies.summary import tracking_gap

BATCH, CLASSES = 128, 10
STUDY = tomllib.loads((STUDIES / "cifar10.toml").read_text())  # the paper's setting
LR, LOCAL_STEPS, SEED = STUDY["lr"], STUDY["local_steps"], STUDY["seeds"][0]
CHANCES = STUDY["participation"]["bernoulli"]["p"]


def load(compute_dtype, quick):
    try:
        if not quick:
            return networks.cifar10(compute_dtype=compute_dtype)
    except ValueError as error:
        print(f"random images: {str(error).split(':')[0]}", file=sys.stderr)
    batch, samples, tests = (8, 16, 32) if quick else (BATCH, 1562, 10_000)
    rng = np.random.default_rng(0)

    def draw(n):
        x = rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
        return {"x": x, "y": rng.integers(0, CLASSES, n, dtype=np.int32)}

    return ff.problems.from_loss(
        networks.image_loss, models.cnn_params(), [draw(samples) for _ in range(32)],
        batch_size=batch, eval_data=draw(tests), metrics_fn=networks.image_metrics,
        augment=networks.crop_and_flip, compute_dtype=compute_dtype,
    )  # fmt: skip


def ours(problem, law, rounds, every, active):
    marks, start = [], time.perf_counter()
    result = ff.simulate(
        ff.Focus(memory="last"), problem, law, rounds=rounds, lr=LR, eval_every=every,
        local_steps=LOCAL_STEPS, seed=SEED,
        callbacks=lambda done, _: marks.append((time.perf_counter(), done)),
    )  # fmt: skip
    (first, done), (last, all_done) = marks[0], marks[-1]
    if all_done == done:
        raise SystemExit(f"--rounds must be more than one chunk, which is {done}.")
    return {
        "rounds": rounds,
        "rounds_per_second": (all_done - done) / (last - first),
        "steps_per_second": _steps(active[done:all_done]) / (last - first),
        "until_first_chunk_s": first - start,
        "accuracy": float(result.metrics["accuracy"][-1]),
        "tracking_gap": tracking_gap(result),
    }


def _steps(active):
    """Local steps of rounds with so many participants."""
    return LOCAL_STEPS * int(np.sum(active))


def eager(problem, drawn, seconds):
    """The same in PyTorch: one module per client, one step after the other."""
    import torch
    from torch import nn

    device = "cuda" if torch.cuda.is_available() else "cpu"
    mean, std = (
        torch.tensor(a, device=device).view(3, 1, 1) for a in (networks.MEAN, networks.STD)
    )

    def cnn():
        convs = [
            layer
            for a, b in [(3, 16), (16, 32), (32, 64)]
            for layer in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        ]
        dense = nn.Flatten(), nn.Linear(1024, 500), nn.ReLU(), nn.Linear(500, CLASSES)
        return nn.Sequential(*convs, *dense).to(device)

    def augment(x):
        pad = nn.functional.pad(x, (4, 4, 4, 4))
        top, left = torch.randint(0, 9, (2, len(x), 1, 1), device=device)
        rows = top + torch.arange(32, device=device).view(1, 32, 1)
        columns = torch.arange(32, device=device).view(1, 1, 32)
        flip = torch.rand(len(x), 1, 1, device=device) < 0.5
        columns = left + torch.where(flip, 31 - columns, columns)
        each = torch.arange(len(x), device=device).view(-1, 1, 1)
        return pad.permute(0, 2, 3, 1)[each, rows, columns].permute(0, 3, 1, 2)

    samples = problem.data["samples"]
    x = torch.from_numpy(samples["x"]).to(device).permute(0, 1, 4, 2, 3).contiguous()
    y = torch.from_numpy(samples["y"]).long().to(device)
    clients = [cnn() for _ in range(problem.num_clients)]
    server = [p.detach().clone() for p in cnn().parameters()]
    tracker = [torch.zeros_like(p) for p in server]
    stored = [[torch.zeros_like(p) for p in server] for _ in clients]
    cursors, orders = [0] * len(clients), [None] * len(clients)
    entropy, batch = nn.CrossEntropyLoss(), problem.objective.batch_size

    def next_batch(i):
        length = x.shape[1]
        if cursors[i] % length == 0 or orders[i] is None:
            cursors[i], orders[i] = 0, torch.randperm(length, device=device)
        mine = orders[i][cursors[i] : cursors[i] + batch]
        cursors[i] = min(cursors[i] + batch, length)
        return (augment(x[i][mine]).float() / 255 - mean) / std, y[i][mine]

    def round_(ids):
        total = [torch.zeros_like(p) for p in server]
        for i in ids:
            model = clients[i]
            params = list(model.parameters())
            with torch.no_grad():
                for p, s in zip(params, server, strict=True):
                    p.copy_(s)
            push = [torch.zeros_like(p) for p in server]
            for _ in range(LOCAL_STEPS):
                with torch.no_grad():
                    for p, d in zip(params, push, strict=True):
                        p.sub_(LR * d)
                inputs, labels = next_batch(i)
                model.zero_grad()
                entropy(model(inputs), labels).backward()
                with torch.no_grad():
                    for p, d, g in zip(params, push, stored[i], strict=True):
                        d.add_(p.grad - g)
                        g.copy_(p.grad)
            for t, d in zip(total, push, strict=True):
                t.add_(d)
        for s, t, d in zip(server, tracker, total, strict=True):
            t.add_(d)
            s.sub_(LR * t)

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    for ids in drawn[:3]:
        round_(ids)
    wait()
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < seconds and 3 + done < len(drawn):
        round_(drawn[3 + done])
        wait()
        done += 1
    took = time.perf_counter() - start
    return {
        "rounds": done,
        "rounds_per_second": done / took,
        "steps_per_second": _steps([len(ids) for ids in drawn[3 : 3 + done]]) / took,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, help="of focusfl (10,000; 40 on a CPU)")
    parser.add_argument("--every", type=int, default=250, help="rounds per evaluation")
    parser.add_argument("--seconds", type=float, default=15.0, help="of PyTorch")
    parser.add_argument("--compute-dtype", choices=["bfloat16", "float16"])
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 9, 1.0  # chunks have 8 on a CPU
    on_cpu = jax.default_backend() == "cpu"
    rounds = options.rounds or (40 if on_cpu else 10_000)
    problem, law = (
        load(options.compute_dtype, options.quick),
        ff.participation.Bernoulli(np.array(CHANCES)),
    )
    drawn = [ids.tolist() for ids in schedule(law, 32, max(rounds, 300), SEED)]
    theirs = eager(problem, drawn, options.seconds)
    active = [len(ids) for ids in drawn[:rounds]]
    mine = ours(problem, law, rounds, options.every, active)
    found = {
        "device": jax.devices()[0].device_kind,
        "cores": os.cpu_count(),
        "mean_active": float(np.mean(active)),
        "pytorch": theirs,
        "focusfl": mine,
        "ratio": mine["steps_per_second"] / theirs["steps_per_second"],
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
