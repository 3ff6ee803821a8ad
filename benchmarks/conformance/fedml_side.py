"""SCAFFOLD of FedML's single-process simulation: its trainer, client and aggregator."""

import copy
from queue import Queue
from threading import Thread
from types import SimpleNamespace
from unittest import mock

import torch
from common import Kept, Loader, Logits, labelled
from fedml import mlops
from fedml.simulation.sp.scaffold.scaffold_trainer import ScaffoldTrainer

torch.set_default_dtype(torch.float64)
SAID = (  # to FedML's servers
    "event",
    "log_round_info",
    "log_training_status",
    "log_aggregation_status",
)


class Trainer(ScaffoldTrainer):
    """Its own; when it draws who takes part, it waits to be told. Nothing is evaluated.

    Its loop over rounds is one method, which runs in a thread and is held there."""

    def begin(self):
        self.asked, self.told = Queue(), Queue()
        Thread(target=self.run, daemon=True).start()
        self.wait()

    def run(self):
        try:
            with mock.patch.multiple(mlops, **dict.fromkeys(SAID, mock.DEFAULT)):
                self.train()
        except Exception as error:
            self.asked.put(error)

    def wait(self):
        if error := self.asked.get():
            raise error

    def _client_sampling(self, *_):
        self.asked.put(None)
        return self.told.get()

    def _local_test_on_all_clients(self, round_idx):
        pass


class Scaffold(Kept):
    def __init__(self, problem):
        super().__init__(problem)
        many = problem.num_clients
        args = SimpleNamespace(
            federated_optimizer="SCAFFOLD", initialize_all_clients=True,
            client_num_in_total=many, client_num_per_round=many, comm_round=10**9,
            client_optimizer="sgd", learning_rate=problem.lr, server_lr=1.0,
            epochs=problem.local_steps, batch_size=problem.dim, enable_wandb=False,
            frequency_of_the_test=10**9, dataset="", ml_engine="torch",
        )  # fmt: skip
        data = {i: Loader(labelled(problem, i)) for i in range(many)}
        numbers = dict.fromkeys(range(many), problem.dim)
        dataset = [many * problem.dim, 0, None, None, numbers, data, data, 2]
        device = torch.device("cpu")
        self.trainer = Trainer(dataset, Logits(problem), device, args)
        self.trainer.begin()

    def round(self, state, participants, lost):
        """One of its rounds with those whose reply arrives; the others train before,
        and nobody hears of it."""
        trainer, own = self.trainer, self.trainer.model_trainer
        if lost:
            before = copy.deepcopy(own.get_model_params())
            for i in lost:
                controls = trainer.c_model_global.state_dict()
                trainer.client_list[i].train(copy.deepcopy(before), controls)
            own.set_model_params(before)
        trainer.told.put([i for i in participants if i not in lost])
        trainer.wait()
        return state

    def net(self):
        return self.trainer.model_trainer.model
