"""What is not a good message is refused, and changes nothing."""

import json
import random

import numpy as np
import pytest
from safetensors.numpy import load, save

import focusfl as ff
from focusfl.core import tree
from focusfl.flower.protocol import ProtocolServer, Refused, Site
from focusfl.flower.protocol.messages import digest

NAMES = ["a", "b", "c"]
X0 = {"bias": np.zeros(2), "out": {"w": np.ones((2, 3))}}


def grad(x, batch):
    return tree.map(lambda a: a - 1, x)


@pytest.fixture(params=[ff.Focus(), ff.FedLT(), ff.Compressed(ff.Focus())], ids=repr)
def job(request, folder):
    """A job in its fourth round: `a` is counted, `b` owes an answer, `c` is new."""
    algorithm = request.param
    sites = {name: Site(algorithm, "job", name) for name in NAMES}
    with ProtocolServer(algorithm, X0, NAMES, folder, job="job", lr=0.05) as server:
        for _ in range(3):
            for name in "ab":
                reply = sites[name].answer(server.request(name), grad)
                assert server.receive(name, reply).applied
            server.close_round()
        server.receive("a", sites["a"].answer(server.request("a"), grad))
        yield server, sites


def seal(body):
    return digest(body).encode() + b"\n" + body


def parts(message):
    """A header as a table, and the rest."""
    whole = json.loads(message["header"].split(b"\n", 1)[1])
    return whole, {name: blob for name, blob in message.items() if name != "header"}


def signed(whole, blobs):
    """Put a header over blobs, all checksums right."""
    if isinstance(whole.get("parts"), dict):
        whole["parts"] |= {name: digest(blob) for name, blob in blobs.items()}
    return {"header": seal(json.dumps(whole).encode()), **blobs}


def damaged(message, rng):
    """Change some bytes or names."""
    message = dict(message)
    name = rng.choice(sorted(message))
    blob = message[name]
    kind = rng.randrange(8)
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
        message[name + rng.choice(["/", "x", "\0"])] = message.pop(name)
    elif kind == 5:
        message[rng.choice(["z", "../up", ""])] = blob
    elif kind == 6:
        message[name] = rng.choice([None, "text", 7, [blob], {}, ()])
    else:
        message["header"] = rng.choice([b"", b"\n", b"{}", seal(b""), seal(b"[]")])
    return message


def ill_formed(message, rng):
    """Change what the header or an array says, and sign it again."""
    whole, blobs = parts(message)
    field, part = rng.choice(sorted(whole)), rng.choice(sorted(blobs))
    arrays = load(blobs[part])
    path = rng.choice(sorted(arrays))
    kind = rng.randrange(10)
    if kind == 0:
        whole[field] = rng.choice([None, True, [], [[]], {}, -7, 2**80, 1e300])
    elif kind == 1:
        del whole[field]
    elif kind == 2:
        whole[rng.choice(["more", "", "__class__"])] = 1
    elif kind == 3:  # a number that is not one
        odd = arrays[path].astype(float)
        odd.flat[rng.randrange(odd.size)] = rng.choice([np.nan, np.inf, -np.inf])
        blobs[part] = save({**arrays, path: odd})
    elif kind == 4:
        blobs[part] = save({**arrays, path: arrays[path][..., None]})
    elif kind == 5:
        wrong = rng.choice(["float16", "int64", "bool"])
        blobs[part] = save({**arrays, path: arrays[path].astype(wrong)})
    elif kind == 6:
        blobs[part] = save({**arrays, rng.choice(["new", path + "/x", "..", ""]): odd_()})
    elif kind == 7:
        blobs[part] = save({name: a for name, a in arrays.items() if name != path})
    elif kind == 8:
        text = json.dumps(whole)
        bodies = [
            text[:-1] + ', "round": 1}', text.replace("{", "[" * 100_000, 1),
            text.replace('"round": ', '"round": NaN, "x": '), text + text,
            text.replace('"round": ', '"round": ' + "9" * 5000), "\x00" + text,
        ]  # fmt: skip
        return {"header": seal(rng.choice(bodies).encode()), **blobs}
    else:
        blobs[part] = rng.choice([b"", b"abc", b"\xff" * 16, blobs[part][:-1]])
    return signed(whole, blobs)


def odd_():
    return np.zeros(3)


def foreign(message, rng):
    """A reply that would be good in another job, round or order."""
    whole, blobs = parts(message)
    field = rng.choice(["job", "site", "algorithm", "version", "kind", "round"])
    if field == "round":
        whole["round"] += rng.choice([1, 2, 1000])
    else:
        whole[field] = rng.choice(["a", "other", "Focus()", "", "b\n", "B"])
    return signed(whole, blobs)


