"""Servers that lie: what they are given is never a push, nor anything that tells of one."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from focusfl.flower.protocol import Refused
from focusfl.flower.protocol.messages import Request, decode, encode, pack
from focusfl.flower.secure import Keys
from focusfl.flower.secure.journal import OPEN, Journal, State, pack_state
from focusfl.flower.secure.keys import ID, PREFIX
from secure.jobs import ALGORITHM, DIM, KEYS, NAMES, answer, gradient, open_server, open_sites, play

SIZE = PREFIX + 8 * DIM


class Liar:
    """A server that keeps all it was ever sent, and sends whatever it likes."""

    def __init__(self, folder):
        self.server, self.sites = open_server(folder), open_sites()
        self.replies = [play(self.server, self.sites) for _ in range(3)]
        self.journal = self.server._journal

    def request(self, site, journal=None, state=None, **header):
        """Make a request of any journal and state."""
        wired = self.server.request(site)
        fields, _ = decode(wired, Request, {"journal", "state", "new", "renew"})
        parts = {"journal": (journal or self.journal).to_bytes(), "renew": b""}
        state = self.replies[-1][site]["state"] if state is None else state
        parts |= {"state": state} if state else {"new": b""}
        return encode(fields._replace(**header), parts)

    def ask(self, site, *args, **how):
        return answer(self.sites[site], self.request(site, *args, **how))

    def base_of(self, x):
        """Write a base of its own, around a model that it has chosen."""
        server, client = ALGORITHM.init(np.asarray(x, float))
        return Journal(OPEN + pack_state(ALGORITHM, State(server, client)))


@pytest.fixture
def liar(tmp_path):
    liar = Liar(tmp_path)
    yield liar
    liar.server.close()


def numbers(reply):
    return np.frombuffer(reply["up"][PREFIX:], "<u8")


def push_of(reply):
    """What the server would like to know; the test has the key."""
    masked, prefix = numbers(reply), reply["up"][:PREFIX]
    return KEYS.unmask(masked, [prefix]).view("<i8") * 2.0**-44


def test_an_honest_push_looks_like_a_random_one(tmp_path):
    """Bits of 1,500 pushes: each is 0 as often as 1, and no two bits agree more than by chance."""
    pushes = np.array([[3, 2**40, -1]] * 1500, "<i8").view("<u8")
    masked = np.array([np.frombuffer(KEYS.mask(row)[PREFIX:], "<u8") for row in pushes])
    bits = np.unpackbits(masked.view(np.uint8), axis=1).astype(float)
    limit = 5 / np.sqrt(len(bits))  # five standard deviations
    assert np.abs(2 * bits.mean(0) - 1).max() < limit
    alike = np.corrcoef(bits.T) - np.eye(bits.shape[1])
    assert np.abs(alike).max() < limit
    plain = np.unpackbits(pushes.view(np.uint8), axis=1).astype(float)
    assert np.abs(2 * plain.mean(0) - 1).max() > limit  # it finds what is not random


def test_the_model_that_the_others_had(liar):
    """The attack on masks that cancel: a push at an unchanged model is 0, so a sum of one
    push and of zeros is that push. Here the others' zeros are masked, too."""
    old, new = liar.base_of(np.zeros(DIM)), liar.base_of(np.ones(DIM))
    for _ in range(2):
        others = [liar.ask(name, old, state=b"") for name in NAMES[1:]]
    victim = liar.ask(NAMES[0], new, state=b"")
    total = sum(map(numbers, [victim, *others]))
    push = push_of(victim)
    assert np.abs(push).min() > 1e-3
    guesses = [total, numbers(victim), numbers(victim) - numbers(others[0])]
    for guess in guesses:
        assert np.abs(guess.view("<i8") * 2.0**-44 - push).min() > 1e-3
    # With the key it is that: the test would see it.
    masks = [reply["up"][:PREFIX] for reply in (victim, *others)]
    everything = KEYS.unmask(total, masks).view("<i8") * 2.0**-44
    assert np.allclose(everything, push + sum(map(push_of, others)))


def test_the_same_request_twice_has_two_masks(liar):
    """A mask that is used twice would give the difference of two pushes."""
    first, second = liar.ask("north"), liar.ask("north")
    assert np.array_equal(push_of(first), push_of(second))
    assert first["up"][:PREFIX] != second["up"][:PREFIX]
    assert not (numbers(first) == numbers(second)).any()
    assert first["state"] != second["state"] and first["base"] != second["base"]


def test_a_sum_of_one_push_is_opened_by_nobody(liar):
    """Else a site would learn it; and the server, where the site acted on it visibly."""
    push = liar.replies[-1]["north"]["up"]
    fields = {"masks": [push[:PREFIX].hex()], "index": 3, "lr": 0.1, "local_steps": 1,
              "num_clients": 4, "num_active": 1}  # fmt: skip
    for masks in ([push[:PREFIX].hex()], 2 * [push[:PREFIX].hex()]):
        journal = liar.journal.add("update", push[PREFIX:], **fields | {"masks": masks})
        with pytest.raises(Refused, match="a sum must be of 2 different pushes at least"):
            liar.ask("south", journal)


