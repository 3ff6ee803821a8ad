"""SCAFFOLD of NVFlare: its controller and its helper for clients in PyTorch.

The helper is called as NVFlare's own examples call it: movements are sent as
differences, with the number of steps, by which the controller weighs."""

import copy
from unittest import mock

import numpy as np
import torch
from common import Kept, linear, rows
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AlgorithmConstants
from nvflare.app_common.workflows.base_model_controller import BaseModelController
from nvflare.app_common.workflows.scaffold import Scaffold as Controller
from nvflare.app_opt.pt.scaffold import PTScaffoldHelper

torch.set_default_dtype(torch.float64)


class Client:
    def __init__(self, problem, number):
        self.problem, self.data = problem, rows(problem, number)
        self.steps, self.net = problem.steps[number], linear(problem)
        self.helper = PTScaffoldHelper()
        self.helper.init(self.net)

    def reply(self, asked: FLModel) -> FLModel:
        weights = {k: torch.as_tensor(v) for k, v in asked.params.items()}
        self.net.load_state_dict(weights)
        controls = asked.meta[AlgorithmConstants.SCAFFOLD_CTRL_GLOBAL]
        self.helper.load_global_controls(weights=controls)
        before, terms = copy.deepcopy(self.net), self.helper.get_params()
        optimizer = torch.optim.SGD(self.net.parameters(), self.problem.lr)
        for _ in range(self.steps):
            optimizer.zero_grad()
            inputs, targets = self.data
            torch.nn.functional.mse_loss(self.net(inputs), targets).backward()
            optimizer.step()
            self.helper.model_update(self.net, self.problem.lr, *terms)
        self.helper.terms_update(self.net, self.problem.lr, *terms, before)
        old = before.state_dict()
        moved = {k: (v - old[k]).numpy() for k, v in self.net.state_dict().items()}
        return FLModel(
            params=moved,
            params_type=ParamsType.DIFF,
            current_round=asked.current_round,
            meta={
                AlgorithmConstants.SCAFFOLD_CTRL_DIFF: self.helper.get_delta_controls(),
                FLMetaKey.NUM_STEPS_CURRENT_ROUND: self.steps,
            },
        )


class Server(Controller):
    """Its own; what NVFlare's engine would do is done here: load, choose, send."""

    def __init__(self, problem):
        super().__init__(num_clients=1, num_rounds=1)
        self.problem, self.participants, self.lost = problem, [], []
        self.sites = [Client(problem, i) for i in range(problem.num_clients)]
        self.fl_ctx = FLContext()
        with mock.patch.object(BaseModelController, "initialize"):
            self.initialize(self.fl_ctx)

    def load_model(self):
        return FLModel(params={"weight": np.array(self.problem.x0)[None]})

    def save_model(self, model):
        pass

    def event(self, *_):
        pass

    def sample_clients(self, num_clients=None):
        return self.participants

    def send_model_and_wait(self, targets, data):
        replies = {i: self.sites[i].reply(copy.deepcopy(data)) for i in targets}
        return [replies[i] for i in targets if i not in self.lost]


class Scaffold(Kept):
    own_steps = True

    def __init__(self, problem):
        super().__init__(problem)
        self.server = Server(problem)

    def round(self, state, participants, lost):
        self.server.participants, self.server.lost = participants, lost
        self.server._run_rounds()
        self.server.start_round += 1
        return state

    def model(self, _):
        return np.array(self.server.model.params["weight"][0])
