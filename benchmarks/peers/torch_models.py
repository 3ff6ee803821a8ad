"""The models of the workloads in PyTorch, for pfl and Flower alike."""

from functools import partial

import numpy as np
import torch
from common import Task, params
from torch import nn
from torch.nn import functional


class Logistic(nn.Module):
    """Labels are +1 and -1; the penalty is the optimizer's weight decay."""

    def __init__(self, dim: int):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(dim))

    def loss(self, x, y):
        return functional.softplus(-y * (x @ self.w)).mean()


class CNN(nn.Sequential):
    """Two convolutions, pooling, two dense layers; images are (batch, 3, 32, 32)."""

    def __init__(self, first: float, second: float):
        layers = [
            nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
            nn.MaxPool2d(2), nn.Dropout(first), nn.Flatten(),
            nn.Linear(14 * 14 * 64, 128), nn.ReLU(), nn.Dropout(second),
            nn.Linear(128, 10),
        ]  # fmt: skip
        super().__init__(*(a for a in layers if getattr(a, "p", 1)))

    def loss(self, x, y):
        return functional.cross_entropy(self(x), y)


def model(task: Task) -> nn.Module:
    """The model, at its starting point."""
    start = params(task.work)
    if task.kind == "logistic":
        return Logistic(len(start["w"]))
    net = CNN(*task.rates)
    with torch.no_grad():
        for name, theirs in _layers(net).items():
            w, b = (torch.from_numpy(start[f"{name}.{k}"]) for k in "wb")
            if name == "hidden":  # channels come first here
                w = w.reshape(14, 14, 64, 128).permute(2, 0, 1, 3).reshape(-1, 128)
            theirs.weight.copy_(w.permute(3, 2, 0, 1) if w.ndim == 4 else w.T)
            theirs.bias.copy_(b)
    return net


def numbers(net: nn.Module) -> dict[str, np.ndarray]:
    """The model in the layout of the workload."""
    if isinstance(net, Logistic):
        return {"w": net.w.detach().cpu().numpy()}
    found = {}
    for name, layer in _layers(net).items():
        w = layer.weight.detach().cpu()
        w = w.permute(2, 3, 1, 0) if w.ndim == 4 else w.T
        if name == "hidden":
            w = w.reshape(64, 14, 14, 128).permute(1, 2, 0, 3).reshape(-1, 128)
        found |= {
            f"{name}.w": w.numpy(),
            f"{name}.b": layer.bias.detach().cpu().numpy(),
        }
    return found


def _layers(net: nn.Module) -> dict[str, nn.Module]:
    kept = [a for a in net if hasattr(a, "weight")]
    return dict(zip(("conv1", "conv2", "hidden", "out"), kept, strict=True))


def client(task: Task, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Client i's samples and labels, as a model's loss takes them."""
    work = task.work
    if task.kind == "logistic":
        real = work["b"][i] != 0  # other rows are padding
        return work["A"][i][real], work["b"][i][real]
    x = (work["x"][i].astype(np.float32) - work["mean"]) / work["std"]
    x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    return x, work["y"][i].astype(np.int64)


def sgd(task: Task):
    """Make an optimizer of parameters and a step size."""
    decay = float(task.work["penalty"]) if task.kind == "logistic" else 0.0
    return partial(torch.optim.SGD, weight_decay=decay, fused=True)
