"""SCAFFOLD of pfl, options I and II: its algorithm, model and simulated backend."""

import asyncio
import copy
import os

os.environ["PFL_PYTORCH_DEVICE"] = "cpu"

import torch
from common import Kept, linear, rows
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel


class Net(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def loss(self, inputs, targets, eval=False):
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def metrics(self, *_, **__):
        return {}


class Scaffold(Kept):
    option = 2

    def __init__(self, problem):
        super().__init__(problem)
        net = Net(linear(problem))
        central = torch.optim.SGD(net.parameters(), 1.0)
        self.pfl = PyTorchModel(net, torch.optim.SGD, central)
        self.algorithm, self.number = SCAFFOLD(), 0
        self.storage, self.coming = InMemoryUserStateStorage(), []
        self.users = FederatedDataset(
            lambda i: Dataset(rows(problem, i), user_id=str(i)),
            lambda: self.coming.pop(0),
        )
        self.backend = SimulatedBackend(self.users, self.users, postprocessors=[WeightByUser()])

    def round(self, state, participants, lost):
        """As an iteration of its `run`; lost replies are trained and not gathered."""
        problem = self.problem
        train = NNTrainHyperParams(
            local_num_epochs=problem.local_steps, local_learning_rate=problem.lr,
            local_batch_size=None,
        )  # fmt: skip

        def context(size):
            params = SCAFFOLDParams(
                central_num_iterations=10**9, evaluation_frequency=10**9,
                train_cohort_size=size, val_cohort_size=None,
                population=problem.num_clients,
                use_gradient_as_control_variate=self.option == 1,
                user_state_storage=self.storage,
            )  # fmt: skip
            # Every other iteration is not the first, on which it begins anew.
            found, _, _ = self.algorithm.get_next_central_contexts(
                self.pfl, min(self.number, 1), params, train
            )
            return found[0]

        arrived = [i for i in participants if i not in lost]
        here = context(len(arrived))
        for i in lost:
            data = self.users.make_dataset_fn(i)
            self.algorithm.simulate_one_user(self.pfl, data, here)
        self.coming = list(arrived)
        statistics, metrics = asyncio.run(
            self.backend.async_gather_results(
                model=self.pfl, training_algorithm=self.algorithm, central_context=here
            )
        )
        self.algorithm.process_aggregated_statistics(here, metrics, self.pfl, statistics)
        self.number += 1
        return state

    def net(self):
        return self.pfl.pytorch_model.layer


class ScaffoldI(Scaffold):
    option = 1


class Copies(InMemoryUserStateStorage):
    """Its storage in memory, of copies instead of references."""

    def save_state(self, state, user_id, key=None):
        super().save_state(copy.deepcopy(state), user_id, key)


class ScaffoldICopies(ScaffoldI):
    def __init__(self, problem):
        super().__init__(problem)
        self.storage = Copies()
