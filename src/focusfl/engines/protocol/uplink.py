"""Pushes on their way: arrays, or the bytes of a codec where the algorithm has one."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from focusfl import tree
from focusfl.algorithms.coded import coded_in, with_codec
from focusfl.codecs import Codec
from focusfl.core import Algorithm, Message
from focusfl.engines.protocol.format import Refused
from focusfl.tree import Tree


@dataclass(frozen=True, repr=False)
class Noted(Codec):
    """A codec that reads what was sent out of its bytes, and keeps them for the reply.

    So a site remembers as sent, to the bit, what its server will read.
    """

    codec: Codec
    notes: list[tuple[Any, np.ndarray]] = field(default_factory=list)  # read, bytes

    def __repr__(self) -> str:
        return repr(self.codec)

    def approximate(self, a, index, salt):
        if np.isfinite(a).all():
            blob = self.codec.encode(a, index, salt)
            read = self.codec.decode(blob, a.shape, a.dtype, index, salt)
            if np.isfinite(read).all():
                self.notes.append((read, np.frombuffer(blob, np.uint8)))
                return read
        return a + np.nan  # who packs it will say that it cannot be sent

    def applies(self, shape):
        return self.codec.applies(shape)

    def load(self, shape, plain):
        return self.codec.load(shape, plain)

    def packed(self, up: Message) -> Message:
        """A push with bytes in place of what was read out of them."""

        def one(leaf: Any) -> Any:
            found = (blob for read, blob in self.notes if read is leaf)
            return next(found, leaf)

        return tree.map(one, up)


def with_noted_codec(
    algorithm: Algorithm, packs: bool
) -> tuple[Algorithm, Noted | None]:
    """The algorithm with a codec that keeps what it sends, if it has one and packs."""
    coded = coded_in(algorithm)
    if coded is None or not packs:
        return algorithm, None
    codec = Noted(coded.codec)
    return with_codec(algorithm, codec), codec


@dataclass(frozen=True)
class _Leaf:
    """An array that travels in a codec's bytes."""

    codec: Codec
    shape: tuple[int, ...]
    dtype: np.dtype
    salt: int
    size: int  # bytes

    def read(self, got: np.ndarray, index: int) -> np.ndarray:
        """What its site has sent; raise Refused if none can have."""
        blob = got.tobytes()
        try:
            with np.errstate(all="ignore"):  # infinity is told of below
                found = self.codec.decode(
                    blob, self.shape, self.dtype, index, self.salt
                )
        except ValueError as error:
            raise Refused(f"{self.codec!r} cannot read it: {error}.") from None
        if not np.isfinite(found).all():
            raise Refused(f"what {self.codec!r} reads of it is not finite.")
        return found


class Uplink:
    """How pushes look that come in, and what is read of them."""

    def __init__(self, algorithm: Algorithm, params: Tree, up: Message):
        coded, self._plan = coded_in(algorithm), up
        if coded is not None:
            own = {name: up[name] for name in coded.init(params)[1].unsent}
            plan = partial(_planned, coded.codec)
            self._plan = {**up, **coded.each_coded(plan, own)}
        # As it travels, for its paths, shapes and dtypes.
        self.like: Message = tree.map(
            lambda a: np.zeros(a.size, np.uint8) if isinstance(a, _Leaf) else a,
            self._plan,
        )

    def read(self, packed: Message, index: int) -> Message:
        """A push as its site remembers it; raise Refused if none can have sent it."""
        return tree.map(
            lambda a, got: a.read(got, index) if isinstance(a, _Leaf) else got,
            self._plan,
            packed,
        )


def _planned(codec: Codec, leaf: Any, salt: int) -> _Leaf:
    empty = np.zeros(leaf.shape, leaf.dtype)
    size = len(codec.encode(empty, 0, salt))
    return _Leaf(codec, empty.shape, empty.dtype, salt, size)
