"""Any algorithm, whose clients send in fewer bits and keep what they did not send.

Error feedback: Seide et al. 2014, Karimireddy et al. 2019,
https://arxiv.org/abs/1901.09847. Around FOCUS it is EF21, Richtarik et al. 2021,
https://arxiv.org/abs/2106.05203: the server's sum moves by exactly what was sent.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from focusfl.algorithms.fedvarp import FedVARP
from focusfl.algorithms.focus import Focus
from focusfl.algorithms.mifa import MIFA
from focusfl.algorithms.scaffold import Scaffold
from focusfl.algorithms.wrapped import Wrapped, check_inner, innermost, layers
from focusfl.compression import Compressor, Load, Quantize
from focusfl.core import ALGORITHMS, Algorithm, CannotForget, Message, Round, Tree, tree
from focusfl.core.validation import check_is

# Those whose pushes vanish where they rest, and with them what is left unsent.
DIFFERENCES = Focus, Scaffold, MIFA, FedVARP


class Client(NamedTuple):
    inner: Any  # the inner algorithm's
    unsent: Tree  # what the server was not told yet, by name


@ALGORITHMS.register(
    "compressed", style=27, invariant="server: Σ (memory − e), with e what is not sent yet"
)
@dataclass(frozen=True)
class Compressed(Wrapped):
    """Send C(u + e) where the inner algorithm sends u, and keep e <- u + e - C(u + e).

    C is decode(encode(.)) of a compressor, leaf by leaf; what has no axis travels as it is.
    The server adds up what it was sent, to the bit, and each client knows what that
    was. So around FOCUS y = sum of (grad - e) over clients, whatever the compressor, and the
    next push is the gradient now less what the server has of it: EF21.

    It rests where the inner algorithm does if pushes vanish there, as those of FOCUS,
    SCAFFOLD, MIFA and FedVARP, and the compressor sends what is left in the end, as all but
    FixedPoint. Of others nothing is promised. See docs/compression.md.
    """

    inner: Algorithm = Focus()  # whose pushes these are
    compressor: Compressor = Quantize()  # how they are sent

    def __post_init__(self):
        check_inner(self.inner, Compressed)
        check_is("compressor", self.compressor, Compressor)

    @property
    def elementwise(self):
        return True

    def max_exact_lr(self, L, local_steps):
        if not self.compressor.vanishes or not isinstance(innermost(self.inner), DIFFERENCES):
            return 0.0
        return self.inner.max_exact_lr(L, local_steps)

    def traffic(self, params):
        down, up = self.inner.traffic(params)
        sent = {"plain": 0, "compressed": 0}

        def add(path, leaf):
            shape = tuple(getattr(leaf, "shape", ()))
            width = 8 * leaf.dtype.itemsize if hasattr(leaf, "dtype") else 64
            plain = Load(math.prod(shape), width)
            coded = self.compressor.load(shape, plain) if self._codes(shape) else plain
            sent["plain"] += plain.bits
            sent["compressed"] += coded.bits

        _by_path(add, "", self._push_of_nothing(params))
        return down, up * sent["compressed"] / sent["plain"]

    def init(self, params):
        server, client = self.inner.init(params)
        up = self._push_of_nothing(params)
        self._check(up)
        # What follows the model, and not a number beside it, of whatever shape that is.
        flat = self._push_of_nothing(tree.map(lambda a: a.reshape(-1), params))
        unsent = {k: tree.zeros(up[k]) for k in up if _has_axes(flat[k])}
        return server, Client(client, unsent)

    def pull(self, client, down):
        return self.inner.pull(client.inner, down)

    def push(self, client, down, local, rd):
        inner, up = self.inner.push(client.inner, down, local, rd)
        due = {k: tree.add(up[k], client.unsent[k]) for k in client.unsent}
        sent = self.each_coded(
            lambda leaf, salt: self.compressor.approximate(leaf, rd.index, salt), due
        )
        return Client(inner, tree.sub(due, sent)), {**up, **sent}

    def state_after(self, client, up, down, rd):
        # What the server was sent: a client that continues from here owes nothing.
        inner = self.inner.state_after(client.inner, up, down, rd)
        return Client(inner, tree.zeros(client.unsent))

    def forget(self, server, client, weight, num_clients):
        self._check_derived()
        return self.inner.forget(server, client.inner, weight, num_clients)

    def recompute(self, server, clients):
        self._check_derived()
        inner = ((weight, client.inner) for weight, client in clients)
        return self.inner.recompute(server, inner)

    def _check_derived(self) -> None:
        if self.sends_state:
            raise CannotForget(f"the states of {self!r} hold what was never sent.")

    def after_update(self, client, down, rd):
        return client._replace(inner=self.inner.after_update(client.inner, down, rd))

    def each_coded(self, f: Callable[[Any, int], Any], sent: Message) -> Message:
        """Apply f to every leaf that is coded and its salt; leave the others."""

        def one(path: str, leaf: Any) -> Any:
            if not self._codes(tuple(leaf.shape)):
                return leaf
            return f(leaf, zlib.crc32(path.encode()))

        return _by_path(one, "", sent)

    def _codes(self, shape: tuple[int, ...]) -> bool:
        return shape != () and self.compressor.applies(shape)

    def _push_of_nothing(self, params: Tree) -> Message:
        """What is pushed after no step: shows names and shapes."""
        server, client = self.inner.init(params)
        down, rd = self.inner.broadcast(server), Round(0, 1.0, 1, 1, 1)
        return self.inner.push(client, down, self.inner.pull(client, down), rd)[1]

    def _check(self, up: Message) -> None:
        """Raise ValueError if the compressor does not fit what is pushed."""
        shapes = [tuple(getattr(leaf, "shape", ())) for leaf in tree.leaves(up)]
        coded = [shape for shape in shapes if self._codes(shape)]
        for shape in coded:
            self.compressor.check(shape)
        if not coded and any(shapes):
            raise ValueError(
                f"{self.compressor!r} fits no array of this model, which would be sent as "
                f"it is; got shapes {', '.join(map(str, shapes))}."
            )


def coded_in(algorithm: Algorithm) -> Compressed | None:
    """Give the Compressed inside of all that is wrapped around it, if there is one."""
    return next((layer for layer in layers(algorithm) if isinstance(layer, Compressed)), None)


def with_codec(algorithm: Any, compressor: Compressor) -> Algorithm:
    """Give the same algorithm, whose Compressed has another compressor."""
    if isinstance(algorithm, Compressed):
        return replace(algorithm, compressor=compressor)
    return replace(algorithm, inner=with_codec(algorithm.inner, compressor))


def _has_axes(part: Tree) -> bool:
    """Whether a part of a message is more than a number."""
    return isinstance(part, dict | tuple) or getattr(part, "shape", ()) != ()


def _by_path(f: Callable[[str, Any], Any], path: str, a: Tree) -> Tree:
    """Apply f to every leaf and its path, by which leaves are told apart."""
    if isinstance(a, dict):
        return {name: _by_path(f, f"{path}/{name}", a[name]) for name in a}
    if isinstance(a, tuple):
        parts = zip(a._fields, a, strict=True)  # type: ignore[attr-defined]
        return type(a)(*(_by_path(f, f"{path}/{name}", part) for name, part in parts))
    return f(path, a)
