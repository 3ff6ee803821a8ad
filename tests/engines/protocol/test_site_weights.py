"""Sites that count differently: the server weighs what it counts, and nobody else."""

import hashlib
import json

import numpy as np
import pytest
from helpers import gap, quadratic

import focusfl as ff
from focusfl.engines.protocol import ProtocolServer, Site, files, header, tracking_error
from focusfl.engines.protocol.messages import read_request, read_round

NAMES = [f"site-{i}" for i in range(4)]
WEIGHTS = dict(zip(NAMES, [1000.0, 1.0, 31.4, 2.5], strict=True))
BASE = quadratic(num_clients=4)
PROBLEM = ff.problems.Quadratic(
    np.eye(5) + 0.2 * BASE.H, BASE.h, weights=[*WEIGHTS.values()]
)
LR = 0.3 / sum(WEIGHTS.values())


def grad(i):
    return lambda x, batch: PROBLEM.H[i] @ x - PROBLEM.h[i]


def opened(folder, weights=WEIGHTS, **options):
    return ProtocolServer(
        ff.Focus(), np.zeros(5), NAMES, folder, job="job", lr=LR, local_steps=2,
        weights=weights, **options,
    )  # fmt: skip


def sites_in(folder):
    return [Site(ff.Focus(), folder, "job", name) for name in NAMES]


def far(x, optimum):
    return np.abs(x - optimum).max() / np.abs(optimum).max()


def test_focus_ends_at_the_weighted_optimum_through_lost_replies_and_crashes(
    folder, as_a_user
):
    rng, lost, late = np.random.default_rng(0), 0, []
    sites, protocol = sites_in(folder), opened(folder)
    coins = [0.4, 0.9, 0.6, 0.7]
    while protocol.round < 150:
        for name, reply in late:
            protocol.receive(name, reply)  # applied, or refused as void
        late = []
        for i in np.flatnonzero(rng.random(4) < coins).tolist():
            if NAMES[i] in protocol.counted:
                continue
            reply = sites[i].answer(protocol.request(NAMES[i]), grad(i))
            chance = rng.random()
            if chance < 0.2:
                lost += 1
            elif chance < 0.3:
                late.append((NAMES[i], reply))
            else:
                assert protocol.receive(NAMES[i], reply).applied
                assert not protocol.receive(NAMES[i], reply).applied  # a copy
        protocol.close_round()
        if protocol.round % 30 == 0:
            protocol.close()
            protocol = opened(folder)
    with protocol:
        assert lost > 50
        assert far(protocol.x, PROBLEM.optimum) < 1e-12
        memories = [
            site.memory(protocol.applied[name])
            for site, name in zip(sites, NAMES, strict=True)
        ]
        whole = sum(WEIGHTS.values())
        assert tracking_error(protocol.server, memories, whole, WEIGHTS.values()) < 1e-9
        assert tracking_error(protocol.server, memories, whole) > 1
        some = [None, *memories[1:]]  # a site that has lost its own
        missing = tracking_error(protocol.server, some, whole, WEIGHTS.values())
        own = np.abs(WEIGHTS[NAMES[0]] * memories[0].grad).max()
        assert abs(missing - own) < 1e-9


@pytest.mark.parametrize("how", ["goodbye", "forget"])
def test_who_leaves_takes_back_what_it_weighed(how, folder, as_a_user):
    sites = sites_in(folder)
    with opened(folder, copies=True) as protocol:
        while protocol.round < 100:
            for i, name in enumerate(NAMES):
                if name in protocol.gone:
                    continue
                request = protocol.request(name)
                if protocol.round == 10 and i == 2 and how == "goodbye":
                    reply = sites[2].goodbye(request)
                elif protocol.round == 10 and i == 2:
                    protocol.forget(name)
                    continue
                else:
                    reply = sites[i].answer(request, grad(i))
                assert protocol.receive(name, reply).applied
            protocol.close_round()
        rest, left = [0, 1, 3], [WEIGHTS[NAMES[i]] for i in (0, 1, 3)]
        others = ff.problems.Quadratic(PROBLEM.H[rest], PROBLEM.h[rest], weights=left)
        assert protocol.epoch == 1 and far(protocol.x, others.optimum) < 1e-12
        assert far(PROBLEM.optimum, others.optimum) > 1e-3
        memories = [sites[i].memory(protocol.applied[NAMES[i]]) for i in rest]
        assert tracking_error(protocol.server, memories, sum(left), left) < 1e-10


def test_a_job_cannot_go_on_with_other_weights(folder, as_a_user):
    opened(folder).close()
    for other in (None, {**WEIGHTS, "site-1": 1.5}):
        with pytest.raises(ValueError, match="cannot resume from .*its weights"):
            opened(folder, other)
    opened(folder, {name: WEIGHTS[name] for name in reversed(NAMES)}).close()


def test_a_ledger_from_before_there_were_weights_is_read(folder, as_a_user):
    with opened(folder, None) as protocol:
        for i, site in enumerate(sites_in(folder)):
            reply = site.answer(protocol.request(site.site), grad(i))
            assert protocol.receive(site.site, reply).applied
        protocol.close_round()
        x, path = protocol.x, protocol._path
    wired = files.load(path)
    fields = json.loads(wired["header"].split(b"\n", 1)[1])
    assert fields.pop("weights") == {}
    body = json.dumps(fields).encode()
    checksum = hashlib.sha256(body).hexdigest()[:32].encode()
    files.save(path, wired | {"header": checksum + b"\n" + body})
    with opened(folder, None) as protocol:
        assert protocol.round == 1 and gap(protocol.x, x) == 0


def test_requests_carry_sums_of_weights_and_counts_are_read_too(folder, as_a_user):
    with opened(folder) as protocol:
        request = read_request(header(protocol.request("site-0")))
        assert request.num_clients == sum(WEIGHTS.values())
        assert "weight" not in request._fields  # a site need not know its own
    assert read_round([3, 0.1, 2, 4, 2]).num_active == 2
    assert read_round([3, 0.1, 2, 4.5, 2.25]).num_clients == 4.5


@pytest.mark.parametrize(
    "weights, words",
    [
        ({"site-0": 1.0}, "weights must be a number for every site, site-0, site-1"),
        ({**WEIGHTS, "x": 1.0}, "weights must be a number for every site"),
        ([1, 2, 3, 4], "weights must be a number for every site"),
        ({**WEIGHTS, "site-2": 0}, "the weight of site-2 must be positive"),
        ({**WEIGHTS, "site-2": float("nan")}, "the weight of site-2 must be positive"),
        ({**WEIGHTS, "site-2": "a"}, "the weight of site-2 must be positive"),
    ],
)
def test_impossible_weights_are_refused(weights, words, folder, as_a_user):
    with pytest.raises(ValueError, match=words):
        opened(folder, weights)
