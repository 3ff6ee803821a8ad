"""SCAFFOLD of flgo: its client and server; what a round is, its `iterate` says."""

from types import SimpleNamespace

import torch
from common import Kept, Loader, linear, rows
from flgo.algorithm.scaffold import Client, Server
from flgo.utils.fmodule import FModule

torch.set_default_dtype(torch.float64)
DIM = 4


class Net(FModule):
    def __init__(self):  # flgo makes zeros of a model by calling its class
        super().__init__()
        self.layer = torch.nn.Linear(DIM, 1, bias=False)

    def forward(self, inputs):
        return self.layer(inputs)


class Calculator:
    """What a task of flgo brings: data, loss and optimizer."""

    def __init__(self, device, optimizer_name):
        self.device, self.optimizer_name = device, optimizer_name

    def get_dataloader(self, data, **_):
        return data

    def get_optimizer(self, model, lr, weight_decay, momentum):
        return torch.optim.SGD(model.parameters(), lr, momentum, 0.0, weight_decay)

    def compute_loss(self, model, data):
        return {"loss": torch.nn.functional.mse_loss(model(data[0]), data[1])}


OPTION = dict.fromkeys(
    ["task", "eval_interval", "num_parallels", "num_rounds", "num_epochs",
     "proportion", "learning_rate_decay", "lr_scheduler", "sample", "aggregate",
     "batch_size", "test_batch_size", "num_workers", "pin_memory"]
) | {
    "server_with_cpu": False, "optimizer": "SGD", "momentum": 0.0,
    "weight_decay": 0.0, "clip_grad": 0.0,
}  # fmt: skip
CPU = SimpleNamespace(apply_for_device=lambda: torch.device("cpu"))


class Scaffold(Kept):
    own_steps = True

    def __init__(self, problem):
        super().__init__(problem)
        self.clients = []
        for i in range(problem.num_clients):
            client = self._made(Client, problem.steps[i])
            client.train_data = Loader(rows(problem, i))
            self.clients.append(client)
        server = self.server = self._made(Server, problem.local_steps)
        server.clients, server.num_clients = self.clients, problem.num_clients
        server.model = Net()
        server.model.layer = linear(problem)
        server.initialize()
        server.eta = 1.0
        for client in self.clients:
            client.initialize()

    def _made(self, kind, steps):
        own = {"gv": CPU, "TaskCalculator": Calculator, "init_algo_para": print}
        option = OPTION | {"learning_rate": self.problem.lr, "num_steps": steps}
        return type(kind.__name__, (kind,), own)(option)

    def round(self, state, participants, lost):
        """Its own, with who takes part and whose reply arrives decided here."""
        replies = {"dy": [], "dc": []}

        def communicate(selected):
            for i in selected:
                reply = self.clients[i].reply(self.server.pack(i))
                for name in replies:
                    replies[name] += [reply[name]] * (i not in lost)
            return replies

        self.server.sample = lambda: participants
        self.server.communicate = communicate
        self.server.iterate()
        return state

    def net(self):
        return self.server.model.layer
