"""Who may call a SuperLink, asked of its doors without a network."""

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from focusfl.deploy import certificates, doors
from focusfl.deploy.doors import MIB, Doors, Keys

TOKEN = "t0ken"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("doors") / "keys"
    certificates.make(place, ["localhost"], ["paris", "rome"])
    return place


class Counted:
    """A web app that counts who comes in."""

    def __init__(self):
        self.calls = 0

    async def __call__(self, scope, receive, send):
        self.calls += 1


def headers(private, at=None, **more):
    """What a SuperNode with a key says of itself."""
    now = (at or datetime.now(UTC)).isoformat()
    key = base64.b64encode(public_key_to_bytes(private.public_key()))
    signature = base64.b64encode(sign_message(private, now.encode()))
    said = {"flwr-public-key": key, "flwr-signature": signature}
    return said | {"flwr-timestamp": now.encode()} | more


def private_key(folder, site):
    return load_ssh_private_key((folder / site).read_bytes(), None)


def scope(path, said=None, size=10, client="10.1.1.1", method="POST"):
    own = {"content-length": str(size).encode()} if size is not None else {}
    own |= said or {}
    return {
        "type": "http", "method": method, "path": path, "client": (client, 1),
        "headers": [(name.encode(), value) for name, value in own.items()],
    }  # fmt: skip


def closed(folder, **more):
    return Doors(Counted(), Keys(folder), TOKEN, say=lambda words: None, **more)


def status(door, request):
    refusal = door.refusal(request)
    return None if refusal is None else refusal.status


def test_sites_reach_the_calls_of_sites_and_nothing_else(folder):
    door, said = closed(folder), headers(private_key(folder, "paris"))
    for name in doors.CALLS:
        assert status(door, scope(f"/v1/fleet/{name}", said)) is None
    for path in (
        "/v1/fleet/register-node", "/v1/fleet/unregister-node", "/v1/fleet/get-run/",
        "/v1/fleet/../control/start-run", "/v1/runtime/acquire-task", "/openapi.json",
        "/health", "/V1/FLEET/pull-messages", "//v1/fleet/pull-messages", "/", "",
    ):  # fmt: skip
        assert status(door, scope(path, said)) == 403, path
    assert status(door, scope("/v1/control/start-run", said)) == 401
    assert status(door, scope("/v1/fleet/pull-messages", said, method="GET")) == 403


def test_who_has_the_key_of_no_site_is_refused_before_anything_is_read(folder):
    paris, path = private_key(folder, "paris"), "/v1/fleet/activate-node"
    other = ec.generate_private_key(ec.SECP384R1())
    good, bad = headers(paris), headers(other)
    wrong = {
        "a key of their own": bad,
        "the key of another": bad | {"flwr-public-key": good["flwr-public-key"]},
        "no signature": {k: v for k, v in good.items() if k != "flwr-signature"},
        "an old one": headers(paris, datetime.now(UTC) - timedelta(minutes=6)),
        "one of the future": headers(paris, datetime.now(UTC) + timedelta(minutes=1)),
        "no time": good | {"flwr-timestamp": b"now"},
        "no zone": good | {"flwr-timestamp": b"2026-01-01T00:00:00"},
        "no base64": good | {"flwr-public-key": b"\xff"},
        "nothing": {},
    }
    door = closed(folder)
    for what, said in wrong.items():
        assert status(door, scope(path, said)) == 403, what
    twice = scope(path, good)
    twice["headers"].append((b"flwr-public-key", bad["flwr-public-key"]))
    assert status(door, twice) == 403
    assert status(door, scope(path, good)) is None


def test_operators_show_their_token_wherever_they_are(folder):
    door, path = closed(folder), "/v1/control/start-run"
    good = {"authorization": f"Bearer {TOKEN}".encode()}
    for client in ("127.0.0.1", "10.1.1.1"):
        assert status(door, scope(path, good, client=client)) is None
        for said in ({}, {"authorization": b"Bearer x"}, {"authorization": b""}):
            assert status(door, scope(path, said, client=client)) == 401