def test_played_sites_and_forged_states(liar):
    """Without the key there is no base, no state and no sealed push of another site."""
    mine = Keys((bytes(32),))
    forged = mine.seal(liar.base_of(np.ones(DIM)).base[ID:], "server of job")
    with pytest.raises(Refused, match="needs the key"):
        liar.ask("north", Journal(forged))
    pretended = liar.replies[-1]["north"]["base"][:PREFIX] + forged[PREFIX:]
    with pytest.raises(Refused, match="not what a site of this job has sealed"):
        liar.ask("north", Journal(pretended))
    state = mine.seal(pack(ALGORITHM.init(np.zeros(DIM))[1]), "state of north in job")
    with pytest.raises(Refused, match="needs the key"):
        liar.ask("north", state=state)


def test_what_is_sealed_is_opened_where_it_belongs_alone(liar):
    """Another site's state, a base as a state, and either of another job are refused."""
    replies = liar.replies[-1]
    base = next(reply["base"] for reply in replies.values() if "base" in reply)
    for state in (replies["south"]["state"], base):
        with pytest.raises(Refused, match="not what a site of this job has sealed: state of north"):
            liar.ask("north", state=state)
    other = replace(liar.sites["north"], job="other")
    for part in (Journal(base), Journal(replies["north"]["state"])):
        with pytest.raises(Refused, match="has sealed: server of other"):
            other.answer(liar.request("north", part, job="other"), gradient("north"))


def test_no_answer_depends_on_what_is_sealed(liar, caplog):
    """An oracle: sums with an offset, steps without a limit, and models at which gradients
    overflow must all be answered alike, or the server could search for the numbers."""
    logging.disable(logging.NOTSET)
    replies = liar.replies[-1]
    masks = [reply["up"][:PREFIX].hex() for reply in replies.values()]
    total = sum(map(numbers, replies.values()))
    rd = {"index": 3, "local_steps": 1, "num_clients": 4, "num_active": 4}
    forms = set()
    for offset in (0, 1, 2**50, 2**62, 2**63 - 1):
        for lr in (0.1, 1e3, 1e300):
            blob = (total + np.uint64(offset)).tobytes()
            journal = liar.journal.add("update", blob, masks=masks, lr=lr, **rd)
            reply = liar.ask("north", journal, lr=lr)
            forms.add(tuple((name, len(part)) for name, part in sorted(reply.items())))
            head = reply["header"].partition(b"\n")[2]
            assert b'"kind": "push"' in head
    for x in (np.full(DIM, 1e308), np.full(DIM, -1e200)):
        reply = liar.ask("north", liar.base_of(x), state=b"")
        forms.add(tuple((name, len(part)) for name, part in sorted(reply.items())))

    for offset in (np.uint64(0), -total):  # the sum is 0, or not; then a newcomer's state
        blob = (total + offset).tobytes()
        journal = liar.base_of(np.zeros(DIM)).add("update", blob, masks=masks, lr=1.0, **rd)
        reply = liar.ask("north", journal.add("generation"))
        forms.add(tuple((name, len(part)) for name, part in sorted(reply.items())))

    def fails(x, batch):
        raise ZeroDivisionError(f"patient 17 has x {x}")

    reply = liar.sites["north"].answer(liar.request("north"), fails)
    forms.add(tuple((name, len(part)) for name, part in sorted(reply.items())))
    assert len(forms) == 1 and dict(next(iter(forms)))["up"] == SIZE
    assert not push_of(reply).any()  # it is an absence: what the server has of it stays
    assert "patient 17" in caplog.text and b"patient" not in b"".join(reply.values())


def test_what_the_server_keeps_and_writes_holds_no_push(tmp_path):
    """Memory, disk and messages, searched by a test that knows the pushes."""
    liar = Liar(tmp_path)
    known = [push_of(reply) for replies in liar.replies for reply in replies.values()]
    state, states = liar.server.open_job(KEYS)
    secrets = [*known, state.x, state.y, *(client.inner.grad for _, client in states)]
    kept = [vars(liar.server), liar.server._store.db.serialize(), liar.replies]
    liar.server.close()
    kept += [file.read_bytes() for file in (tmp_path / "job").iterdir()]
    haystack = b"".join(map(flatten, kept))
    for secret in secrets:
        for form in forms(secret[np.abs(secret) > 1e-6][:1]):
            assert form not in haystack
    up = known[0]
    assert any(form in haystack + up.tobytes() for form in forms(up[:1]))  # it finds one


def forms(number):
    """Ways in which a number may be written."""
    whole = np.rint(number * 2.0**44).astype("<i8")
    binary = [number.astype(kind).tobytes() for kind in ("<f8", ">f8", "<f4")]
    return [*binary, whole.tobytes(), whole.astype(">i8").tobytes(), f"{number[0]:.9g}".encode()]


def flatten(value):
    """Write whatever a server keeps as bytes."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray):
        return value.tobytes() + repr(value.tolist()).encode()
    if isinstance(value, dict):
        return b"".join(flatten(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | set):
        return b"".join(map(flatten, value))
    return repr(value).encode()
