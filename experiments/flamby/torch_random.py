"""PyTorch's random numbers in numpy: what a seed draws there, it draws here.

What FLamby's tables need of them, and no more: the weights a linear layer begins with,
and the order in which a DataLoader shuffles. Both follow from one Mersenne twister.
"""

import numpy as np
from jaxtyping import Float, Int


class TorchRandom:
    """The numbers that follow torch.manual_seed(seed) on a CPU."""

    def __init__(self, seed: int):
        self._twister = np.random.RandomState(seed % 2**32)

    def words(self, count: int) -> Int[np.ndarray, " count"]:
        """The next numbers of 32 bits."""
        return self._twister.randint(0, 2**32, count, np.uint32).astype(np.int64)

    def linear(self, inputs: int) -> Float[np.ndarray, " inputs_and_bias"]:
        """The weights of torch.nn.Linear(inputs, 1), and its bias at the end."""
        bound = np.float32(1 / np.sqrt(inputs))
        share = (self.words(inputs + 1) % 2**24) / 2**24
        return (share * 2 * bound - bound).astype(np.float32)

    def skip_seed(self) -> None:
        """Draw a seed that nothing looks at, as making a DataLoader's iterator does."""
        self.words(2)

    def order(self, length: int) -> Int[np.ndarray, " length"]:
        """The order of one epoch, as a DataLoader's sampler draws it."""
        _, seed = self.words(2)  # of 64 bits, of which the last 32 count
        far = TorchRandom(int(seed)).words(length - 1) % np.arange(length, 1, -1)
        order = list(range(length))  # many times faster than an array
        for i, steps in enumerate(far.tolist()):
            order[i], order[i + steps] = order[i + steps], order[i]
        return np.array(order)
