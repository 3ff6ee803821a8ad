"""Who has a heart disease? A small network in PyTorch, a table per hospital."""

import torch

from focusfl import Focus
from focusfl.data import heart_disease, standardise
from focusfl.data.hospitals import CENTERS
from focusfl.problems import from_torch, torch_params

ALGORITHM = Focus()
FEATURES = 13


def model():
    """The same to begin with, everywhere."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    return torch.nn.Sequential(*layers)


def table(site: str):
    """One hospital's patients: the UCI data where they are, else a table drawn."""
    try:
        whole = heart_disease()
    except ValueError:  # no such data here
        torch.manual_seed(1 + CENTERS.index(site))
        x = torch.randn(200, FEATURES) + 0.5 * torch.randn(FEATURES)
        return x, (x @ torch.linspace(-1, 1, FEATURES) > 0).float()
    mine = whole.center == whole.names.index(site)
    x = torch.from_numpy(standardise(whole.x)[mine])
    return x.float(), torch.from_numpy(whole.y[mine]).float()


def loss(out, y):
    return torch.nn.functional.binary_cross_entropy_with_logits(out[:, 0], y)


def accuracy(out, y):
    return {"accuracy": float(((out[:, 0] > 0) == y).float().mean())}


def work(context):
    """Train on two thirds of the patients, evaluate on the others."""
    site = context.node_config["site"]
    x, y = table(site)
    held = torch.arange(len(y)) % 3 == 0
    return from_torch(
        model(), loss, (x[~held], y[~held]), batch_size=32, client=CENTERS.index(site),
        eval_data=(x[held], y[held]), metrics=accuracy,
    )  # fmt: skip


PARAMS = torch_params(model())
