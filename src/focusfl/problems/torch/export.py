"""Write a torch module as a program, by torch.export. Imports jax only where operators do."""

import contextlib
import io
import logging
import operator
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from focusfl.compat import is_composite
from focusfl.problems.torch.program import Program, Ref, Step

# Operators that torch.export could decompose, but that are translated whole: some because
# their parts overflow where they do not, some because their parts are many, and those of most
# networks because decomposing a program takes a quarter of a second.
WHOLE = (
    "binary_cross_entropy", "celu", "conv1d.default", "conv2d.default", "conv3d.default",
    "cross_entropy_loss", "detach", "einsum", "elu", "flatten.using_ints",
    "gru.input",
    "hardsigmoid", "hardswish", "linear", "log_sigmoid_forward", "lstm.input",
    "matmul", "max_pool2d", "mish", "rms_norm", "rnn_relu.input", "rnn_tanh.input",
    "scaled_dot_product_attention", "silu", "softplus", "to.dtype",
    "upsample_bicubic2d.vec",
)  # fmt: skip
# Arguments that say what type and device a result has, which is known of every result.
UNUSED = {
    "device", "dtype", "generator", "layout", "memory_format", "non_blocking",
    "pin_memory",
}  # fmt: skip


class Untranslatable(Exception):
    """A module cannot be translated to jax; the message says why."""


def exported(module: Any, args: tuple) -> Any:
    """Export a module in its present mode, called with `args`, by torch.export.

    Raises:
        Untranslatable: If torch.export fails.
    """
    import torch

    with _quiet():
        try:
            return torch.export.export(module, args, strict=False)
        except Exception as error:  # whatever the user's code leads to
            raise Untranslatable(_reason(error)) from error


def write_program(module: Any, trained: Mapping[str, str], dtype: str) -> Program:
    """Write an exported module as a program.

    Args:
        module: what `exported` returned.
        trained: the name of each parameter to train -> the name it goes by, as parameters
            can be tied.
        dtype: type of the module's parameters.

    Raises:
        Untranslatable: If an operator is not known.
        ValueError: If the module changes its buffers or inputs.
    """
    from torch.export.graph_signature import InputKind, OutputKind

    # Decomposing takes a quarter of a second for any program.
    if _unknown(module) or any(map(_falls_apart, module.graph.nodes)):
        with _quiet():
            try:
                module = module.run_decompositions(_decompositions())
            except Exception as error:
                raise Untranslatable(_reason(error)) from error
    for spec in module.graph_signature.output_specs:
        if spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
            raise ValueError(
                "the module must not change anything while it is called; it changes "
                f"{spec.target or 'its input'}, which would not travel."
            )
    if missing := _unknown(module):
        raise Untranslatable(f"no translation of {', '.join(missing)}")
    values = {**module.state_dict, **module.constants}
    params, constants, inputs = {}, {}, []
    for spec in module.graph_signature.input_specs:
        name = getattr(spec.arg, "name", "")
        if spec.kind == InputKind.USER_INPUT:
            inputs.append(name)
        elif spec.target in trained:
            params[name] = trained[spec.target]
        else:
            constants[name] = values[spec.target].detach().cpu().numpy().copy()
    nodes = [node for node in module.graph.nodes if _counts(node)]
    (ends,) = next(node for node in module.graph.nodes if node.op == "output").args
    return Program(dtype, params, constants, tuple(inputs), tuple(_steps(nodes)), _plain(ends))


def _falls_apart(node: Any) -> bool:
    """Whether torch.export would decompose the operator of a node."""
    if not _counts(node) or node.target is operator.getitem or node.target in _whole():
        return False
    return node.target in _decompositions() or is_composite(node.target)


def _unknown(module: Any) -> list[str]:
    """List the operators without a translation, such as those that work in place."""
    from focusfl.problems.torch.operators import entry_of

    names = {_name(node) for node in module.graph.nodes if _counts(node)}
    return sorted(name for name in names if not entry_of(name))


def _steps(nodes: list[Any]) -> Iterator[Step]:
    from focusfl.problems.torch.operators import entry_of

    for node in nodes:
        kwargs = {k: _plain(v) for k, v in node.kwargs.items() if k not in UNUSED}
        value = node.meta.get("val")
        values = value if isinstance(value, list | tuple) else [value]
        dtypes = tuple(_dtype(getattr(result, "dtype", None)) for result in values)
        entry = entry_of(_name(node)) or ""
        yield Step(node.name, entry, _plain(node.args), kwargs, dtypes)


def _counts(node: Any) -> bool:
    """Whether a node computes something; some are only assertions."""
    asserts = ("_assert", "sym_constrain")
    return node.op == "call_function" and not _name(node).startswith(asserts)


def _name(node: Any) -> str:
    if node.target is operator.getitem:
        return "getitem"
    text = str(node.target)
    return text.removeprefix("aten.").removesuffix(".default")


def _plain(value: Any) -> Any:
    import torch

    if isinstance(value, torch.fx.Node):
        return Ref(value.name)
    if isinstance(value, list | tuple):  # of fx's own kinds
        kind = tuple if isinstance(value, tuple) else list
        return kind(_plain(part) for part in value)
    return _dtype(value) if isinstance(value, torch.dtype) else value


def _dtype(dtype: Any) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")


@cache
def _decompositions() -> Any:
    import torch

    table = torch.export.default_decompositions()
    for target in _whole():
        with contextlib.suppress(KeyError):  # this version does not decompose it
            table.pop(target)
    return table


@cache
def _whole() -> frozenset:
    """Return the operators that WHOLE names; those without an overload in all overloads."""
    import torch

    operators = []
    for name, _, overload in (entry.partition(".") for entry in WHOLE):
        packet = getattr(torch.ops.aten, name)
        overloads = [overload] if overload else packet.overloads()
        operators += [getattr(packet, overload) for overload in overloads]
    return frozenset(operators)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what torch.export logs, prints and warns of."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _reason(error: Exception) -> str:
    if "DataDependent" in type(error).__name__:
        return "it branches on the values of tensors"
    line = (str(error).strip().splitlines() or [""])[0].rstrip(".")[:200]
    return f"torch.export says {type(error).__name__}: {line}"
