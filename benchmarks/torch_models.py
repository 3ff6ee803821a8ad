"""A small PyTorch network: a round in focusfl against a loop of eager PyTorch.

Both compute FedAvg with everybody: the same clients, batches of the same size, as many
local steps, on one CPU. The ratio is the time of eager PyTorch over that of focusfl.

    python benchmarks/torch_models.py [--clients 16]
"""

import argparse
import copy
import time

import torch
from torch import nn

import focusfl as ff

STEPS, BATCH, ROUNDS = 5, 16, 10
LOSS = nn.CrossEntropyLoss()


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 32), nn.ReLU(), nn.Linear(32, 10))


def gru():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.head = nn.GRU(48, 32, batch_first=True), nn.Linear(32, 10)

        def forward(self, x):
            return self.head(self.cells(x.flatten(1).unflatten(1, (16, 48)))[0][:, -1])

    return Last()


def samples(clients):
    torch.manual_seed(0)
    size = STEPS * BATCH
    return [(torch.randn(size, 3, 16, 16), torch.randint(0, 10, (size,))) for _ in range(clients)]


def of_eager(module, data):
    """Seconds of a round: every client from the server's model, then the mean."""
    server, own = copy.deepcopy(module), copy.deepcopy(module)
    began = time.perf_counter()
    for _ in range(ROUNDS):
        total = [torch.zeros_like(p) for p in server.parameters()]
        for x, y in data:
            own.load_state_dict(server.state_dict())
            optimizer = torch.optim.SGD(own.parameters(), lr=0.01)
            for step in range(STEPS):
                batch = slice(step * BATCH, (step + 1) * BATCH)
                optimizer.zero_grad()
                LOSS(own(x[batch]), y[batch]).backward()
                optimizer.step()
            for sum_of, p in zip(total, own.parameters(), strict=True):
                sum_of += p.detach()
        with torch.no_grad():
            for p, sum_of in zip(server.parameters(), total, strict=True):
                p.copy_(sum_of / len(data))
    return (time.perf_counter() - began) / ROUNDS


def of_focusfl(module, data):
    """Seconds of a round: the time of more rounds less that of few, compiled before."""
    held = tuple(part[:BATCH] for part in data[0])
    problem = ff.problems.from_torch(
        module, LOSS, data, batch_size=BATCH, eval_data=held, stream="fixed_order"
    )

    def run(rounds):
        began = time.perf_counter()
        ff.simulate(
            ff.FedAvg(), problem, ff.participation.Full(), rounds=rounds, lr=0.01,
            local_steps=STEPS, eval_every=rounds,
        )  # fmt: skip
        return time.perf_counter() - began

    few, many = ROUNDS, 3 * ROUNDS
    run(few), run(many)
    return min(run(many) - run(few) for _ in range(3)) / (many - few)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    clients = 2 if options.quick else options.clients
    torch.set_num_threads(1)
    data = samples(clients)
    print(f"{clients} clients, {STEPS} steps of {BATCH} samples, ms per round")
    for make in (mlp,) if options.quick else (mlp, gru, cnn):
        torch.manual_seed(0)
        module = make()
        eager = min(of_eager(module, data) for _ in range(3))
        ours = of_focusfl(module, data)
        print(
            f"{make.__name__:4} PyTorch {1e3 * eager:8.2f}  focusfl {1e3 * ours:8.2f}  "
            f"ratio {eager / ours:.2f}"
        )


if __name__ == "__main__":
    main()
