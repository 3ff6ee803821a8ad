"""The doors of a SuperLink: who may call what, decided before a request is read.

Flower 1.41 has one port for three kinds of callers. Fleet is for the sites, Control for
operators, who can run code everywhere, Runtime for the server app. Of these it asks the
sites alone who they are, and that after it has read all they send.
"""

import base64
import binascii
import datetime
import hmac
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from flwr.common.constant import SYSTEM_TIME_TOLERANCE as DRIFT
from flwr.common.constant import TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
)
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

from focusfl.flower import public_keys

CALLS = (
    "activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages",
    "push-messages", "get-run", "get-fab", "push-object", "pull-object",
    "confirm-message-received",
)  # fmt: skip
UNKNOWN = ("register-node", "unregister-node")  # what nodes without a key call too
SITES, OPERATORS, SERVER = "/v1/fleet/", "/v1/control/", "/v1/runtime/"
ANSWER = SITES + "push-messages"  # with which a site begins an answer
PIECE = SITES + "push-object"  # with which it goes on
NEAR = ("127.0.0.1", "::1")
MIB = 2**20
LARGEST = 256 * MIB  # bytes of an answer, if nothing else is said
REQUEST = 64 * MIB  # bytes of a request: Flower sends models in pieces of 5 MiB
MINUTE = 60.0
OFTEN = 6000  # calls of a site in a minute
ANSWERS = 16  # of the largest in a minute
MANY = 10_000  # callers that are remembered
HEADERS = (FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TIMESTAMP_HEADER)

Call = Callable[..., Awaitable[Any]]


class Refusal(NamedTuple):
    status: int
    who: str
    why: str


class Allowance:
    """So much in a minute, and never more at once."""

    def __init__(self, most: float | int, clock: Callable[[], float]):
        self._most, self._clock, self._at = most, clock, clock()
        self._left: float | int = most

    def take(self, amount: int) -> bool:
        """Whether there is so much left; then it is taken."""
        now = self._clock()
        gained = (now - self._at) / MINUTE * self._most
        self._left, self._at = min(self._most, self._left + gained), now
        if amount > self._left:
            return False
        self._left -= amount
        return True


class _Caller:
    """What a site has done of late."""

    def __init__(self, largest: int, clock: Callable[[], float]):
        self.calls, self.answer = Allowance(OFTEN, clock), 0
        self.bytes = Allowance(ANSWERS * largest, clock)


class Keys:
    """The sites that have a key in a folder; those added later are found too."""

    def __init__(self, folder: Path, say: Callable[[str], None] = print):
        self._folder, self._say, self._looked = folder, say, -1.0
        self._texts: dict[str, bytes] = {}
        self._sites: dict[bytes, str] = {}

    def __call__(self) -> Mapping[bytes, str]:
        now = time.monotonic()
        if now - self._looked >= 1.0:
            self._looked = now
            texts = public_keys.in_folder(self._folder)
            if texts != self._texts:
                self._texts = texts
                self._read()
        return self._sites

    def _read(self) -> None:
        try:
            self._sites = public_keys.read(self._folder, [*self._texts])
        except ValueError as error:  # the doors stay as they were
            self._say(f"the sites are those of before: {error}")


