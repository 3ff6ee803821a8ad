"""What the adapters share: the problem as a tiny torch model, and its data.

Read in the environments of other packages: numpy and torch are all that is imported.
"""

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
if not torch.cuda.is_available():
    # torchvision's wheel is for CUDA; with torch for CPUs its import needs the
    # names of two operators that nothing here calls.
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor boxes, Tensor scores, float least) -> Tensor")


class Kept:
    """An implementation that keeps its state itself, as frameworks do."""

    own_steps = False

    def __init__(self, problem):
        self.problem = problem

    def start(self):
        return self

    def model(self, _):
        return np.array(self.net().weight.detach().numpy()).ravel()


def linear(problem) -> nn.Linear:
    """x as the weight of a layer without bias, at x0; its loss is MSE."""
    net = nn.Linear(problem.dim, 1, bias=False)
    net.weight.data = torch.tensor(problem.x0, dtype=net.weight.dtype)[None]
    return net


def rows(problem, client) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's data for `linear`: inputs, and targets of one column."""
    dtype = torch.get_default_dtype()
    A, b = problem.A[client], problem.b[client][:, None]
    return torch.tensor(A, dtype=dtype), torch.tensor(b, dtype=dtype)


class Logits(nn.Module):
    """The same for a framework whose loss is the cross entropy, and cannot be chosen.

    Logits are 0 and log(exp(q) - 1), with q = (a x - b)² + 1 of a row (a, b): the
    cross entropy of class 0 is q itself, so that its mean has the gradient of MSE.
    """

    def __init__(self, problem):
        super().__init__()
        self.weight = linear(problem).weight

    def forward(self, rows):
        q = (rows[:, :-1] @ self.weight[0] - rows[:, -1]) ** 2 + 1
        return torch.stack([0 * q, q + torch.log(-torch.expm1(-q))], dim=1)


def labelled(problem, client) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's data for `Logits`: rows (a, b), and class 0 for all of them."""
    A, b = rows(problem, client)
    return torch.cat([A, b], dim=1), torch.zeros(len(A), dtype=torch.long)


class Loader(list):
    """All data in one batch, again and again: a list that looks like a DataLoader."""

    def __init__(self, data):
        super().__init__([data])
        self.dataset, self.batch_size = list(zip(*data, strict=True)), len(data[0])
