"""What is not a good message is refused, and changes nothing."""

import hashlib
import json
import logging
import random

import numpy as np
import pytest
from helpers import Nested

import focusfl as ff
from focusfl import tree
from focusfl.engines.protocol import ProtocolServer, Refused, Site, header

PROBLEM = Nested()
NAMES = ["a", "b", "c"]


def grad(i):
    data = tree.map(lambda leaf: leaf[i], PROBLEM.data)
    return lambda x, batch: PROBLEM.objective.grad(x, data, batch)


@pytest.fixture(params=[False, True], ids=["", "copies"])
def job(request, folder, as_a_user):
    """A job in its fourth round: `a` is counted, `b` owes an answer, `c` is new."""
    protocol = ProtocolServer(
        ff.Focus(), PROBLEM.x0, NAMES, folder, job="job", lr=0.05, copies=request.param
    )
    sites = {name: Site(ff.Focus(), folder, "job", name) for name in NAMES}
    with protocol:
        for _ in range(3):
            for i, name in enumerate("ab"):
                reply = sites[name].answer(protocol.request(name), grad(i))
                assert protocol.receive(name, reply).applied
            protocol.close_round()
        protocol.receive("a", sites["a"].answer(protocol.request("a"), grad(0)))
        yield protocol, sites


def parts(message):
    """A header as a table, and the rest."""
    whole = json.loads(message["header"].split(b"\n", 1)[1])
    return whole, {path: blob for path, blob in message.items() if path != "header"}


def signed(whole, blobs):
    """Put a header over blobs, all checksums right."""
    leaves = whole.get("leaves")
    for path, leaf in leaves.items() if isinstance(leaves, dict) else ():
        if isinstance(leaf, list) and len(leaf) == 3 and path in blobs:
            leaf[2] = hashlib.sha256(blobs[path]).hexdigest()[:32]
    return {"header": seal(json.dumps(whole).encode()), **blobs}


def seal(body):
    return hashlib.sha256(body).hexdigest()[:32].encode() + b"\n" + body


def damaged(message, rng):
    """Change some bytes, wired or names."""
    message = dict(message)
    name = rng.choice(sorted(message))
    blob = message[name]
    kind = rng.randrange(9)
    if kind == 0:
        where = rng.randrange(len(blob))
        flipped = bytes([blob[where] ^ (1 << rng.randrange(8))])
        message[name] = blob[:where] + flipped + blob[where + 1 :]
    elif kind == 1:
        message[name] = blob[: rng.randrange(len(blob))]
    elif kind == 2:
        message[name] = blob + rng.randbytes(rng.choice([1, 8, 4096]))
    elif kind == 3:
        del message[name]
    elif kind == 4:
        message[name + rng.choice(["/", "x", "/x", "\0"])] = message.pop(name)
    elif kind == 5:
        message[rng.choice(["up/z", "../up", "", "memory"])] = blob
    elif kind == 6:
        message[name] = rng.choice([None, "text", 7, [blob], {}, ()])
    elif kind == 7:
        message[name] = rng.randbytes(len(blob))
    else:
        message["header"] = rng.choice([b"", b"\n", b"{}", seal(b""), seal(b"[]")])
    return message


