"""FedAvg in Flower's simulation engine: Ray, one worker per core."""

import logging
import os
import sys
import time

from common import read, report


def main():
    task = read()
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["RAY_DEDUP_LOGS"] = "0"
    import torch_models
    from flower_client import app
    from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    net, marks = torch_models.model(task), []
    server = ServerApp()

    class Scheduled(FedAvg):
        """Name the clients of a round instead of drawing them, as on every side."""

        def configure_train(self, server_round, arrays, config, grid):
            nodes, who = list(grid.get_node_ids()), task.cohorts[server_round - 1]
            for node, client in zip(nodes, who.tolist(), strict=False):
                named = ConfigRecord({"client": client, "arguments": sys.argv[1:]})
                content = RecordDict({"arrays": arrays, "config": named})
                yield Message(content, node, MessageType.TRAIN)

    @server.main()
    def serve(grid, context):
        while len(list(grid.get_node_ids())) < task.num_clients:
            time.sleep(0.1)
        result = Scheduled(fraction_evaluate=0.0).start(
            grid, ArrayRecord(net.state_dict()), num_rounds=len(task.cohorts),
            evaluate_fn=lambda *_: marks.append(time.time()),
        )  # fmt: skip
        net.load_state_dict(result.arrays.to_torch_state_dict())

    run_simulation(
        server, app, task.num_clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": task.threads, "log_to_driver": False},
        },
    )  # fmt: skip
    found = torch_models.numbers(net)  # mark 0 is before the first round
    packages = ["flwr", "ray", "torch", "numpy"]
    report(task, task.rounds, marks[task.warm], marks[-1], found, packages)


if __name__ == "__main__":
    main()