class Doors:
    """A web app that lets in sites, operators and the server app, each to their own.

    Sites sign every call with a key that `sites` knows; None: whoever comes may be a
    site. Operators show the token. The server app runs on this machine, and Flower asks
    it for a secret. A site may send `largest` bytes with an answer.
    """

    def __init__(
        self, app: Call, sites: Callable[[], Mapping[bytes, str]] | None, token: str,
        largest: int = LARGEST, *, clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = print,
    ):  # fmt: skip
        self._app, self._sites, self._largest = app, sites, largest
        self._token, self._clock, self._say = f"Bearer {token}".encode(), clock, say
        self._callers: dict[str, _Caller] = {}
        self._said, self._silent = clock() - 1.0, 0
        calls = CALLS if sites else (*CALLS, *UNKNOWN)
        self._calls = frozenset(SITES + name for name in calls)

    async def __call__(self, scope: dict[str, Any], receive: Call, send: Call) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = self.refusal(scope) if scope["type"] == "http" else None
        if scope["type"] == "http" and refusal is None:
            await self._app(scope, receive, send)
        elif refusal is None:
            await send({"type": "websocket.close", "code": 1008})
        else:
            self._tell(scope, refusal)
            await _answer(send, refusal)

    def refusal(self, scope: Mapping[str, Any]) -> Refusal | None:
        """Why a request is refused, by what is known before it is read."""
        headers, path = scope["headers"], scope["path"]
        who = (scope.get("client") or ("somebody",))[0]
        if scope["method"] != "POST":
            return Refusal(403, who, "nothing here is for everybody")
        length = _one(headers, "content-length")
        if length is None or not length.isdigit():
            return Refusal(411, who, "it does not say how long it is")
        if int(length) > REQUEST:
            return Refusal(413, who, f"{int(length)} bytes are more than {REQUEST}")
        if path in self._calls:
            return self._site(headers, who, path, int(length))
        if path.startswith(OPERATORS):
            shown = _one(headers, "authorization") or b""
            if not hmac.compare_digest(shown, self._token):
                return Refusal(401, who, "it does not show the operators' token")
        elif not path.startswith(SERVER):
            return Refusal(403, who, "nobody may call this")
        elif who not in NEAR:
            return Refusal(403, who, "it is for the server app on this machine")
        return None

    def _site(self, headers: Any, who: str, path: str, size: int) -> Refusal | None:
        shown = [_one(headers, name) or b"" for name in HEADERS]
        if self._sites is None:
            who = shown[0].decode("latin1")[-100:]
        else:
            site = _signed(shown, self._sites())
            if site is None:
                return Refusal(403, who, "it has the key of no site")
            who = site
        if len(self._callers) > MANY:
            self._callers.clear()
        caller = self._callers.setdefault(who, _Caller(self._largest, self._clock))
        if path == ANSWER:
            caller.answer = 0
        caller.answer += size if path in (ANSWER, PIECE) else 0
        if caller.answer > self._largest and path in (ANSWER, PIECE):
            why = f"its answer is larger than {self._largest / MIB:g} MiB"
            return Refusal(413, who, why)
        if not caller.calls.take(1) or not caller.bytes.take(size):
            return Refusal(503, who, "it sends too much in a minute")  # it tries again
        return None

    def _tell(self, scope: Mapping[str, Any], refusal: Refusal) -> None:
        """Log a refusal, but not more than one in a second."""
        now = self._clock()
        if now - self._said < 1.0:
            self._silent += 1
            return
        more = f" ({self._silent} more were refused)" if self._silent else ""
        self._said, self._silent = now, 0
        what, who = ascii(scope["path"][:100]), ascii(refusal.who)
        self._say(f"refused: {what} to {who}: {refusal.why}{more}")


def _signed(shown: list[bytes], sites: Mapping[bytes, str]) -> str | None:
    """Which site has signed that it is now; None if none has."""
    try:
        key, signature = (base64.b64decode(each, validate=True) for each in shown[:2])
        at = datetime.datetime.fromisoformat(shown[2].decode("ascii"))
        age = (datetime.datetime.now(datetime.UTC) - at).total_seconds()
        if key not in sites or not -DRIFT < age < TIMESTAMP_TOLERANCE + DRIFT:
            return None
        signed = verify_signature(bytes_to_public_key(key), shown[2], signature)
    except (ValueError, TypeError, binascii.Error):
        return None
    return sites[key] if signed else None


def _one(headers: Iterable[tuple[bytes, bytes]], name: str) -> bytes | None:
    """A header that is there exactly once."""
    found = [value for key, value in headers if key.lower() == name.encode()]
    return found[0] if len(found) == 1 else None


async def _answer(send: Call, refusal: Refusal) -> None:
    body = f"refused: {refusal.why}".encode()
    headers = [
        (b"content-type", b"text/plain"), (b"connection", b"close"),
        (b"content-length", str(len(body)).encode()),
    ]  # fmt: skip
    start = {"type": "http.response.start", "status": refusal.status}
    await send({**start, "headers": headers})
    await send({"type": "http.response.body", "body": body})
