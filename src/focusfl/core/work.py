"""What a site of a deployment computes, whatever framework it uses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from focusfl.core.algorithm import Batch, GradFn
from focusfl.core.tree import Tree

EXAMPLES = "num-examples"  # metric of a site that weighs its others in the mean over sites


@dataclass(frozen=True)
class Work:
    """What a site can do: gradients of its own data, and evaluation if it offers it.

    Without `batch_of`, `grad_fn` gives the gradient of all the site's data. With it,
    `gradient` can give that, so that the end of a training can be checked.
    """

    grad_fn: GradFn
    batch_of: Callable[[int], Any] | None = None  # gradients computed before -> batch
    evaluate: Callable[[Tree], Mapping[str, float]] | None = None
    gradient: Callable[[Tree], Tree] | None = None  # of all data, at a model
    private: Any = None  # the privacy `Terms` by which `grad_fn` clips and adds noise

    @property
    def whole(self) -> Callable[[Tree], Tree] | None:
        """The gradient of all data, if it is known and may be shown."""
        if self.gradient or self.batch_of or self.private:
            return self.gradient
        return lambda x: self.grad_fn(x, Batch(None, 0))