def test_the_server_app_is_on_this_machine(folder):
    door, path = closed(folder), "/v1/runtime/acquire-task"
    assert status(door, scope(path, client="127.0.0.1")) is None
    assert status(door, scope(path, client="10.1.1.1")) == 403


def test_a_large_answer_is_refused_piece_by_piece(folder):
    """Flower sends an answer in pieces: it is their sum that may not be too large."""
    door, said = closed(folder, largest=20 * MIB), headers(private_key(folder, "rome"))
    begin, piece = "/v1/fleet/push-messages", "/v1/fleet/push-object"
    for _ in range(2):
        assert status(door, scope(begin, said, 1000)) is None
        found = [status(door, scope(piece, said, 5 * MIB)) for _ in range(6)]
        assert found == [None] * 3 + [413] * 3
        for name in ("send-node-heartbeat", "pull-messages"):  # it may go on
            assert status(door, scope(f"/v1/fleet/{name}", said)) is None
    other = headers(private_key(folder, "paris"))
    assert status(door, scope(piece, other, 5 * MIB)) is None
    assert status(door, scope(piece, other, 65 * MIB)) == 413
    assert status(door, scope(piece, other, None)) == 411
    assert status(door, scope(piece, other | {"content-length": b"-1"}, None)) == 411


def test_who_sends_too_often_is_told_to_come_later(folder, monkeypatch):
    monkeypatch.setattr(doors, "OFTEN", 40)
    clock = [0.0]
    door = closed(folder, largest=MIB, clock=lambda: clock[0])
    said = headers(private_key(folder, "rome"))
    begin = scope("/v1/fleet/push-messages", said, MIB)
    found = [status(door, begin) for _ in range(20)]
    assert found == [None] * doors.ANSWERS + [503] * 4
    clock[0] += 60 / doors.ANSWERS
    assert [status(door, begin) for _ in range(2)] == [None, 503]
    clock[0] += 60
    look = scope("/v1/fleet/pull-messages", said, 0)
    calls = [status(door, look) for _ in range(doors.OFTEN + 5)]
    assert calls == [None] * doors.OFTEN + [503] * 5


def test_a_site_that_is_added_is_let_in_and_a_broken_key_changes_nothing(
    folder, tmp_path, monkeypatch
):
    clock = count()
    monkeypatch.setattr(doors.time, "monotonic", lambda: float(next(clock)))
    keys, lines = tmp_path / "keys", []
    certificates.make(keys, ["localhost"], ["paris"])
    sites = Keys(keys, lines.append)
    assert [*sites().values()] == ["paris"]
    certificates.make(keys, [], ["oslo"])
    assert {*sites().values()} == {"paris", "oslo"}
    (keys / "broken.pub").write_text("ssh-nothing AAAA")
    assert {*sites().values()} == {"paris", "oslo"} and len(lines) == 1
    (keys / "broken.pub").write_bytes((keys / "oslo.pub").read_bytes())
    assert {*sites().values()} == {"paris", "oslo"} and "broken and oslo" in lines[1]


def test_a_refusal_is_said_once_a_second_and_cannot_leave_its_line(folder):
    clock, lines, sent = [0.0], [], []
    app = Counted()
    door = Doors(app, Keys(folder), TOKEN, say=lines.append, clock=lambda: clock[0])

    async def send(message):
        sent.append(message)

    def call(path, **more):
        asyncio.run(door(scope(path, **more), None, send))

    for _ in range(5):
        call("/\x1b[2J\nroot logged in")
    clock[0] += 2
    call("/v1/runtime/x", client="127.0.0.1")
    call("/x")
    assert app.calls == 1 and len(lines) == 2 and "(4 more were refused)" in lines[1]
    assert all("\n" not in line and "\x1b" not in line for line in lines)
    assert [m["status"] for m in sent if "status" in m] == [403] * 6
    asyncio.run(door({"type": "websocket"}, None, send))
    assert app.calls == 1 and sent[-1]["type"] == "websocket.close"
    asyncio.run(door({"type": "lifespan"}, None, send))
    assert app.calls == 2
