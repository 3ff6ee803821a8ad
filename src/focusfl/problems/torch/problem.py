"""`from_torch`: make a problem of a torch module, or the work of one site of a deployment."""

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from focusfl.core import tree
from focusfl.core.compilation import use_compilation_cache
from focusfl.core.extras import import_package
from focusfl.core.tree import Tree
from focusfl.core.validation import check_count, check_flag, shown
from focusfl.core.work import Work
from focusfl.problems import validation
from focusfl.problems.loss import LossProblem, from_loss
from focusfl.problems.problem import Weights
from focusfl.problems.torch.eager import (
    Eager,
    EagerLoss,
    LossFails,
    check_functions,
    count,
    pick_samples,
    site_work,
)
from focusfl.problems.torch.export import Untranslatable
from focusfl.problems.torch.modules import (
    check_module,
    samples_of,
    several,
    site_samples,
    state_dict,
    torch_params,
)

if TYPE_CHECKING:
    import torch

Loss = Callable[[Any, Any], Any]  # (outputs, targets) -> mean, or the loss of each
TorchMetrics = Callable[[Any, Any], Mapping[str, Any]]  # (outputs, targets) -> numbers
MAX_TRIED = 64  # samples that the user's functions are tried on
# Measured by benchmarks/torch_models.py with a bare PyTorch loop; ff.loop is slower still.
SLOWER = "where eager PyTorch took 15 to 20 times as long for a small MLP and a GRU"


class NotTranslated(UserWarning):
    """Warning that a torch module cannot be translated to jax and runs in `ff.loop` only."""


@dataclass(frozen=True, eq=False)
class TorchProblem(LossProblem):
    """What `from_torch` makes: a `LossProblem` of a torch module's parameters."""

    module: Any = None
    why_not: str = ""  # why it has no translation to jax; empty if it has one

    def to_torch(self, x: Tree) -> "dict[str, torch.Tensor]":
        """Return a model x as a state_dict, complete for module.load_state_dict."""
        return state_dict(self.module, x)

    def check_compiles(self) -> None:
        if self.why_not:
            raise ValueError(f"{self.why_not}; use ff.loop, which runs it in PyTorch.")


def from_torch(
    module: "torch.nn.Module",
    loss: Loss,
    client_data: Any,
    *,
    batch_size: int | None = None,
    eval_data: Any = None,
    client_eval_data: Sequence[Any] | None = None,
    metrics: TorchMetrics | None = None,
    stream: str = "epochs",
    freeze_statistics: bool = False,
    augment: Any = None,
    compute_dtype: str | None = None,
    weights: Weights = None,
    client: int | None = None,
    seed: int = 0,
) -> Any:
    """Make a problem of a module and a loss of PyTorch, or the work of one site.

    For a simulation the module is translated to jax once, and compared with PyTorch's
    outputs and gradients on a batch. If it cannot be translated, a `NotTranslated` warning
    says why, and the problem runs in `ff.loop` only, by PyTorch. Parameters have the names of
    `named_parameters()`; those without requires_grad and all buffers stay as they are.
    Dropout draws from the seed of the run.

    With `client`, the result is the `Work` of that client for `ff.flower.client_app`, which
    PyTorch computes on the device of the module, without jax.

    Args:
        module: the initial model; it is copied for a simulation.
        loss: (outputs, targets) -> the mean over a batch, as the losses of torch.nn return by
            default, or the loss of each sample, (samples,).
        client_data: for each client a pair (inputs, targets), or a dict of x and y: tensors
            or arrays with samples along the first axis. A tuple of inputs becomes several
            arguments of the module. With `client`, the samples of that client suffice.
        batch_size: number of samples of a gradient; a client with fewer takes all that it
            has. None: everybody takes all.
        eval_data: samples to evaluate on, likewise; None: those of all clients, or with
            `client` its samples.
        client_eval_data: for each client samples to evaluate on, likewise, for
            per_client=True; None: those of client_data.
        metrics: (outputs, targets) -> a dict of tensors of one number each, next to the
            loss; None: the accuracy if targets are classes.
        stream: order of a client's samples: epochs, fixed_order or with_replacement.
        freeze_statistics: whether batch normalisation may use its present running
            statistics; without, modules that keep any are refused.
        augment: (key, samples) -> samples, in jax, changed at random before a gradient.
        compute_dtype: type that the model is computed in, such as bfloat16; None: its own.
        weights: of clients: "samples", "equal", or a number for each.
        client: number of the client whose work to make; None: make a problem of all.
        seed: with `client`, of the order of its batches. A site needs no jax, so it draws
            by NumPy: other batches than `ff.simulate` draws from this seed.

    Returns:
        A `TorchProblem`, or with `client` a `Work`.

    Raises:
        ValueError: If samples do not fit the module, if it has state that would not be
            trained, or if jax computes something else than PyTorch.
    """
    import_package("torch")
    check_flag("freeze_statistics", freeze_statistics)
    dtype = check_module(module, freeze_statistics)
    validation.check_options(batch_size, stream, dtype, compute_dtype)
    for name, function in {"loss": loss, "metrics": metrics}.items():
        validation.check_called(name, function)
        if not callable(function) and (function is not None or name == "loss"):
            raise ValueError(f"{name} must be a function; got {shown(function)}.")
    x0 = torch_params(module, freeze_statistics=freeze_statistics)
    options = {
        "client_eval_data": client_eval_data, "augment": augment,
        "compute_dtype": compute_dtype, "weights": weights,
    }  # fmt: skip
    if client is not None:
        check_count("client", client, least=0)
        check_count("seed", seed, least=0)
        for name, value in options.items():
            if value is not None:
                raise ValueError(f"{name} is of a simulation; leave it out where client is given.")
        return _site(
            Eager(module, loss, metrics), x0, client_data, eval_data, batch_size, stream, seed,
            client, dtype,
        )  # fmt: skip
    use_compilation_cache()
    clients = validation.everybody(_client_samples("client_data", client_data, dtype))
    pooled = tree.map(lambda *leaves: np.concatenate(leaves), *clients)
    if eval_data is None:
        eval_data = pooled
    else:
        eval_data = validation.arrays("eval_data", samples_of("eval_data", eval_data, dtype))
        shapes, got = (tree.map(lambda a: a.shape[1:], part) for part in (pooled, eval_data))
        if shapes != got:
            raise ValueError(f"eval_data must have samples as clients have, {shapes}; got {got}.")
    module = copy.deepcopy(module).cpu()
    some = pick_samples(pooled, min(MAX_TRIED, max(2, count(pooled))))
    try:
        eager = check_functions(Eager(module, loss, metrics), x0, some)
    except LossFails as error:
        raise ValueError(f"{error}{_label_range(clients)}.") from error
    if client_eval_data is not None:
        sets = _client_samples("client_eval_data", client_eval_data, dtype)
        options["client_eval_data"] = validation.eval_sets(sets, clients)
    options |= {
        "batch_size": batch_size, "eval_data": eval_data, "stream": stream, "dtype": dtype,
    }  # fmt: skip
    if batch_size is None:
        batch_size = max(map(count, clients))
    from focusfl.problems.torch.translate import translate

    try:
        loss_fn, metrics_fn = translate(eager, x0, pooled, eval_data, batch_size)
    except Untranslatable as error:
        return _in_torch(eager, x0, clients, options, str(error))
    base = from_loss(loss_fn, x0, clients, metrics_fn=metrics_fn, **options)
    return TorchProblem(**vars(base), module=module)


