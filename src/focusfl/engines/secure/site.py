"""A site whose pushes leave it masked."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from focusfl.core import GradFn
from focusfl.engines.protocol import files
from focusfl.engines.protocol.format import Refused, Wired, encode, header, pack, unpack
from focusfl.engines.protocol.messages import Request
from focusfl.engines.protocol.site import Site
from focusfl.engines.secure import crypto
from focusfl.engines.secure.held import Held, load, save
from focusfl.engines.secure.messages import (
    STAGES,
    Said,
    Stage,
    only,
    read,
    table,
    write,
)
from focusfl.engines.secure.numbers import to_numbers
from focusfl.engines.secure.policy import Secure, fixed_point
from focusfl.tree import Tree

SHARES = 2 * crypto.SECRET  # bytes that one site holds for another: of seed and key

Compute = Callable[[Wired], Wired]  # the plain protocol's reply to its request


@dataclass(frozen=True)
class SecureSite(Site):
    """A site that answers the four stages of a session, and no plain request.

    In one session it masks one push and opens one set of sites, whatever it is asked
    and however often it is killed: what it has said is on disk before it is said.
    """

    secure: Secure = Secure()
    packs: ClassVar[bool] = False  # what is masked are numbers

    def __post_init__(self):
        Site.__post_init__(self)
        fixed_point(self.algorithm)  # raises if it sends none

    @property
    def path(self) -> Path:
        """Where a session's secrets are: beside the site's state."""
        return self.disk.path.with_suffix(".session")

    def _reply(
        self,
        message: Wired,
        grad_fn: GradFn | None,
        batch_of: Callable[[int], Any] | None,
    ) -> Wired:
        head = header(message)
        if "stage" not in head.fields:
            raise Refused(f"{self.site} answers to secure sums alone.")
        said = read(message, head)
        stage = said.stage
        ours = repr(self.secure), self.job, self.site
        for own, other in zip(ours, stage[1:4], strict=True):
            if own != other:
                raise Refused(f"it is for {other[:80]!a}; this is {own}.")
        if not self.path.exists():
            files.make_folder(self.path.parent)
        with files.lock(self.path, wait=True):
            held = load(self.path)
            if held and held.request == said.digest:
                files.sync(self.path.parent)  # its writer may have died before that
                return held.reply  # one of the two did not get through
            self._check_turn(stage, held)

            def plain(request: Wired) -> Wired:
                return Site._reply(self, request, grad_fn, batch_of)

            if held is None or stage.stage == "keys":
                held, parts = self._keys(said)
            elif stage.stage == "shares":
                held, parts = self._shares(said, held)
            elif stage.stage == "push":
                held, parts = self._push(said, held, plain)
            else:
                held, parts = self._unmask(said, held)
            reply = write(stage, parts)
            save(self.path, held._replace(request=said.digest, reply=reply))
            return reply

    def _check_turn(self, stage: Stage, held: Held | None) -> None:
        """Raise Refused unless this stage is the next one of the session at hand."""
        ours = (held.incarnation, held.session) if held else None
        if stage.stage == "keys":
            if held and stage.incarnation == held.incarnation:
                if stage.session <= held.session:
                    raise Refused(f"session {stage.session} is over.")
            return
        if held is None or (stage.incarnation, stage.session) != ours:
            raise Refused(f"{self.site} is not in session {stage.session}.")
        if STAGES.index(stage.stage) != held.done + 1:
            raise Refused(f"{stage.stage} is out of turn in session {stage.session}.")

    def _keys(self, said: Said) -> tuple[Held, dict[str, Any]]:
        only(said)
        keys = crypto.new_keys()
        held = Held(said.stage.incarnation, said.stage.session, 0, keys)
        return held, {"public": keys.public}

    def _shares(self, said: Said, held: Held) -> tuple[Held, dict[str, Any]]:
        """Share the secrets among all; everybody's part is sealed for them."""
        only(said, "public")
        public, keys = table(said, "public", 2 * crypto.SECRET), held.keys
        sites = sorted(public)
        if public.get(self.site) != keys.public or len({*public.values()}) < len(sites):
            raise Refused("its keys are not one of each site, and ours among them.")
        self._check_many(len(sites), len(sites))
        threshold = self.secure.opening(len(sites))
        seeds = crypto.split(keys.seed, threshold, len(sites))
        masks = crypto.split(keys.mask, threshold, len(sites))
        sealed, digests = {}, {}
        for other, seed, key in zip(sites, seeds, masks, strict=True):
            digests[other] = crypto.digest(seed) + crypto.digest(key)
            about = said.stage.about + f" {self.site} {other}".encode()
            with_other = crypto.agree(
                keys.seal, public[other][: crypto.SECRET], b"seal"
            )
            sealed[other] = crypto.seal(with_other, seed + key, about)
        parts = {"sealed": sealed, "digests": digests, "seed": crypto.digest(keys.seed)}
        return held._replace(done=1, public=public), parts

    def _push(
        self, said: Said, held: Held, plain: Compute
    ) -> tuple[Held, dict[str, Any]]:
        """Compute a push by the plain protocol, and give it masked.

        Only what does not depend on the data leaves the site as it is: the header of
        the reply, and a checksum in which there is something random.
        """
        only(said, "sealed", "request")
        sealed = table(said, "sealed")
        if not {self.site} <= sealed.keys() <= held.public.keys():
            raise Refused("it is of other sites than those that have shared keys.")
        self._check_many(len(sealed), len(held.public))
        shares = {}
        for other, box in sealed.items():
            key = held.public[other][: crypto.SECRET]
            about = said.stage.about + f" {other} {self.site}".encode()
            try:
                with_other = crypto.agree(held.keys.seal, key, b"seal")
                shares[other] = crypto.unseal(with_other, box, about)
            except Refused:  # that site's fault: others may hold enough of its shares
                shares[other] = b""
        reply = plain(table(said, "request"))
        head = header(reply)
        fields = {name: head.fields[name] for name in head.fields}
        parts = {"reply": encode(fields, pack({}))["header"]}
        if head.fields["kind"] in ("push", "goodbye"):
            up = unpack(reply, head)["up"]
            numbers = to_numbers(up, fixed_point(self.algorithm))
            others = {
                other: held.public[other][crypto.SECRET :]
                for other in sealed
                if other != self.site
            }
            own = crypto.mask(held.keys.seed, numbers.size)
            with_others = crypto.between(
                self.site, held.keys.mask, others, numbers.size
            )
            parts["masked"] = (numbers + own + with_others).tobytes()
            parts["digest"] = head.digest.encode()
        return held._replace(done=2, shares=shares), parts

    def _unmask(self, said: Said, held: Held) -> tuple[Held, dict[str, Any]]:
        """Give shares: of the seeds of who has pushed, of the mask keys of who has not.

        Never both of one site: they open its push.
        """
        only(said, "pushed")
        pushed = table(said, "pushed", 0).keys()
        if not {self.site} <= pushed <= held.shares.keys():
            raise Refused("it is of other sites than those that were asked to push.")
        self._check_many(len(pushed), len(held.public))
        whole = {
            site: part for site, part in held.shares.items() if len(part) == SHARES
        }
        seeds = {s: whole[s][: crypto.SECRET] for s in whole if s in pushed}
        keys = {s: whole[s][crypto.SECRET :] for s in whole if s not in pushed}
        return held._replace(done=3, shares={}), {"seeds": seeds, "keys": keys}

    def _check_many(self, sites: int, shared: int) -> None:
        least = self.secure.needed(shared)
        if sites < least:
            raise Refused(f"it is of {sites} sites; at least {least} must take part.")

    def _encode(
        self,
        request: Request,
        kind: str,
        grads_done: int,
        sections: dict[str, Tree] | None = None,
        latest: int | None = None,
    ) -> Wired:
        """As it is, with something random: from its checksum no push can be guessed."""
        salt = {"salt": np.frombuffer(os.urandom(16), "|u1")} if sections else {}
        return Site._encode(
            self, request, kind, grads_done, (sections or {}) | salt, latest
        )
