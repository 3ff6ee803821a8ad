"""A module, its loss and its metrics as functions of jax, of any number of samples.

Programs are of one batch. Other numbers of samples are cut into batches, and the last
is filled up with its last sample: samples do not see each other, which is checked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from focusfl.core.tree import Tree
from focusfl.problems.sets import AT_ONCE
from focusfl.problems.torch.module import several
from focusfl.problems.torch.program import Program


@dataclass(frozen=True, eq=False, repr=False)
class Translated:
    """What `from_loss` takes as its loss: the loss of each sample.

    With a key as in training, and without as in evaluation.
    """

    name: str  # of the module's class
    training: Program
    evaluation: Program
    loss: Program  # of outputs and targets of a single sample
    batch_size: int

    def __repr__(self) -> str:
        return f"{self.name} of PyTorch"

    def __call__(self, params: Tree, samples: Tree, key: Any = None) -> Any:
        return self.losses(self.outputs(params, samples["x"], key), samples["y"])

    def outputs(self, params: Tree, x: Tree, key: Any = None) -> list[Any]:
        """What the module gives, for as many samples as there are."""
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
        found = jax.lax.map(batch, parts, batch_size=max(AT_ONCE // size, 1))
        return [a.reshape(-1, *a.shape[2:])[:count] for a in found]

    def losses(self, outputs: Sequence[Any], y: Tree) -> Any:
        """The loss of each sample."""
        import jax

        def one(outputs, targets):
            given = [a[None] for a in (*outputs, *targets)]
            return self.loss({}, given)[0].reshape(())

        return jax.vmap(one)(list(outputs), several(y))


@dataclass(frozen=True, eq=False, repr=False)
class Metrics:
    """What `from_loss` takes as its metrics: the loss, and what the user asks for."""

    model: Translated
    names: tuple[str, ...]
    asked: Callable[[int], Program] | None  # of outputs and targets of so many samples
    means: bool  # whether they are known to be means over samples

    def __repr__(self) -> str:
        return f"metrics of {self.model!r}"

    @property
    def each(self) -> Callable[[Tree, Tree], dict[str, Any]] | None:
        """The metrics of each sample, if those of several are known to be means."""
        return self._each if self.means else None

    def _each(self, params: Tree, samples: Tree) -> dict[str, Any]:
        import jax

        outputs, y = self.model.outputs(params, samples["x"]), samples["y"]
        found = {"loss": self.model.losses(outputs, y)}
        if self.asked is None:
            return found
        one = self.asked(1)
        given = [*outputs, *several(y)]
        values = jax.vmap(lambda *a: one({}, [part[None] for part in a]))(*given)
        return found | dict(zip(self.names, values, strict=True))

    def __call__(self, params: Tree, samples: Tree) -> dict[str, Any]:
        import jax.numpy as jnp

        outputs, y = self.model.outputs(params, samples["x"]), samples["y"]
        found = {"loss": self.model.losses(outputs, y).mean()}
        if self.asked is None:
            return found
        targets = several(y)
        asked = self.asked(len(targets[0]))
        values = map(jnp.asarray, asked({}, [*outputs, *targets]))
        return found | dict(zip(self.names, values, strict=True))
