"""A client of the Flower side: a module of its own, which Ray's workers import."""

from functools import cache

import torch
import torch_models
from common import Task, read
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@cache
def loaded(*arguments: str) -> tuple[Task, torch.nn.Module]:
    """The workload and a model, once per worker."""
    torch.set_num_threads(1)
    task = read(arguments)
    return task, torch_models.model(task)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the client that the message names."""
    config = message.content["config"]
    task, net = loaded(*config["arguments"])
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = map(torch.from_numpy, torch_models.client(task, config["client"]))
    size = int(task.work.get("batch", len(x)))
    epochs = 1 if "batch" in task.work else int(task.work["local_steps"])
    optimizer = torch_models.sgd(task)(net.parameters(), lr=float(task.work["lr"]))
    for _ in range(epochs):
        for some, labels in zip(x.split(size), y.split(size), strict=True):
            optimizer.zero_grad()
            net.loss(some, labels).backward()
            optimizer.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": 1}),  # all weigh the same
        }
    )
    return Message(content=content, reply_to=message)