def test_a_thousand_malformed_replies_change_nothing(job):
    server, sites = job
    good = sites["b"].answer(server.request("b"), grad)
    before = (server.counted, server._total, [*server._store.sites("here")])
    rng, reasons = random.Random(0), set()
    for n in range(900):
        bad = (damaged, ill_formed, foreign)[n % 3](good, rng)
        if bad == good:  # an odd dtype may be the one it has
            continue
        receipt = server.receive("b", bad)
        assert receipt.status == "refused", bad
        reasons.add(receipt.why.split("must")[0][:25])
        assert server.counted == before[0] and server._total is before[1]
    assert len(reasons) > 18  # not all for the same
    assert [*server._store.sites("here")] == before[2]
    assert server.receive("b", good).applied


def test_a_thousand_malformed_requests_are_not_worked_on(job):
    server, sites = job
    sites["b"].cache.clear()
    server._cached.clear()
    good = server.request("b")
    free = {"lr", "grads_done", "num_clients", "version", "model", "round"}

    def never(x, batch):
        raise AssertionError("a bad request must not be worked on")

    rng, refused = random.Random(1), 0
    while refused < 600:
        bad = (damaged, ill_formed)[refused % 2](good, rng)
        try:
            sites["b"].answer(bad, never)
        except Refused:
            refused += 1
        except AssertionError:  # what the server alone decides may be anything
            odd = {k for k, v in parts(bad)[0].items() if v != parts(good)[0][k]}
            assert bad == good or odd <= free
        else:  # the state is missing
            assert "state" not in bad
    assert server.receive("b", sites["b"].answer(good, grad)).applied


def test_a_site_refuses_what_is_not_for_it(job):
    server, _ = job
    request, algorithm = server.request("b"), server.algorithm
    for other in (
        Site(algorithm, "job", "c"), Site(algorithm, "another", "b"),
        Site(ff.Focus(warm_start=True), "job", "b"),
    ):  # fmt: skip
        with pytest.raises(Refused, match="it is for"):
            other.answer(request, grad)


@pytest.mark.parametrize(
    "lie", [{"lr": 0.0}, {"lr": -0.05}, {"round": -1}, {"lr": 0.0, "round": -1}]
)
def test_a_site_refuses_a_step_that_no_round_has(job, lie):
    whole, blobs = parts(job[0].request("b"))
    with pytest.raises(Refused, match="has a step of"):
        job[1]["b"].answer(signed({**whole, **lie}, blobs), grad)


@pytest.mark.parametrize("kind", ["i8", "u1", "b1"])
def test_a_site_refuses_a_model_of_whole_numbers(job, kind):
    whole, blobs = parts(job[0].request("b"))
    down = {k: v.astype(kind) if k[0] == "x" else v for k, v in load(blobs["down"]).items()}
    with pytest.raises(Refused, match="floating point"):
        job[1]["b"].answer(signed(whole, {**blobs, "down": save(down)}), grad)


def test_replies_that_are_no_pushes_carry_nothing(job):
    server, sites = job
    whole, blobs = parts(sites["b"].answer(server.request("b"), grad))
    for kind in ("missing", "leave", "spent"):
        carries = server.receive("b", signed({**whole, "kind": kind}, blobs))
        assert "carries" in carries.why and not server._leaving


def test_a_gradient_that_is_no_gradient_never_leaves_the_site(job):
    server, sites = job
    request, zero = server.request("b"), tree.zeros(X0)
    for wrong in (
        {"out": zero["out"]}, zero["bias"], {**zero, "bias": np.zeros(3)},
        {**zero, "bias": np.array([np.nan, 0])},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="gradient|finite"):
            sites["b"].answer(request, lambda x, batch, wrong=wrong: wrong)
    assert server.receive("b", sites["b"].answer(request, grad)).applied


def test_pushes_whose_sum_is_infinite_are_refused(folder):
    names = ["a", "b"]
    with ProtocolServer(ff.Focus(), np.zeros(3), names, folder, job="job", lr=1e-300) as server:
        receipts = [
            server.receive(
                name,
                Site(ff.Focus(), "job", name).answer(
                    server.request(name), lambda x, batch: np.full(3, 1.5e308)
                ),
            )
            for name in names
        ]
        assert receipts[0].applied and "infinite" in receipts[1].why
        server.close_round()
        assert np.isfinite(server.server.y).all()
