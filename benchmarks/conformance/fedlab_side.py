"""SCAFFOLD of FedLab: its server handler and its trainer of all clients."""

import torch
from common import Kept, Loader, Logits, labelled
from fedlab.contrib.algorithm.scaffold import (
    ScaffoldSerialClientTrainer,
    ScaffoldServerHandler,
)

torch.set_default_dtype(torch.float64)


class Data:
    def __init__(self, problem):
        self.problem = problem

    def get_dataloader(self, client, batch_size):
        return Loader(labelled(self.problem, client))


class Scaffold(Kept):
    own_steps = True

    def __init__(self, problem):
        super().__init__(problem)
        many = problem.num_clients
        self.server = ScaffoldServerHandler(Logits(problem), 10**9, 1.0)
        self.server.num_clients = many
        self.server.setup_optim(1.0)
        self.trainer = ScaffoldSerialClientTrainer(Logits(problem), many)
        self.trainer.setup_dataset(Data(problem))
        self.trainer.setup_optim(problem.local_steps, problem.dim, problem.lr)

    def round(self, state, participants, lost):
        """As its standalone pipeline; the server updates once all that arrive are."""
        down = self.server.downlink_package
        for i in participants:
            self.trainer.epochs = self.problem.steps[i]
            self.trainer.local_process(down, [i])
        packs = self.trainer.uplink_package
        arrived = [pack for i, pack in zip(participants, packs, strict=True) if i not in lost]
        self.server.global_update(arrived)
        return state

    def net(self):
        return self.server._model
