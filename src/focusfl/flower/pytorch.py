"""A PyTorch model as a client's work. No jax: a site computes in PyTorch itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl.flower.client import Work
from focusfl.flower.evaluation import EXAMPLES

if TYPE_CHECKING:
    import torch

Samples = tuple[Any, Any]  # inputs and targets: tensors, or tuples of them
Loss = Callable[[Any, Any], Any]  # (outputs, targets) -> mean, or the loss of each
Metrics = Callable[[Any, Any], Mapping[str, Any]]  # (outputs, targets) -> numbers


def params(module: "torch.nn.Module", *, freeze_statistics: bool = False) -> dict[str, np.ndarray]:
    """The parameters of a module, as the model that travels."""
    from focusfl.problems.torch.module import check_module, trained

    check_module(module, freeze_statistics)
    return {name: leaf.detach().cpu().numpy().copy() for name, leaf in trained(module).items()}


def from_torch(
    module: "torch.nn.Module",
    loss: Loss,
    client_data: Any,
    *,
    batch_size: int | None = None,
    eval_data: Any = None,
    metrics: Metrics | None = None,
    freeze_statistics: bool = False,
    seed: int = 0,
    client: int = 0,
) -> Work:
    """Make a site's work of a module, a loss and its data.

    All is as in `focusfl.problems.from_torch`, which simulates it, but that a site has
    its own data alone. Gradients are of batches, without replacement in a new order
    each epoch, or of all data. Evaluation is on `eval_data`, or else on the data
    themselves.

    Args:
        module: the model to start from.
        loss: (outputs, targets) -> the mean over a batch, as those of torch.nn by
            default, or the loss of each sample.
        client_data: this site's (inputs, targets), with samples along the first axis,
            or a dict of x and y; or a list of everybody's, of which `client` says whose
            this is.
        batch_size: samples of a gradient; all if None, or if there are fewer.
        eval_data: samples to evaluate on, likewise.
        metrics: (outputs, targets) -> numbers by name, beside the loss.
        freeze_statistics: let batch normalisation use the running statistics it has.
        seed: of the order of batches.
        client: this site's number, so that sites walk in orders of their own.

    Raises:
        ValueError: If the module has state that does not travel, or samples do not fit.
    """
    from focusfl.data.streams import epochs
    from focusfl.problems.given import check_called
    from focusfl.problems.torch.module import trained

    params(module, freeze_statistics=freeze_statistics)  # checks
    check_called("loss", loss)
    samples = client_data[client] if isinstance(client_data, list) else client_data
    own = _tensors("client_data", samples, module)
    eval_samples = own if eval_data is None else _tensors("eval_data", eval_data, module)
    here = _Here(module, loss, trained(module))
    here.check(own)

    def batch_of(number: int) -> Any:
        if batch_size is None:
            return slice(None)
        return epochs(number, _length(own), batch_size, seed, client)

    def evaluate(x: Mapping[str, np.ndarray]) -> dict[str, float]:
        return here.evaluate(x, eval_samples, metrics)

    def grad_fn(x: Mapping[str, np.ndarray], batch: Any) -> dict[str, np.ndarray]:
        return here.grad(x, _picked(own, batch), training=True)

    def gradient(x: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return here.grad(x, own, training=False)  # nothing is dropped at random

    return Work(grad_fn, batch_of, evaluate, gradient)


@dataclass(frozen=True)
class _Here:
    """A module and its loss, with the parameters that come."""

    module: Any
    loss: Loss
    leaves: Mapping[str, Any]  # to train, by name

    def check(self, samples: Samples) -> None:
        """Raise unless the loss of two samples is a mean, or one number of each."""
        import torch

        two = _picked(samples, slice(2))
        with torch.no_grad():
            shape = tuple(np.shape(self._loss(two, training=False)[1]))
        if shape not in ((), (_length(two),)):
            raise ValueError(
                "loss must give one number, the mean over a batch, or the loss of each "
                f"sample; got shape {shape} for {_length(two)}."
            )

    def grad(
        self, x: Mapping[str, np.ndarray], samples: Samples, training: bool
    ) -> dict[str, np.ndarray]:
        self._load(x)
        self.module.zero_grad()
        self._loss(samples, training)[1].mean().backward()
        return {
            name: np.zeros_like(x[name]) if leaf.grad is None else leaf.grad.cpu().numpy()
            for name, leaf in self.leaves.items()
        }

    def evaluate(
        self, x: Mapping[str, np.ndarray], samples: Samples, metrics: Metrics | None
    ) -> dict[str, float]:
        import torch

        self._load(x)
        with torch.no_grad():
            outputs, loss = self._loss(samples, training=False)
            more = dict(metrics(outputs, samples[1]) if metrics else {})
        found = {"loss": loss.mean().item(), EXAMPLES: float(_length(samples))}
        return found | {name: float(number) for name, number in more.items()}

    def _loss(self, samples: Samples, training: bool) -> tuple[Any, Any]:
        """Outputs and their loss."""
        from focusfl.problems.torch.module import set_mode

        set_mode(self.module, training)
        inputs, targets = samples
        several = inputs if isinstance(inputs, tuple) else (inputs,)
        outputs = self.module(*several)
        return outputs, self.loss(outputs, targets)

    def _load(self, x: Mapping[str, np.ndarray]) -> None:
        import torch

        with torch.no_grad():
            for name, leaf in self.leaves.items():
                leaf.copy_(torch.from_numpy(np.asarray(x[name])))


def _tensors(name: str, given: Any, module: "torch.nn.Module") -> Samples:
    """Inputs and targets, where the module is and in its type."""
    import torch

    from focusfl.problems.torch.module import pair_of

    first = next(module.parameters())

    def tensor(what: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(tensor(what, part) for part in value)
        found = torch.as_tensor(value, device=first.device)
        if not torch.isfinite(found).all():
            raise ValueError(f"{what} must be finite; it holds NaN or infinity.")
        return found.to(first.dtype) if found.is_floating_point() else found

    inputs, targets = pair_of(name, given)
    return tensor("inputs", inputs), tensor("targets", targets)


def _picked(part: Any, at: Any) -> Any:
    """Some samples, of one tensor or of several."""
    if isinstance(part, tuple):
        return tuple(_picked(one, at) for one in part)
    return part[at]


def _length(samples: Samples) -> int:
    targets = samples[1]
    return len(targets[0] if isinstance(targets, tuple) else targets)