def _site(
    eager: Eager, x0: Tree, client_data: Any, eval_data: Any, batch_size: int | None,
    stream: str, seed: int, client: int, dtype: str,
) -> Work:  # fmt: skip
    """Make the work of one client, whose samples are given alone or in a list of all clients'."""
    if isinstance(client_data, list):
        if client >= len(client_data):
            raise ValueError(f"client must be below {len(client_data)}; got {client}.")
        client_data = client_data[client]
    samples = site_samples("client_data", client_data, dtype)
    eval_samples = samples if eval_data is None else site_samples("eval_data", eval_data, dtype)
    # Two samples only, as a site is created anew for every message.
    eager = check_functions(eager, x0, pick_samples(samples, 2))
    return site_work(eager, samples, eval_samples, batch_size, stream, seed, client)


def _in_torch(
    eager: Eager, x0: Tree, clients: list[Tree], options: dict[str, Any], why: str
) -> TorchProblem:
    """Make the problem without a translation, for `ff.loop` only; warn of it."""
    name = type(eager.module).__name__
    why = f"{name} cannot be translated to jax: {why}"
    warnings.warn(
        f"{why}. It runs in ff.loop alone, by PyTorch: one client after the other, {SLOWER}.",
        NotTranslated,
        stacklevel=3,
    )
    for option in ("augment", "compute_dtype"):
        if options[option] is not None:
            raise ValueError(f"{why}; {option} needs jax.")
    base = from_loss(_zero_loss, x0, clients, **options)  # checks samples all the same
    mean = base.mean_loss
    loss = EagerLoss(eager, None, mean.batch_size, mean.stream, draws=True)
    parts = {**vars(base), "mean_loss": loss}
    return TorchProblem(**parts, module=eager.module, why_not=why)


def _zero_loss(params: Tree, samples: Tree) -> Any:
    import jax.numpy as jnp

    return jnp.zeros(len(several(samples["y"])[0]))


def _client_samples(name: str, client_data: Any, dtype: str) -> Any:
    """Return samples of each client as dicts of x and y; leave what is no list to be refused."""
    if not isinstance(client_data, list | tuple):
        return client_data
    of = "" if name == "client_data" else f" of {name}"
    return [samples_of(f"client {i}{of}", part, dtype) for i, part in enumerate(client_data)]


def _label_range(clients: list[Tree]) -> str:
    """Say which clients have the smallest and the largest label, if targets are labels."""
    y = [samples["y"] for samples in clients]
    if isinstance(y[0], dict) or y[0].dtype.kind not in "iu":
        return ""
    least = min(range(len(y)), key=lambda i: y[i].min())
    most = max(range(len(y)), key=lambda i: y[i].max())
    return (
        f"; labels are from {y[least].min()}, of client {least}, to {y[most].max()}, "
        f"of client {most}"
    )
