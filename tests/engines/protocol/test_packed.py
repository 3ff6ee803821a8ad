"""Pushes of coded algorithms travel packed, and are read as what the site keeps."""

import random

import numpy as np
import pytest
from helpers import quadratic, same, some_masks
from test_refusals import damaged, foreign, parts, signed

import focusfl as ff
from focusfl import Chain, Coded, FixedPoint, Integers, LowRank, RandomK, TopK, tree
from focusfl.engines.protocol import ProtocolServer, Refused, Site, tracking_error

CODECS = [
    Integers(4),
    Integers(3, "stochastic"),
    Integers(4, block=4),
    TopK(2),
    TopK(0.9),
    RandomK(2),
    FixedPoint(20, 10),
    Chain(TopK(2), Integers(4)),
    Chain(RandomK(3), Integers(5, "stochastic")),
]
PROBLEM, NAMES = quadratic(), [f"site-{i}" for i in range(6)]


class Job:
    """A job of six sites on a quadratic, none of whose messages is lost."""

    def __init__(self, algorithm, folder, x0=PROBLEM.x0, grad=None, **options):
        self.protocol = ProtocolServer(
            algorithm, x0, NAMES, folder, job="job", lr=0.05, local_steps=3, **options
        )
        self.sites = [Site(algorithm, folder, "job", name) for name in NAMES]
        self.grad = grad or self.of_problem

    def of_problem(self, i):
        own = tree.map(lambda leaf: leaf[i], PROBLEM.data)
        return lambda x, batch: np.asarray(PROBLEM.objective.grad(x, own, batch))

    def ask(self, i):
        return self.sites[i].answer(self.protocol.request(NAMES[i]), self.grad(i))

    def play(self, ids):
        for i in ids:
            assert self.protocol.receive(NAMES[i], self.ask(i)).applied
        self.protocol.close_round()


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_a_deployment_ends_where_the_loop_does_to_the_bit(codec, folder):
    """Though the one sends bytes and the other arrays."""
    algorithm, masks = Coded(ff.Focus(), codec), some_masks(rounds=12, p=0.6)
    job = Job(algorithm, folder)
    for mask in masks:
        job.play(np.flatnonzero(mask))
    want = ff.loop(
        algorithm, PROBLEM, ff.participation.Replay(masks), rounds=12, lr=0.05,
        local_steps=3,
    )  # fmt: skip
    assert same(job.protocol.server.x, want.x)
    entries = job.protocol.ledger.entries
    memories = [
        site.memory(entries[name].applied)
        for site, name in zip(job.sites, NAMES, strict=True)
    ]
    each = [tree.map(lambda a, i=i: a[i], want.clients) for i in range(6)]
    assert all(map(same, memories, each))
    assert tracking_error(job.protocol.server, memories, 6) < 1e-13


