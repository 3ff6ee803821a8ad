"""A torch module as a program of jax functions: a list of steps, as plain data.

A program is of one batch size. `Translated` splits other numbers of samples into batches, and
fills up the last one with its last sample: samples do not affect each other, which is checked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from focusfl.core.tree import Tree
from focusfl.problems.evaluation import SAMPLES_AT_ONCE
from focusfl.problems.torch.modules import several


@dataclass(frozen=True)
class Ref:
    """A reference to the result of an earlier step, or to an input."""

    name: str


@dataclass(frozen=True)
class Step:
    """An operator and its arguments."""

    name: str  # of its result
    operator: str
    args: tuple
    kwargs: dict[str, Any]
    dtypes: tuple[str | None, ...]  # of its results


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """Steps from parameters, constants and inputs to outputs, evaluated by jax.

    Floats of the module's type become those of the parameters that the program is called
    with, which may be wider or narrower.
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
        import jax
        import jax.numpy as jnp

        from focusfl.problems.torch.operators import OPERATORS, RANDOM

        arrays = (a for a in (*params.values(), *inputs) if a is not None)
        floats = [a for a in arrays if np.dtype(a.dtype).kind not in "biu"]
        width = floats[0].dtype if floats else self.dtype
        known = {name: params[parameter] for name, parameter in self.params.items()}
        for name, value in (*self.constants.items(), *zip(self.inputs, inputs, strict=True)):
            if value is not None:
                value = self._typed(jnp.asarray(value), width)
            known[name] = value
        for number, step in enumerate(self.steps):
            args, kwargs = resolve(known, step.args), resolve(known, step.kwargs)
            if step.operator in RANDOM:
                step_key = None if key is None else jax.random.fold_in(key, number)
                result = RANDOM[step.operator](step_key, *args, **kwargs)
            else:
                result = OPERATORS[step.operator](*args, **kwargs)
            known[step.name] = self._results(result, step.dtypes, width)
        return [resolve(known, output) for output in self.outputs]

    @property
    def operators(self) -> set[str]:
        """The names of its operators."""
        return {step.operator for step in self.steps} - {"getitem"}

    def _results(self, result: Any, dtypes: Sequence[str | None], width: Any) -> Any:
        if not isinstance(result, tuple):
            return self._typed(result, width, dtypes[0])
        pairs = zip(result, dtypes, strict=True)
        return tuple(a if a is None else self._typed(a, width, d) for a, d in pairs)

    def _typed(self, a: Any, width: Any, dtype: str | None = None) -> Any:
        """Return an array in the type that it has in PyTorch, or the nearest that jax allows."""
        import jax

        dtype = str(a.dtype) if dtype is None else dtype
        want = jax.dtypes.canonicalize_dtype(width if dtype == self.dtype else dtype)
        return a if a.dtype == want else a.astype(want)


def resolve(known: Mapping[str, Any], value: Any) -> Any:
    """Replace references by the results that they refer to."""
    if isinstance(value, Ref):
        return known[value.name]
    if isinstance(value, list | tuple):
        return type(value)(resolve(known, part) for part in value)
    if isinstance(value, dict):
        return {name: resolve(known, part) for name, part in value.items()}
    return value


@dataclass(frozen=True, eq=False, repr=False)
class Translated:
    """The loss of each sample, as `from_loss` takes it.

    Called with a key, the module is in training mode; without, in evaluation mode.
    """

    name: str  # of the module's class
    training: Program
    evaluation: Program
    loss: Program  # of the outputs and targets of a single sample
    batch_size: int

    def __repr__(self) -> str:
        return f"{self.name} of PyTorch"

    def __call__(self, params: Tree, samples: Tree, key: Any = None) -> Any:
        return self.losses(self.outputs(params, samples["x"], key), samples["y"])

    def outputs(self, params: Tree, x: Tree, key: Any = None) -> list[Any]:
        """Compute the outputs of the module for any number of samples."""
        import jax
        import jax.numpy as jnp

        def batch(inputs: list[Any]) -> list[Any]:
            if key is None:
                return self.evaluation(params, inputs)
            return self.training(params, inputs, key)

        inputs, size = several(x), self.batch_size
        count = len(inputs[0])
        if count == size:
            return batch(inputs)
        places = jnp.minimum(jnp.arange(-(-count // size) * size), count - 1)
        filled = (jnp.asarray(a)[places] for a in inputs)
        parts = [a.reshape(-1, size, *a.shape[1:]) for a in filled]
        values = jax.lax.map(batch, parts, batch_size=max(SAMPLES_AT_ONCE // size, 1))
        return [a.reshape(-1, *a.shape[2:])[:count] for a in values]

    def losses(self, outputs: Sequence[Any], y: Tree) -> Any:
        """Compute the loss of each sample, (samples,)."""
        import jax

        def loss_of_sample(outputs, targets):
            batch = [a[None] for a in (*outputs, *targets)]
            return self.loss({}, batch)[0].reshape(())

        return jax.vmap(loss_of_sample)(list(outputs), several(y))


@dataclass(frozen=True, eq=False, repr=False)
class TranslatedMetrics:
    """The loss and the user's metrics, as `from_loss` takes them."""

    model: Translated
    names: tuple[str, ...]
    program_of: Callable[[int], Program] | None  # number of samples -> program of metrics
    are_means: bool  # whether they are known to be means over samples

    def __repr__(self) -> str:
        return f"metrics of {self.model!r}"

    @property
    def each(self) -> Callable[[Tree, Tree], dict[str, Any]] | None:
        """The function of each sample's metrics, if metrics are known to be means; else None."""
        return self._each if self.are_means else None

    def _each(self, params: Tree, samples: Tree) -> dict[str, Any]:
        import jax

        outputs, y = self.model.outputs(params, samples["x"]), samples["y"]
        values = {"loss": self.model.losses(outputs, y)}
        if self.program_of is None:
            return values
        program = self.program_of(1)
        metrics = jax.vmap(lambda *sample: program({}, [a[None] for a in sample]))(
            *outputs, *several(y)
        )
        return values | dict(zip(self.names, metrics, strict=True))

    def __call__(self, params: Tree, samples: Tree) -> dict[str, Any]:
        import jax.numpy as jnp

        outputs, y = self.model.outputs(params, samples["x"]), samples["y"]
        values = {"loss": self.model.losses(outputs, y).mean()}
        if self.program_of is None:
            return values
        targets = several(y)
        program = self.program_of(len(targets[0]))
        metrics = map(jnp.asarray, program({}, [*outputs, *targets]))
        return values | dict(zip(self.names, metrics, strict=True))
