"""SCAFFOLD of fluke: its client, its server and its channel."""

import torch
from common import Kept, linear, rows
from fluke.algorithms.scaffold import SCAFFOLDClient, SCAFFOLDServer
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader

torch.set_default_dtype(torch.float64)


class Scaffold(Kept):
    own_steps = True

    def __init__(self, problem):
        super().__init__(problem)
        optimizer = OptimizerConfigurator({"name": "SGD", "lr": problem.lr})
        self.clients = []
        for i in range(problem.num_clients):
            data = FastDataLoader(*rows(problem, i), num_labels=1, batch_size=len(problem.b[i]))
            self.clients.append(
                SCAFFOLDClient(
                    i, data, None, optimizer, torch.nn.MSELoss(),
                    local_epochs=problem.steps[i],
                )
            )  # fmt: skip
        self.server = SCAFFOLDServer(linear(problem), None, self.clients)
        for client in self.clients:
            client.set_channel(self.server.channel)

    def round(self, state, participants, lost):
        """As CentralizedFL.run has it; a lost reply is taken out of the channel."""
        active = [self.clients[i] for i in participants]
        self.server.broadcast_model(active)
        for client in active:
            client.local_update(1)
        mail = self.server.channel["server"]
        mail[:] = [message for message in mail if message.sender not in lost]
        arrived = [client for client in active if client.index not in lost]
        models = self.server.receive_client_models(arrived, state_dict=False)
        self.server.aggregate(arrived, models)
        return state

    def net(self):
        return self.server.model
