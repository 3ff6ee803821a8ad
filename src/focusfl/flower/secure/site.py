"""A site whose pushes leave it masked."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from focusfl.core import GradFn
from focusfl.core.files import make_folder, take_lock
from focusfl.flower.protocol.messages import (
    Refused,
    Reply,
    Request,
    Wired,
    decode,
    encode,
    fields_of,
    load_flat,
)
from focusfl.flower.protocol.site import Site
from focusfl.flower.secure import crypto
from focusfl.flower.secure.held import Held, load, read_parts, save, write_parts
from focusfl.flower.secure.messages import STAGES, Said, Stage, only, read, table, write
from focusfl.flower.secure.numbers import to_numbers
from focusfl.flower.secure.policy import Secure, fixed_point

SHARES = 2 * crypto.SECRET  # bytes that one site holds for another: of seed and key

Compute = Callable[[Wired], Wired]  # the plain protocol's reply to its request


@dataclass(frozen=True)
class SecureSite(Site):
    """A site that answers the four stages of a session, and no plain request.

    In one session it masks one push and opens one set of sites, whatever it is asked
    and however often it is killed: what it has said is on disk before it is said. The
    server sees no push and so cannot keep the site's state: that is on the site's disk
    too, and the server knows its version alone.
    """

    secure: Secure = Secure()
    compresses: ClassVar[bool] = False  # what is masked are numbers

    def __post_init__(self):
        Site.__post_init__(self)
        if self.folder is None:
            raise ValueError("a site of secure sums needs a folder that lasts.")
        fixed_point(self.algorithm)  # raises if it sends none

    def path(self, suffix: str) -> Path:
        """Where a session's secrets are, or this site's state."""
        place = Path(self.folder or "").expanduser() / self.job
        return place / f"{self.site}.{suffix}"

    def answer(
        self,
        message: Wired,
        grad_fn: GradFn,
        batch_of: Callable[[int], Any] | None = None,
    ) -> Wired:
        return self._answer(message, lambda asked: Site.answer(self, asked, grad_fn, batch_of))

    def leave(self, message: Wired) -> Wired:
        return self._answer(message, lambda asked: Site.leave(self, asked))

    def _answer(self, message: Wired, plain: Compute) -> Wired:
        if "stage" not in fields_of(message):
            raise Refused(f"{self.site} answers to secure sums alone.")
        said = read(message)
        stage, path = said.stage, self.path("session")
        ours = repr(self.secure), self.job, self.site
        for own, other in zip(ours, stage[1:4], strict=True):
            if own != other:
                raise Refused(f"it is for {other[:80]!a}; this is {own}.")
        make_folder(path.parent, private=True)
        with open(f"{path}.lock", "wb") as lock:
            take_lock(lock.fileno(), wait=True)
            held = load(path)
            if held and held.request == said.digest:
                return held.reply  # one of the two did not get through
            self._check_turn(stage, held)
            if held is None or stage.stage == "keys":
                held, parts = self._keys(said)
            elif stage.stage == "shares":
                held, parts = self._shares(said, held)
            elif stage.stage == "push":
                held, parts = self._push(said, held, plain)
            else:
                held, parts = self._unmask(said, held)
            reply = write(stage, parts)
            save(path, held._replace(request=said.digest, reply=reply))
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
            with_other = crypto.agree(keys.seal, public[other][: crypto.SECRET], b"seal")
            sealed[other] = crypto.seal(with_other, seed + key, about)
        parts = {"sealed": sealed, "digests": digests, "seed": crypto.digest(keys.seed)}
        return held._replace(done=1, public=public), parts

    def _push(self, said: Said, held: Held, plain: Compute) -> tuple[Held, dict[str, Any]]:
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
        self.cache.clear()
        self.cache.update(read_parts(self.path("state")))
        reply = plain(table(said, "request"))
        fields, name = decode(reply, Reply, {"up", "state", "salt"})
        parts = {"reply": encode(fields, {})["header"]}
        if fields.kind == "push":
            numbers = to_numbers(load_flat(reply["up"]), fixed_point(self.algorithm))
            others = {
                other: held.public[other][crypto.SECRET :] for other in sealed if other != self.site
            }
            own = crypto.mask(held.keys.seed, numbers.size)
            with_others = crypto.between(self.site, held.keys.mask, others, numbers.size)
            parts["masked"] = (numbers + own + with_others).tobytes()
            parts["digest"] = name.encode()
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
        whole = {site: part for site, part in held.shares.items() if len(part) == SHARES}
        seeds = {s: whole[s][: crypto.SECRET] for s in whole if s in pushed}
        keys = {s: whole[s][crypto.SECRET :] for s in whole if s not in pushed}
        return held._replace(done=3, shares={}), {"seeds": seeds, "keys": keys}

    def _check_many(self, sites: int, shared: int) -> None:
        least = self.secure.needed(shared)
        if sites < least:
            raise Refused(f"it is of {sites} sites; at least {least} must take part.")

    def _keep(self, version: str, state: bytes, new_version: str, new: bytes) -> None:
        Site._keep(self, version, state, new_version, new)
        write_parts(self.path("state"), dict(self.cache))

    def _reply(self, request: Request, kind: str, parts: dict[str, bytes] | None = None) -> Wired:
        """As it is, with something random: from its digest no push can be guessed."""
        salt = {"salt": os.urandom(16)} if parts else {}
        return Site._reply(self, request, kind, (parts or {}) | salt)
