"""A torch module as a program: what is computed of what, written down as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Ref:
    """The result of an earlier step, or an input."""

    name: str


@dataclass(frozen=True)
class Step:
    """One operator."""

    name: str  # of its result
    operator: str
    args: tuple
    kwargs: dict[str, Any]
    dtypes: tuple[str | None, ...]  # of its results


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """Steps from parameters, constants and inputs to outputs; called with jax.

    Floats are as wide as the parameters it is called with: what is of the module's own
    type here is of theirs there.
    """

    dtype: str  # of the module
    params: dict[str, str]  # input -> parameter
    constants: dict[str, np.ndarray]
    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple

    def __call__(
        self, params: Mapping[str, Any], inputs: Sequence[Any], key: Any = None
    ) -> list[Any]:
        import jax.numpy as jnp

        from focusfl.problems.torch.operators import DRAWN, GETITEM, OPERATORS

        floats = [a for a in (*params.values(), *inputs) if _floats(a)]
        width = floats[0].dtype if floats else self.dtype
        known = {name: params[own] for name, own in self.params.items()}
        for name, value in (
            *self.constants.items(),
            *zip(self.inputs, inputs, strict=True),
        ):
            if value is not None:
                value = self._typed(jnp.asarray(value), width)
            known[name] = value
        for number, step in enumerate(self.steps):
            args, kwargs = mapped(known, step.args), mapped(known, step.kwargs)
            if step.operator == GETITEM:
                known[step.name] = args[0][args[1]]
                continue
            if step.operator in DRAWN:
                found = DRAWN[step.operator](_fold(key, number), *args, **kwargs)
            else:
                found = OPERATORS[step.operator](*args, **kwargs)
            known[step.name] = self._results(found, step.dtypes, width)
        return [mapped(known, output) for output in self.outputs]

    def _results(self, found: Any, dtypes: Sequence[str | None], width: Any) -> Any:
        if not isinstance(found, tuple):
            return self._typed(found, width, dtypes[0])
        pairs = zip(found, dtypes, strict=True)
        return tuple(a if a is None else self._typed(a, width, d) for a, d in pairs)

    def _typed(self, a: Any, width: Any, dtype: str | None = None) -> Any:
        """An array in the type it has in PyTorch, or as near as jax has it now."""
        import jax

        dtype = str(a.dtype) if dtype is None else dtype
        want = jax.dtypes.canonicalize_dtype(width if dtype == self.dtype else dtype)
        return a if a.dtype == want else a.astype(want)


def mapped(known: Mapping[str, Any], value: Any) -> Any:
    """Put results in the place of their names."""
    if isinstance(value, Ref):
        return known[value.name]
    if isinstance(value, list | tuple):
        return type(value)(mapped(known, part) for part in value)
    if isinstance(value, dict):
        return {name: mapped(known, part) for name, part in value.items()}
    return value


def operators(program: Program) -> set[str]:
    """The operators that a program is made of."""
    return {step.operator for step in program.steps} - {"getitem"}


def _fold(key: Any, number: int) -> Any:
    if key is None:
        return None
    import jax

    return jax.random.fold_in(key, number)


def _floats(a: Any) -> bool:
    return a is not None and np.dtype(a.dtype).kind not in "biu"