def ill_formed(message, rng):
    """Change what the header says, and sign it again."""
    whole, blobs = parts(message)
    field = rng.choice(sorted(whole))
    path = rng.choice(sorted(blobs))
    dtype, shape, _ = whole["leaves"][path]
    kind = rng.randrange(12)
    if kind == 0:
        whole[field] = rng.choice(
            [None, True, "text" * 50, [], [[]], {}, 1.5, -7, 2**80, float("1e300")]
        )
    elif kind == 1:
        del whole[field]
    elif kind == 2:
        whole[rng.choice(["more", "", "__class__"])] = 1
    elif kind == 3:  # a number that is not one
        values = np.frombuffer(blobs[path], dtype).copy()
        values[rng.randrange(len(values))] = rng.choice([np.nan, np.inf, -np.inf])
        blobs[path] = values.tobytes()
    elif kind == 4:
        size = int(np.prod(shape))
        shapes = [[size, 1], [1, size], [-size], [2**61, 8], [0], "7", None, [size / 1]]
        whole["leaves"][path][1] = rng.choice([s for s in shapes if s != shape])
    elif kind == 5:
        wrong = ["<f4", "<i8", "|O", "object", "O8", "<c16", "<M8[s]", "V8", "", 3, []]
        whole["leaves"][path][0] = rng.choice(wrong)
    elif kind == 6:  # larger than it may be, and consistent
        whole["leaves"][path][1] = [2, *shape]
        blobs[path] = blobs[path] * 2
    elif kind == 7:
        other = rng.choice(["up/new", "up", path + "/x", "../x", "header", "up//"])
        whole["leaves"][other] = [dtype, shape, ""]
        if other != "header":
            blobs[other] = blobs[path]
    elif kind == 8:
        del whole["leaves"][path], blobs[path]
    elif kind == 9:
        whole["leaves"][path] = rng.choice([1, 1.5, None, "x", [], [dtype], {}])
        if isinstance(whole["leaves"][path], int | float):
            del blobs[path]
    elif kind == 10:
        text = json.dumps(whole)
        bodies = [
            text[:-1] + ', "seq": 1}', text.replace("{", "[" * 100_000, 1),
            text.replace('"seq": ', '"seq": NaN, "x": '), text + text,
            text.replace('"seq": ', '"seq": ' + "9" * 5000), "\x00" + text,
        ]  # fmt: skip
        return {"header": seal(rng.choice(bodies).encode()), **blobs}
    else:
        whole["wire"] = rng.choice([0, 1, "2", None, [2]])
    return signed(whole, blobs)


def foreign(message, rng):
    """A reply that would be good in another job, epoch, round or order."""
    whole, blobs = parts(message)
    field = rng.choice(["job", "site", "algorithm", "epoch", "seq", "base", "round"])
    field = rng.choice([field, "grads_done", "kind"])
    if field == "kind":
        whole["kind"] = "lost" if rng.random() < 0.5 else "lost "
    elif isinstance(whole[field], int):
        whole[field] += rng.choice([-2, -1, 1, 2, 1000])
    else:
        whole[field] = rng.choice(["a", "other", "Focus()", "", "b\n", "B"])
    return signed(whole, blobs)


def test_a_thousand_malformed_replies_change_nothing(job):
    protocol, sites = job
    good = sites["b"].answer(protocol.request("b"), grad(1))
    before, disk, request = (
        protocol.ledger,
        protocol._path.read_bytes(),
        dict(protocol._requests),
    )
    rng = random.Random(0)
    reasons = set()
    for n in range(1200):
        bad = (damaged, ill_formed, foreign)[n % 3](good, rng)
        assert bad != good
        receipt = protocol.receive("b", bad)
        assert receipt.status == "refused", bad
        reasons.add(receipt.why.split("must")[0][:25])
        assert protocol.ledger is before and protocol._requests == request
    assert len(reasons) > 25  # not all for the same
    assert protocol._path.read_bytes() == disk
    assert protocol.receive("b", good).applied


def test_a_thousand_malformed_requests_change_nothing(job):
    protocol, sites = job
    good = protocol.request("b")
    disk = sites["b"].disk.path.read_bytes()

    def never(x, batch):
        raise AssertionError("a bad request must not be worked on")

    rng, refused, wanted = random.Random(1), 0, header(good).fields
    while refused < 1000:
        bad = (damaged, ill_formed)[refused % 2](good, rng)
        try:
            sites["b"].answer(bad, never)
        except Refused:
            refused += 1
        except AssertionError:  # what the server alone decides may be anything
            odd = {k for k, v in header(bad).fields.items() if v != wanted[k]}
            assert odd <= {"lr", "grads_done", "num_clients"}
        else:  # it knows no such push
            odd = {k for k, v in header(bad).fields.items() if v != wanted[k]}
            assert odd and odd <= {"base", "digest"}
        assert sites["b"].disk.path.read_bytes() == disk
    assert protocol.receive("b", sites["b"].answer(good, grad(1))).applied


def test_replies_of_the_wrong_sender_are_refused_and_logged(job, caplog):
    protocol, sites = job
    good = sites["b"].answer(protocol.request("b"), grad(1))
    before = protocol.ledger
    with caplog.at_level(logging.WARNING):
        for sender in ("a", "c", "stranger", "b\nfaked log line", ""):
            assert protocol.receive(sender, good).status == "refused"
            assert protocol.ledger is before
    assert len(caplog.messages) == 5 and "stranger" in caplog.messages[2]
    assert not any("\n" in line for line in caplog.messages)


