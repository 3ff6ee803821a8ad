"""Messages of keys, shares and masks that are not what they should be: all refused."""

import copy
import json
import random

import numpy as np
import pytest

from focusfl.flower.protocol import Refused
from focusfl.flower.protocol.messages import digest, fields_of, load_flat, nest, pack
from focusfl.flower.secure import Failed
from secure.job import NAMES, N, answer, open_server, open_site

MANY = 1000
MISSING = 2  # a share that could not be opened may be: others have enough
STRUCTURE = (1, 5, 6, 7)  # ways that no request may be, whoever else is in a session


def mangled(message, rng, others, ways=range(8)):
    """A message with something wrong in it: as if by a liar, checksums and all."""
    fields, flat = fields_of(message), load_flat(message["body"])
    trees = {path.split("/")[0]: {} for path in flat}
    trees = {root: nest(flat, root) for root in trees}
    tables = [part for part in trees.values() if isinstance(part, dict)]
    way = rng.choice(ways)
    if way == 0:  # another stage, session, round, generation or site
        name = rng.choice([name for name in fields if name != "parts"])
        fields[name] = rng.choice(["push", "site-9", 77, -1, None, [], "0"])
    elif way == 1 and others:  # what another site has said
        return rng.choice(others)
    elif way == MISSING and tables:  # a name more or less
        table = rng.choice(tables)
        table.pop(rng.choice(list(table)))
    elif way == 3:
        place = rng.choice([trees, *tables])
        place["site-9"] = np.zeros(rng.choice([0, 32, 64, 92]), "|u1")
    elif way == 4:  # of another length
        place = rng.choice([trees, *tables])
        name = rng.choice(list(place))
        if isinstance(place[name], dict):
            place[name] = np.zeros(64, "|u1")
        else:
            place[name] = place[name][: rng.randrange(len(place[name]))]
    elif way == 5:  # of another kind
        trees[rng.choice([*trees, "public"])] = rng.choice([1.5, True, np.zeros(3)])
    elif way == 6:  # damaged on the way
        whole = dict(message)
        name = rng.choice([name for name in whole if whole[name]])
        at = rng.randrange(len(whole[name]))
        flipped = bytes([whole[name][at] ^ 1 << rng.randrange(8)])
        whole[name] = whole[name][:at] + flipped + whole[name][at + 1 :]
        return whole
    else:
        del fields[rng.choice(list(fields))]
    body = pack(trees)
    if "parts" in fields:
        fields["parts"] = {"body": digest(body)}
    text = json.dumps(fields).encode()
    return {"header": digest(text).encode() + b"\n" + text, "body": body}


def at_stage(stage, folder, silent=()):
    """A server whose session has come so far, its sites, and what these are asked."""
    server = open_server(folder / "server")
    sites = [open_site(folder / "sites", i) for i in range(N)]
    server.begin(NAMES)
    while server.session.stage != stage:
        for name in server.free:
            if (server.session.stage, name) not in silent:
                reply = answer(sites[NAMES.index(name)], server.request(name))
                assert server.receive(name, reply).applied
        server.advance()
    return server, sites, {name: server.request(name) for name in server.free}


@pytest.mark.parametrize("stage", ["keys", "shares", "push", "unmask"])
def test_malformed_replies_are_refused_and_change_nothing(folder, stage):
    server, sites, asked = at_stage(stage, folder, silent=[("push", NAMES[3])])
    said = {name: answer(sites[NAMES.index(name)], asked[name]) for name in asked}
    rng, refused = random.Random(1), 0
    ways = [way for way in range(8) if (stage, way) != ("unmask", MISSING)]
    with server:
        before = copy.deepcopy(server.session), [*server._store.sites("here")]
        while refused < MANY // 4:
            name = rng.choice(list(said))
            bad = mangled(said[name], rng, [said[n] for n in said if n != name], ways)
            if bad == said[name]:
                continue
            receipt = server.receive(name, bad)
            assert receipt.status == "refused" and receipt.why
            assert [*server._store.sites("here")] == before[1]
            assert same(server.session, before[0]), receipt
            refused += 1
        for name, reply in said.items():  # and the right ones still count
            assert server.receive(name, reply).applied


def same(a, b):
    """Whether two sessions hold the same."""
    masked = [{n: m.tobytes() for n, m in s.masked.items()} for s in (a, b)]
    rest = [{**vars(s), "masked": None} for s in (a, b)]
    return masked[0] == masked[1] and rest[0] == rest[1]


@pytest.mark.parametrize("stage", ["keys", "shares", "push", "unmask"])
def test_malformed_requests_are_refused_and_change_nothing(folder, stage):
    server, sites, asked = at_stage(stage, folder)
    rng, refused = random.Random(2), 0
    server.close()
    while refused < MANY // 8:
        i = rng.randrange(N)
        others = [asked[name] for name in NAMES if name != NAMES[i]]
        bad = mangled(asked[NAMES[i]], rng, others, STRUCTURE)
        if bad == asked[NAMES[i]]:
            continue
        before = disk(sites[i])
        with pytest.raises(Refused):
            answer(sites[i], bad)
        assert disk(sites[i]) == before
        refused += 1
    for i, name in enumerate(NAMES):  # and the right ones are answered still
        answer(sites[i], asked[name])


def disk(site):
    paths = (site.path("session"), site.path("state"))
    return [path.read_bytes() for path in paths if path.exists()]


def test_shares_that_give_no_secret_come_to_no_sum_and_name_their_dealer(folder):
    """A dealer whose shares fit their checksums and not its seed."""
    server, sites, asked = at_stage("unmask", folder)
    with server:
        for i, name in enumerate(NAMES):
            assert server.receive(name, answer(sites[i], asked[name])).applied
        server.session.seeds[NAMES[2]] = bytes(32)
        with pytest.raises(Failed, match=f"shares of {NAMES[2]} do not give its seed"):
            server.advance()
        assert not server.counted and server.session is None
