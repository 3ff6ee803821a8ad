"""SCAFFOLD of Flower's baseline niid_bench: its client, server and strategy."""

import os
import shutil
import sys
import tempfile

import flwr
import torch
from common import Kept, Loader, Logits, labelled
from flwr.common import (
    Code,
    FitIns,
    FitRes,
    GetParametersRes,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server.client_proxy import ClientProxy

sys.path.insert(0, os.environ["CONFORMANCE_CODE"])

from niid_bench.client_scaffold import FlowerClientScaffold
from niid_bench.server_scaffold import ScaffoldServer
from niid_bench.strategy import ScaffoldStrategy

torch.set_default_dtype(torch.float64)


class Proxy(ClientProxy):
    """Carries a request to a client that is here, and its reply if that arrives."""

    def __init__(self, client, lost=False):
        super().__init__(str(client.cid))
        self.client, self.lost = client, lost

    def fit(self, ins, timeout):
        sent = parameters_to_ndarrays(ins.parameters)
        arrays, number, metrics = self.client.fit(sent, ins.config)
        if self.lost:
            raise ConnectionError("the reply is lost")
        reply = ndarrays_to_parameters(arrays)
        return FitRes(Status(Code.OK, ""), reply, number, metrics)

    def get_parameters(self, ins, timeout):
        arrays = self.client.get_parameters(ins.config)
        return GetParametersRes(Status(Code.OK, ""), ndarrays_to_parameters(arrays))

    def get_properties(self, *_):
        raise NotImplementedError

    evaluate = reconnect = get_properties


class Strategy(ScaffoldStrategy):
    """Its own, told who takes part."""

    chosen: list[Proxy]

    def configure_fit(self, server_round, parameters, client_manager):
        return [(proxy, FitIns(parameters, {})) for proxy in self.chosen]


class Manager(flwr.server.SimpleClientManager):
    """Knows how many clients there are."""

    def __init__(self, clients):
        super().__init__()
        self.clients = {str(client.cid): Proxy(client) for client in clients}

    def sample(self, num_clients, *_):
        return list(self.clients.values())[:num_clients]


class Scaffold(Kept):
    own_steps = True

    def __init__(self, problem):
        super().__init__(problem)
        self.folder = tempfile.mkdtemp()  # where its clients keep their controls
        self.clients = [
            FlowerClientScaffold(
                i, Logits(problem), Loader(labelled(problem, i)), None,
                torch.device("cpu"), problem.steps[i], problem.lr, 0.0, 0.0,
                save_dir=self.folder,
            )
            for i in range(problem.num_clients)
        ]  # fmt: skip
        self.strategy = Strategy()
        model = {"_target_": "torch.nn.Identity"}
        self.server = ScaffoldServer(self.strategy, model, Manager(self.clients))
        self.server.parameters = self.server._get_initial_parameters(None)

    def __del__(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def round(self, state, participants, lost):
        self.strategy.chosen = [Proxy(self.clients[i], i in lost) for i in participants]
        self.server.parameters, *_ = self.server.fit_round(1, None)
        return state

    def model(self, _):
        return parameters_to_ndarrays(self.server.parameters)[0][0]
