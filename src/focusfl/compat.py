"""What is private in other packages and needed all the same, each with its reason.

tests/test_compat.py says when one of these has moved or gone.
"""

from typing import Any


def torch_tree() -> Any:
    """Give PyTorch's functions of trees of tensors.

    A module may return any tree, which torch.export takes apart by these functions; no public
    module has them, and jax, which has its own, is not at every site.
    """
    import torch

    return torch.utils._pytree


def torch_dispatch_mode() -> Any:
    """Give the class of modes that see every operator: PyTorch documents it by this name."""
    from torch.utils._python_dispatch import TorchDispatchMode

    return TorchDispatchMode


def is_composite(operator: Any) -> bool:
    """Say whether an operator of PyTorch is defined by other operators.

    torch.export keeps such operators whole unless it is asked to decompose them, and an
    overload may have other arguments than the one that is translated.
    """
    import torch

    return operator.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
