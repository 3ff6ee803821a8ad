"""Pushes on their way: arrays, or a compressor's bytes where the algorithm is `Compressed`."""

from dataclasses import dataclass, field
from typing import Any

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
        """Give a push with bytes in place of the arrays that were read from them."""
        return tree.map(
            lambda leaf: next((blob for read, blob in self.sent if read is leaf), leaf), up
        )


def with_recorder(algorithm: Algorithm) -> tuple[Algorithm, Recorder | None]:
    """Give the algorithm a compressor that records what it sends, if it has a compressor."""
    coded = coded_in(algorithm)
    if coded is None:
        return algorithm, None
    recorder = Recorder(coded.compressor)
    return with_codec(algorithm, recorder), recorder


@dataclass(frozen=True)
class _Encoded:
    """How one array of a push travels: as a compressor's bytes."""

    compressor: Compressor
    like: np.ndarray
    salt: int

    @property
    def wire(self) -> np.ndarray:
        """An array of bytes, as many as are sent."""
        return np.zeros(len(self.compressor.encode(self.like, 0, self.salt)), np.uint8)

    def read(self, sent: np.ndarray, index: int) -> np.ndarray:
        compressor, like = self.compressor, self.like
        try:
            with np.errstate(all="ignore"):  # infinity is refused below
                array = compressor.decode(sent.tobytes(), like.shape, like.dtype, index, self.salt)
        except ValueError as error:
            raise Refused(f"{compressor!r} cannot read it: {error}.") from None
        if not np.isfinite(array).all():
            raise Refused(f"what {compressor!r} reads of it is not finite.")
        return array


class Uplink:
    """The structure of pushes, and how they are read.

    Attributes:
        up: a push as the algorithm gives it, for its structure.
        like: the same as it travels.
    """

    def __init__(self, algorithm: Algorithm, params: Tree):
        self.up = self._plan = trial_push(algorithm, params)
        if (coded := coded_in(algorithm)) is not None:
            unsent = {name: self.up[name] for name in coded.init(params)[1].unsent}
            encoded = coded.each_coded(
                lambda leaf, salt: _Encoded(coded.compressor, 0 * leaf, salt), unsent
            )
            self._plan = {**self.up, **encoded}
        self.like: Message = tree.map(
            lambda leaf: leaf.wire if isinstance(leaf, _Encoded) else leaf, self._plan
        )

    def read(self, packed: Message, index: int) -> Message:
        """Read a push as its site remembers it; Refused if no site can have sent it."""

        def read(plan: Any, sent: Any) -> Any:
            return plan.read(sent, index) if isinstance(plan, _Encoded) else sent

        return tree.map(read, self._plan, packed)


def trial_push(algorithm: Algorithm, params: Tree) -> Message:
    """Make a push, for its paths, shapes and dtypes."""
    ones = tree.map(lambda a: 0 * a + 1, params)
    server, state = algorithm.init(ones)
    down, rd = algorithm.broadcast(server), Round(0, 0.5, 1, 2, UNKNOWN)
    return client_round(algorithm, state, down, lambda x, batch: x, [None], rd)[1]
