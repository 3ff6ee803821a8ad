"""A PyTorch model as a client's work."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl.engines.flower.client import Work
from focusfl.engines.flower.evaluation import EXAMPLES

if TYPE_CHECKING:
    import torch

Loss = Callable[[Any, Any], Any]  # (outputs, targets) -> mean loss
Metrics = Callable[[Any, Any], Mapping[str, float]]  # (outputs, targets) -> numbers


def params(module: "torch.nn.Module") -> dict[str, np.ndarray]:
    """The parameters of a module, as the model that travels."""
    if any(True for _ in module.buffers()):
        raise ValueError(
            "a model with buffers, as of batch normalisation, has state that does not "
            "travel; use layers without, such as GroupNorm."
        )
    return {
        name: leaf.detach().cpu().numpy().copy()
        for name, leaf in module.named_parameters()
    }


def from_torch(
    module: "torch.nn.Module",
    loss: Loss,
    inputs: "torch.Tensor",
    targets: "torch.Tensor",
    *,
    batch_size: int | None = None,
    test: "tuple[torch.Tensor, torch.Tensor] | None" = None,
    metrics: Metrics | None = None,
    seed: int = 0,
    client: int = 0,
) -> Work:
    """Make a site's work of a module, a loss and its data.

    Gradients are of batches, without replacement in a new order each epoch, or of all
    data. Evaluation is on `test`, or else on the data themselves.

    Args:
        module: the model, without buffers.
        loss: (outputs, targets) -> the mean over a batch, one number, as those of
            torch.nn by default.
        inputs: this site's samples, along the first axis.
        targets: one for each.
        batch_size: samples of a gradient; all if None.
        test: (inputs, targets) to evaluate on.
        metrics: (outputs, targets) -> numbers, beside the loss.
        seed: of the order of batches.
        client: this site's number, so that sites walk in orders of their own.

    Raises:
        ValueError: If the module has buffers.
    """
    import torch

    from focusfl.data.streams import epochs

    params(module)  # checks
    for name, given in {"inputs": inputs, "targets": targets}.items():
        if not torch.isfinite(given).all():
            raise ValueError(f"{name} must be finite; it holds NaN or infinity.")
    module.eval()
    with torch.no_grad():
        found = loss(module(inputs[:2]), targets[:2])
    if np.shape(found) != ():
        raise ValueError(
            "loss must give one number, the mean over a batch; got shape "
            f'{tuple(np.shape(found))}. Leave reduction="none" out.'
        )

    def load(x: Mapping[str, np.ndarray]) -> None:
        with torch.no_grad():
            for name, leaf in module.named_parameters():
                leaf.copy_(torch.from_numpy(x[name]))

    def batch_of(number: int) -> Any:
        if batch_size is None:
            return slice(None)
        return torch.from_numpy(epochs(number, len(inputs), batch_size, seed, client))

    def grad_fn(
        x: Mapping[str, np.ndarray], batch: Any, training: bool = True
    ) -> dict[str, np.ndarray]:
        load(x)
        module.train(training)
        module.zero_grad()
        loss(module(inputs[batch]), targets[batch]).backward()
        return {
            name: np.zeros_like(x[name])
            if leaf.grad is None
            else leaf.grad.cpu().numpy()
            for name, leaf in module.named_parameters()
        }

    def evaluate(x: Mapping[str, np.ndarray]) -> dict[str, float]:
        load(x)
        module.eval()
        shown, wanted = test or (inputs, targets)
        with torch.no_grad():
            out = module(shown)
            found = {"loss": float(loss(out, wanted)), EXAMPLES: float(len(wanted))}
            return found | dict(metrics(out, wanted) if metrics else {})

    def gradient(x: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return grad_fn(x, slice(None), training=False)  # nothing is dropped at random

    return Work(grad_fn, batch_of, evaluate, gradient)
