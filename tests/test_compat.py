"""What is private in other packages is still there, and does what we need it for."""

import torch

from focusfl import compat


def test_a_dispatch_mode_sees_every_operator_of_pytorch():
    seen = []

    class Seen(compat.torch_dispatch_mode()):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Seen():
        torch.ones(2) + 1
    assert torch.ops.aten.add.Tensor in seen


def test_trees_of_tensors_are_taken_apart():
    nested = (torch.ones(1), {"a": [torch.zeros(2), None]})
    doubled = compat.torch_tree().tree_map(lambda a: 2 * a if a is not None else a, nested)
    assert doubled[0].item() == 2 and doubled[1]["a"][0].shape == (2,)
    assert len([a for a in compat.torch_tree().tree_leaves(nested) if a is not None]) == 2


def test_composite_operators_are_known_as_such():
    assert compat.is_composite(torch.ops.aten.dropout.default)
    assert not compat.is_composite(torch.ops.aten.add.Tensor)
