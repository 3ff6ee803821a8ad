"""A site of secure sums: the plain one, whose pushes are masked and whose states are sealed."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from focusfl.core import Client, GradFn
from focusfl.flower.protocol.messages import (
    Refused,
    Request,
    Wired,
    leaves,
    pack,
    paths,
    unpack,
)
from focusfl.flower.protocol.site import Inputs, Site
from focusfl.flower.secure.journal import (
    Journal,
    about_server,
    about_site,
    pack_client,
    pack_state,
    push_like,
    replay,
    unpack_client,
)
from focusfl.flower.secure.keys import Keys
from focusfl.flower.secure.numbers import to_numbers
from focusfl.flower.secure.policy import Secure, fixed_point

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SecureSite(Site):
    """A site that opens the server's journal, and gives nothing that the server can read.

    Attributes:
        secure: the value that the server has.
        keys: those of all sites of the job.
    """

    secure: Secure = Secure()
    keys: Keys = field(default=Keys(()), kw_only=True)
    compresses: ClassVar[bool] = False  # what is masked are numbers
    carries: ClassVar[tuple[str, ...]] = ("journal", "state", "new", "renew")

    def __post_init__(self):
        Site.__post_init__(self)
        fixed_point(self.algorithm)  # raises if it sends no whole numbers
        if not self.keys.secrets:
            raise ValueError("a site of secure sums needs keys=Keys.read(FILE); got none.")

    def answer(
        self, message: Wired, grad_fn: GradFn, batch_of: Callable[[int], Any] | None = None
    ) -> Wired:
        try:
            return Site.answer(self, message, grad_fn, batch_of)
        except Refused:  # whatever is sealed or masked
            raise
        except Exception:
            # The server may have chosen the model, and must not learn whether it fails here.
            log.exception("%s has no gradient to give: it pushes 0", self.site)
            inputs = self._open(self._read(message)[0], message)
            size = sum(leaf.size for leaf in leaves(push_like(self.algorithm, inputs.down["x"])))
            parts = self._seal(inputs, np.zeros(size, "<u8"), inputs.state)
            return self._reply(inputs.request, "push", parts)

    def _open(self, request: Request, message: Wired) -> Inputs:
        journal = Journal.from_bytes(message["journal"])
        opened = replay(self.algorithm, journal, self.keys, self.job, self.secure)
        state: Client | None = None
        if "new" in message:
            state = opened.initial
        elif "state" in message:
            blob = self.keys.open(message["state"], about_site(self.job, self.site))
            state = unpack_client(self.algorithm, blob, opened.initial)
        elif (cached := self.cache.get(request.version)) is not None:
            state = unpack(cached, opened.initial)
        return Inputs(request, message, self.algorithm.broadcast(opened.server), state, opened)

    def _parts(self, inputs: Inputs, up: Any, new: Client) -> tuple[dict[str, bytes], bytes]:
        numbers = to_numbers(dict(paths(up)), fixed_point(self.algorithm))
        if not self.algorithm.sends_state:
            # As the plain server derives it: sums hold what was sent, not what was due.
            new = self.algorithm.state_after(inputs.state, up, inputs.down, inputs.request.rd)
        after = pack(new)
        return self._seal(inputs, numbers, new), after

    def _seal(self, inputs: Inputs, numbers: np.ndarray, state: Client) -> dict[str, bytes]:
        """Give the parts of a push of these numbers, after which the site has this state."""
        packed = pack_client(self.algorithm, state)
        sealed = self.keys.seal(packed, about_site(self.job, self.site))
        parts = {"up": self.keys.mask(numbers), "state": sealed}
        if "renew" in inputs.message:
            base = pack_state(self.algorithm, inputs.opened)
            parts["base"] = self.keys.seal(base, about_server(self.job))
        return parts
