"""Pushes on their way: arrays, or a compressor's bytes where the algorithm is `Compressed`."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from focusfl.algorithms.compressed import coded_in, with_codec
from focusfl.compression import Compressor
from focusfl.core import Algorithm, Message, Round, tree
from focusfl.core.tree import Tree
from focusfl.flower.protocol.messages import UNKNOWN, Refused
from focusfl.simulation.client_round import client_round


@dataclass(frozen=True, repr=False)
class Recorder(Compressor):
    """A compressor that records the bytes it sends.

    It reads each array back from its bytes, so that a site remembers as sent, to the
    bit, what its server will read.
    """

    compressor: Compressor
    sent: list[tuple[Any, np.ndarray]] = field(default_factory=list)  # read, bytes

    def __repr__(self) -> str:
        return repr(self.compressor)

    def approximate(self, a, index, salt):
        if np.isfinite(a).all():
            blob = self.compressor.encode(a, index, salt)
            read = self.compressor.decode(blob, a.shape, a.dtype, index, salt)
            if np.isfinite(read).all():
                self.sent.append((read, np.frombuffer(blob, np.uint8)))
                return read
        return a + np.nan  # `pack` says that it cannot be sent

    def applies(self, shape):
        return self.compressor.applies(shape)

    def load(self, shape, plain):
        return self.compressor.load(shape, plain)

    def compressed(self, up: Message) -> Message:
        """A push with bytes in place of the arrays that were read from them."""

        def sent(leaf: Any) -> Any:
            return next((blob for read, blob in self.sent if read is leaf), leaf)

        return tree.map(sent, up)


def with_recorder(algorithm: Algorithm) -> tuple[Algorithm, Recorder | None]:
    """The algorithm with a compressor that records what it sends, if it has a compressor."""
    coded = coded_in(algorithm)
    if coded is None:
        return algorithm, None
    recorder = Recorder(coded.compressor)
    return with_codec(algorithm, recorder), recorder


class _Compressed(NamedTuple):
    """How one array travels in a compressor's bytes."""

    compressor: Compressor
    like: np.ndarray
    salt: int

    @property
    def size(self) -> int:
        return len(self.compressor.encode(self.like, 0, self.salt))

    def read(self, got: np.ndarray, index: int) -> np.ndarray:
        compressor, like = self.compressor, self.like
        try:
            with np.errstate(all="ignore"):  # infinity is refused below
                array = compressor.decode(got.tobytes(), like.shape, like.dtype, index, self.salt)
        except ValueError as error:
            raise Refused(f"{compressor!r} cannot read it: {error}.") from None
        if not np.isfinite(array).all():
            raise Refused(f"what {compressor!r} reads of it is not finite.")
        return array


class Uplink:
    """How pushes look that come in, and how they are read.

    Attributes:
        up: a push as the algorithm gives it, for its structure.
        like: the same as it travels.
    """

    def __init__(self, algorithm: Algorithm, params: Tree):
        self.up = up = trial_push(algorithm, params)
        coded = coded_in(algorithm)
        plan: Message = up
        if coded is not None:
            own = {name: up[name] for name in coded.init(params)[1].unsent}
            plan = {**up, **coded.each_coded(
                lambda leaf, salt: [_Compressed(coded.compressor, 0 * leaf, salt)], own
            )}  # fmt: skip
        self._plan = list(_leaves(plan))
        self.like: Message = tree.map(
            lambda a: np.zeros(a[0].size, np.uint8) if isinstance(a, list) else a, plan
        )

    def read(self, packed: Message, index: int) -> Message:
        """A push as its site remembers it; Refused if none can have sent it."""
        plan = iter(self._plan)

        def read(got: Any) -> Any:
            how = next(plan)
            return how[0].read(got, index) if isinstance(how, list) else got

        return tree.map(read, packed)


def trial_push(algorithm: Algorithm, params: Tree) -> Message:
    """A push, for its paths, shapes and dtypes."""
    ones = tree.map(lambda a: 0 * a + 1, params)
    server, state = algorithm.init(ones)
    down, rd = algorithm.broadcast(server), Round(0, 0.5, 1, 2, UNKNOWN)
    return client_round(algorithm, state, down, lambda x, batch: x, [None], rd)[1]


def _leaves(a: Tree) -> list[Any]:
    leaves: list[Any] = []
    tree.map(leaves.append, a)
    return leaves