def test_replayed_reordered_and_stale_replies_are_refused(job):
    protocol, sites = job
    first = sites["b"].answer(protocol.request("b"), grad(1))
    second = sites["b"].answer(
        protocol.request("b"), grad(1)
    )  # makes the first one void
    assert "void" in protocol.receive("b", first).why
    assert protocol.receive("b", second).applied
    assert "old" in protocol.receive("b", second).why  # replayed
    protocol.close_round()
    third = sites["b"].answer(protocol.request("b"), grad(1))
    protocol.give_up("b")
    before = protocol.ledger
    for reply in (first, second, third):
        assert protocol.receive("b", reply).status == "refused"
        assert protocol.ledger is before
    fourth = sites["b"].answer(protocol.request("b"), grad(1))
    assert protocol.waiting == {"b": 4}
    protocol.new_epoch()
    assert protocol.waiting == {} and protocol.free == ("a", "b", "c")
    assert "epoch" in protocol.receive("b", fourth).why


def test_who_has_contributed_nothing_has_lost_nothing(job):
    """Or anybody new could start an epoch."""
    protocol, sites = job
    reply = sites["c"].answer(protocol.request("c"), grad(2))
    whole, _ = parts(reply)
    lost = signed({**whole, "kind": "lost", "grads_done": 0, "leaves": {}}, {})
    assert "lost nothing" in protocol.receive("c", lost).why
    assert protocol.receive("c", reply).applied


def test_a_site_refuses_what_is_not_for_it(job, folder):
    protocol, sites = job
    request = protocol.request("b")
    for other in (
        Site(ff.Focus(), folder, "job", "c"),
        Site(ff.Focus(), folder, "another", "b"),
        Site(ff.Focus(warm_start=True), folder, "job", "b"),
    ):
        with pytest.raises(Refused, match="it is for"):
            other.answer(request, grad(1))
    newer = protocol.request("b")
    sites["b"].answer(newer, grad(1))
    with pytest.raises(Refused, match="stale"):
        sites["b"].answer(request, grad(1))


def test_a_push_over_the_norm_bound_is_refused(folder):
    with ProtocolServer(
        ff.Focus(), np.zeros(3), ["a"], folder, job="job", lr=0.1, max_norm=1.0
    ) as protocol:
        site = Site(ff.Focus(), folder, "job", "a")
        before = protocol.ledger
        reply = site.answer(protocol.request("a"), lambda x, batch: np.ones(3))
        before = protocol.ledger
        receipt = protocol.receive("a", reply)
        assert "norm is 1.73" in receipt.why and protocol.ledger is before
        fine = site.answer(protocol.request("a"), lambda x, batch: np.ones(3) / 2)
        assert protocol.receive("a", fine).applied


def test_pushes_whose_sum_is_infinite_are_refused(folder):
    names = ["a", "b"]
    with ProtocolServer(
        ff.Focus(), np.zeros(3), names, folder, job="job", lr=1e-300
    ) as protocol:
        verdicts = [
            protocol.receive(
                name,
                Site(ff.Focus(), folder, "job", name).answer(
                    protocol.request(name), lambda x, batch: np.full(3, 1.5e308)
                ),
            )
            for name in names
        ]
        assert verdicts[0].applied and "infinite" in verdicts[1].why
        protocol.close_round()
        assert np.isfinite(protocol.server.y).all()


def test_a_gradient_that_is_no_gradient_never_leaves_the_site(job):
    protocol, sites = job
    request = protocol.request("b")
    disk = sites["b"].disk.path.read_bytes()
    zero = tree.zeros(PROBLEM.x0)
    for wrong in (
        {"out": zero["out"]},
        zero["bias"],
        {**zero, "bias": np.zeros(3)},
        {**zero, "bias": np.array([np.nan, 0])},
    ):
        with pytest.raises(ValueError, match="gradient|finite"):
            sites["b"].answer(request, lambda x, batch, wrong=wrong: wrong)
        assert sites["b"].disk.path.read_bytes() == disk
    assert protocol.receive("b", sites["b"].answer(request, grad(1))).applied


def test_a_header_says_what_a_message_is(job):
    protocol, sites = job
    request = protocol.request("b")
    assert header(request).fields["site"] == "b"
    assert header(sites["b"].answer(request, grad(1))).fields["kind"] == "push"
