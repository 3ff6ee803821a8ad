"""SCAFFOLD of PFLlib: its server, its clients and its optimizer."""

import os
import sys
from types import SimpleNamespace

import torch
from common import Kept, Loader, Logits, labelled

sys.path.insert(0, os.environ["CONFORMANCE_CODE"])

from flcore.clients.clientscaffold import clientSCAFFOLD
from flcore.servers import serverscaffold

torch.set_default_dtype(torch.float64)


class Client(clientSCAFFOLD):
    """Its own, with data that are here."""

    def load_train_data(self, batch_size=None):
        return self.loader


class Server(serverscaffold.SCAFFOLD):
    """Its own, told who its clients are."""

    def set_clients(self, _):
        for i in range(self.num_clients):
            few = {"train_slow": False, "send_slow": False}
            client = Client(self.args, i, self.args.problem.dim, 0, **few)
            client.loader = Loader(labelled(self.args.problem, i))
            self.clients.append(client)


class Scaffold(Kept):
    def __init__(self, problem):
        super().__init__(problem)
        asked = dict.fromkeys(
            ["dataset", "num_classes", "global_rounds", "few_shot", "algorithm",
             "time_select", "goal", "save_folder_name", "top_cnt", "auto_break",
             "eval_gap", "dlg_eval", "dlg_gap", "batch_num_per_client",
             "fine_tuning_epoch_new", "learning_rate_decay", "random_join_ratio"]
        )  # fmt: skip
        args = SimpleNamespace(
            **asked, problem=problem, device="cpu", model=Logits(problem),
            num_clients=problem.num_clients, join_ratio=1.0, batch_size=problem.dim,
            local_learning_rate=problem.lr, local_epochs=problem.local_steps,
            client_drop_rate=0.0, train_slow_rate=0.0, send_slow_rate=0.0,
            time_threthold=1e9, num_new_clients=0, server_learning_rate=1.0,
            learning_rate_decay_gamma=1.0,
        )  # fmt: skip
        self.server = Server(args, 0)

    def round(self, state, participants, lost):
        """As its `train`. How many join is what it divides by: those that were asked.
        Who replies it draws by `client_drop_rate`; here that is decided."""
        server = self.server
        server.selected_clients = [server.clients[i] for i in participants]
        server.num_join_clients = server.current_num_join_clients = len(participants)
        server.client_drop_rate = len(lost) / len(participants)
        server.send_models()
        for client in server.selected_clients:
            client.train()
        arrived = [c for c in server.selected_clients if c.id not in lost]
        serverscaffold.random = SimpleNamespace(sample=lambda *_: arrived)
        server.receive_models()
        server.aggregate_parameters()
        return state

    def net(self):
        return self.server.global_model
