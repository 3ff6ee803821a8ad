"""SCAFFOLD of FL-bench: its client, and its server without what builds a simulation."""

import os
import sys
from collections import OrderedDict
from copy import deepcopy
from functools import partial

import torch
from common import Kept, Logits, labelled
from omegaconf import OmegaConf

sys.path.insert(0, os.environ["CONFORMANCE_CODE"])

from src.client.scaffold import SCAFFOLDClient
from src.server.scaffold import SCAFFOLDServer

torch.set_default_dtype(torch.float64)


class Data(torch.utils.data.Dataset):
    """All clients' rows, one after the other."""

    def __init__(self, problem):
        both = [labelled(problem, i) for i in range(problem.num_clients)]
        self.inputs, self.targets = (torch.cat(part) for part in zip(*both, strict=True))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, k):
        return self.inputs[k], self.targets[k]

    def train(self):
        pass

    eval = train


class Server(SCAFFOLDServer):
    """Its own package, aggregate and controls; the rest of FedAvgServer is not made."""

    def __init__(self, problem, args):
        many, net = range(problem.num_clients), Logits(problem)
        self.args, self.client_num, self.train_clients = args, len(many), many
        self.public_model_params = OrderedDict(
            (name, one.detach().clone()) for name, one in net.named_parameters()
        )
        self.clients_personal_model_params = {i: {} for i in many}
        self.client_local_epoches = [problem.local_steps] * len(many)
        self.client_optimizer_states = {i: {} for i in many}
        self.client_lr_scheduler_states = {i: {} for i in many}
        # As its own __init__ ends.
        self.c_global = [torch.zeros_like(p) for p in self.public_model_params.values()]
        self.c_local = [deepcopy(self.c_global) for _ in self.train_clients]


class Scaffold(Kept):
    def __init__(self, problem):
        super().__init__(problem)
        off = {"train": False, "val": False, "test": False}
        args = OmegaConf.create(
            {
                "common": {
                    "batch_size": problem.dim, "local_epoch": problem.local_steps,
                    "buffers": "global", "reset_optimizer_on_global_epoch": True,
                    "client_side_evaluation": False, "test": {"client": off},
                },
                "optimizer": {"lr": problem.lr},
                "scaffold": {"global_lr": 1.0},
            }
        )  # fmt: skip
        own = [
            {"train": list(range(i * problem.dim, (i + 1) * problem.dim)),
             "val": [], "test": []}
            for i in range(problem.num_clients)
        ]  # fmt: skip
        self.server = Server(problem, args)
        # One worker that plays all clients, as its serial trainer has it.
        self.worker = SCAFFOLDClient(
            model=Logits(problem), args=args, dataset=Data(problem), data_indices=own,
            optimizer_cls=partial(torch.optim.SGD, lr=problem.lr),
            lr_scheduler_cls=None, device=torch.device("cpu"), return_diff=True,
        )  # fmt: skip

    def round(self, state, participants, lost):
        packs = OrderedDict()
        for i in participants:
            pack = self.worker.train(self.server.package(i))
            if i not in lost:
                packs[i] = pack
        self.server.aggregate_client_updates(packs)
        return state

    def model(self, _):
        return self.server.public_model_params["weight"].numpy()[0].copy()
