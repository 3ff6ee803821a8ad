"""FedAvg in pfl, as its own CIFAR-10 benchmark sets it up, without privacy.

Started by torchrun, processes share the clients of a round, and the threads: so does
pfl use several workers. Otherwise one process has all threads.
"""

import os
import time

from common import read, report


def main():
    task = read()
    processes = int(os.environ.get("WORLD_SIZE", 1))
    os.environ["PFL_PYTORCH_DEVICE"] = {"gpu": "cuda"}.get(task.device, task.device)
    import torch

    torch.set_num_threads(max(1, task.threads // processes))
    torch.manual_seed(int(os.environ.get("RANK", 0)))
    import torch_models
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByUser
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.internal.ops.pytorch_ops import get_default_device
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class LatencyModel(TrainingProcessCallback):
        marks: list[float] = []

        def after_central_iteration(self, metrics, model, *, central_iteration):
            if task.device == "gpu":
                torch.cuda.synchronize()
            self.marks.append(time.time())
            return False, Metrics()

    device = get_default_device()
    data = [
        [torch.from_numpy(a).to(device) for a in torch_models.client(task, i)]
        for i in range(task.num_clients)
    ]
    order = iter(task.cohorts.ravel().tolist())
    users = FederatedDataset(lambda i: Dataset(data[i], user_id=i), lambda: next(order))
    net = torch_models.model(task)
    net.metrics = lambda *_: {}  # nothing is evaluated
    model = PyTorchModel(net, torch_models.sgd(task), torch.optim.SGD(net.parameters(), 1.0))
    batch = task.work.get("batch")
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=len(task.cohorts),
            evaluation_frequency=10**9,
            train_cohort_size=task.cohorts.shape[1],
            val_cohort_size=None,
        ),
        SimulatedBackend(users, users, postprocessors=[WeightByUser()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=int(task.work["local_steps"]) if batch is None else 1,
            local_learning_rate=float(task.work["lr"]),
            local_batch_size=None if batch is None else int(batch),
        ),
        callbacks=[LatencyModel()],
        send_metrics_to_platform=False,
    )
    if int(os.environ.get("RANK", 0)) == 0:
        start, end = LatencyModel.marks[task.warm - 1], LatencyModel.marks[-1]
        found = torch_models.numbers(net)
        report(task, task.rounds, start, end, found, ["pfl", "torch", "numpy"])
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