@pytest.mark.parametrize("codec", [*CODECS, LowRank(1)], ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_reply_has_the_bytes_that_are_counted(codec, dtype, folder):
    x0 = np.zeros((9, 11), dtype)
    rng = np.random.default_rng(0)
    algorithm = ff.ServerOpt(Coded(ff.Focus(), codec))
    job = Job(algorithm, folder, x0, lambda i: lambda x, _: rng.standard_normal(SHAPE))
    reply = job.ask(0)
    counted = algorithm.traffic(x0)[1] * x0.nbytes
    assert counted <= len(reply["up/y"]) < counted + 2  # parts end with a byte
    on_disk = job.sites[0].disk.last_reply()
    assert on_disk == reply and job.protocol.receive(NAMES[0], reply).applied


SHAPE = 9, 11


def repacked(message, rng):
    """A push whose bytes nobody can have encoded; all checksums are right."""
    whole, blobs = parts(message)
    blob, shape = blobs["up/y"], whole["leaves"]["up/y"]
    kind = rng.randrange(6)
    if kind == 0:  # places of no numbers, of all, or beyond the last
        blob = rng.choice([b"\0", b"\xf8", b"\x01"]) + blob[1:]
    elif kind == 1:  # the scale is no number
        bad = np.array(rng.choice([np.nan, np.inf, -np.inf]), "<f8").tobytes()
        blob = blob[:1] + bad + blob[9:]
    elif kind == 2:  # a whole number of more than four bits can be
        blob = blob[:9] + rng.choice([b"\xf0", b"\xff", b"\x7f"])
    elif kind == 3:
        blob = blob[: rng.randrange(len(blob))]
        shape[1] = rng.choice([[len(blob)], shape[1]])
    elif kind == 4:
        blob = blob + rng.randbytes(rng.choice([1, 8, 4096]))
        shape[1] = rng.choice([[len(blob)], shape[1]])
    else:  # not packed at all, or as something else
        plain = np.ones(5, rng.choice(["<f8", "<f4", "|i1", "|b1"]))
        blob, shape[0], shape[1] = plain.tobytes(), plain.dtype.str, [5]
    return signed(whole, {**blobs, "up/y": blob})


def test_a_thousand_malformed_packed_replies_change_nothing(folder, as_a_user):
    job = Job(Coded(ff.Focus(), Chain(TopK(2), Integers(4))), folder)
    job.play(range(6))
    good, protocol = job.ask(1), job.protocol
    assert len(good["up/y"]) == 1 + 8 + 1  # places, scale, numbers
    before, disk = protocol.ledger, protocol._path.read_bytes()
    rng, reasons = random.Random(0), set()
    for n in range(1200):
        bad = (repacked, repacked, damaged, foreign)[n % 4](good, rng)
        receipt = protocol.receive(NAMES[1], bad)
        assert receipt.status == "refused", bad
        assert "\n" not in receipt.why
        reasons.add(receipt.why[-60:])
        assert protocol.ledger is before and NAMES[1] in protocol.waiting
    said = " ".join(reasons)
    for words in ("numbers, not 2", "not finite", "behind the last", "'<f8'"):
        assert words in said
    assert protocol._path.read_bytes() == disk
    assert protocol.receive(NAMES[1], good).applied


def test_late_doubled_and_replayed_packed_replies_count_once(folder):
    job = Job(Coded(ff.Focus(), RandomK(2)), folder)
    job.play(range(6))
    request = job.protocol.request(NAMES[0])
    late = job.sites[0].answer(request, job.grad(0))
    assert job.sites[0].answer(request, job.grad(0)) == late  # from disk
    job.play(range(1, 6))  # a round later, which draws other places
    assert job.protocol.receive(NAMES[0], late).applied
    assert "old" in job.protocol.receive(NAMES[0], late).why
    job.protocol.close_round()
    entries = job.protocol.ledger.entries
    memories = [
        site.memory(entries[name].applied)
        for site, name in zip(job.sites, NAMES, strict=True)
    ]
    assert tracking_error(job.protocol.server, memories, 6) < 1e-13


def test_sites_and_server_must_agree_on_the_codec(folder):
    job = Job(Coded(ff.Focus(), Integers(4)), folder)
    for other in (Coded(ff.Focus(), Integers(4, block=4)), ff.Focus()):
        site = Site(other, folder / "other", "job", NAMES[0])
        with pytest.raises(Refused, match=r"it is for algorithm .*bits=4") as refused:
            site.answer(job.protocol.request(NAMES[0]), job.grad(0))
        assert "\n" not in str(refused.value)


def test_words_about_a_coded_algorithm_name_its_codec_alone(folder):
    job = Job(Coded(ff.Focus(), Integers(2)), folder)
    for _ in range(3):
        job.play(range(6))
    with pytest.raises(ValueError, match=r"codec=Integers\(bits=2.* has no goodbye"):
        job.sites[0].goodbye(job.protocol.request(NAMES[0]))


def test_a_push_that_overflows_never_leaves_the_site(folder):
    grad = lambda i: lambda x, batch: np.full(5, 1e308)  # noqa: E731
    job = Job(Coded(ff.Focus(), Integers(4)), folder, grad=grad)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="must be finite"):
        job.ask(0)
    assert not job.sites[0].disk.path.exists()
