"""Exact through lost replies and stragglers; inexact without acknowledgement."""

import numpy as np
import pytest
from helpers import quadratic

import focusfl as ff
from focusfl import tree
from focusfl.core import Round
from focusfl.engines.protocol import ProtocolServer, Site, tracking_error

N, LR = 4, 0.1


def problem():
    """Well conditioned, so that few rounds are enough, and heterogeneous."""
    base = quadratic(num_clients=N)
    return ff.problems.Quadratic(np.eye(5) + 0.2 * base.H, base.h)


PROBLEM = problem()
NAMES = [f"site-{i}" for i in range(N)]
EXACT = [
    ff.Focus(), ff.Scaffold(), ff.Scaffold(option=1), ff.Scaffnew(),
    ff.AmplifiedScaffold(), ff.FedADMM(), ff.FedDyn(), ff.FedLT(),
]  # fmt: skip


def grad(i):
    return lambda x, batch: PROBLEM.H[i] @ x - PROBLEM.h[i]


def error(x):
    return np.abs(x - PROBLEM.optimum).max() / np.abs(PROBLEM.optimum).max()


@pytest.fixture
def job(folder, as_a_user):
    """A function that starts a job: the server's protocol and the sites."""
    hubs = []

    def start(algorithm, **options):
        protocol = ProtocolServer(
            algorithm, np.zeros(5), NAMES, folder, job="job", lr=LR, local_steps=3,
            **options,
        )  # fmt: skip
        hubs.append(protocol)
        return protocol, [Site(algorithm, folder, "job", name) for name in NAMES]

    yield start
    for protocol in hubs:
        protocol.close()


@pytest.mark.parametrize("algorithm", EXACT, ids=repr)
def test_a_fifth_of_the_replies_lost_ends_at_the_optimum(algorithm, job):
    protocol, sites = job(algorithm)
    rng, lost = np.random.default_rng(0), 0
    while protocol.round < 250:
        for i in np.flatnonzero(rng.random(N) < 0.6).tolist():
            reply = sites[i].answer(protocol.request(NAMES[i]), grad(i))
            if rng.random() < 0.2:
                lost += 1
            else:
                assert protocol.receive(NAMES[i], reply).applied
        protocol.close_round()
    assert lost > 80
    assert error(protocol.x) < 1e-12


@pytest.mark.parametrize("algorithm", EXACT[:3], ids=repr)
def test_without_acknowledgement_it_does_not(algorithm):
    """The same losses, where a client believes that what it sent has arrived."""
    server, client = algorithm.init(np.zeros(5))
    clients, rng = [client] * N, np.random.default_rng(0)
    for index in range(250):
        down, total, counted = algorithm.broadcast(server), None, 0
        rd = Round(index, LR, 3, N, float("nan"))
        for i in np.flatnonzero(rng.random(N) < 0.6).tolist():
            local = algorithm.pull(clients[i], down)
            for _ in range(3):
                local = algorithm.step(local, grad(i), None, rd)
            clients[i], up = algorithm.push(clients[i], down, local, rd)
            if rng.random() >= 0.2:
                counted += 1
                total = up if total is None else tree.add(total, up)
        if counted:
            server = algorithm.update(server, total, rd._replace(num_active=counted))
    assert error(server.x) > 1e-2


@pytest.mark.parametrize(
    "algorithm",
    [ff.Focus(), ff.Scaffold(option=1), ff.Scaffnew(), ff.FedDyn()],
    ids=repr,
)
def test_a_straggler_three_rounds_behind_blocks_nothing_and_breaks_nothing(
    algorithm, job
):
    protocol, sites = job(algorithm)
    late = []  # (the round its reply arrives in, the reply)
    while protocol.round < 250:
        for i in range(N - 1):
            reply = sites[i].answer(protocol.request(NAMES[i]), grad(i))
            assert protocol.receive(NAMES[i], reply).applied
        if NAMES[-1] in protocol.free:
            reply = sites[-1].answer(protocol.request(NAMES[-1]), grad(N - 1))
            late.append((protocol.round + 3, reply))
        while late and late[0][0] == protocol.round:
            assert protocol.waiting == {NAMES[-1]: protocol.round - 3}
            assert protocol.receive(NAMES[-1], late.pop(0)[1]).applied
        before = protocol.round
        protocol.close_round()
        assert protocol.round == before + 1
        if not isinstance(algorithm, ff.Scaffnew):
            memories = [
                site.memory(protocol.applied[site.site])
                for site in sites
                if protocol.applied[site.site]
            ]
            assert tracking_error(protocol.server, memories, N) < 1e-12
    assert error(protocol.x) < 1e-12


def test_scaffold_2_refuses_what_is_late_and_stays_exact(job):
    """Its server works out a client's new control variate from its own, present one."""
    protocol, sites = job(ff.Scaffold())
    rng, refused, late = np.random.default_rng(1), 0, None
    while protocol.round < 250:
        if late is not None:
            receipt = protocol.receive(NAMES[-1], late)
            assert receipt.status == "refused" and "late" in receipt.why
            refused, late = refused + 1, None
        for i in range(N):
            reply = sites[i].answer(protocol.request(NAMES[i]), grad(i))
            if i == N - 1 and rng.random() < 0.5:
                late = reply
            else:
                assert protocol.receive(NAMES[i], reply).applied
        protocol.close_round()
    assert refused > 100
    assert error(protocol.x) < 1e-12


def test_counting_what_is_late_would_bias_scaffold_2(job):
    """Why it is refused: the same, with the rule switched off."""
    protocol, sites = job(ff.Scaffold())
    object.__setattr__(
        protocol._rules,
        "requirements",
        protocol._rules.requirements._replace(late=True),
    )
    late = []
    while protocol.round < 250:
        for i in range(N - 1):
            reply = sites[i].answer(protocol.request(NAMES[i]), grad(i))
            assert protocol.receive(NAMES[i], reply).applied
        if NAMES[-1] in protocol.free:
            reply = sites[-1].answer(protocol.request(NAMES[-1]), grad(N - 1))
            late.append((protocol.round + 3, reply))
        while late and late[0][0] == protocol.round:
            assert protocol.receive(NAMES[-1], late.pop(0)[1]).applied
        protocol.close_round()
    assert error(protocol.x) > 1e-4


@pytest.mark.parametrize("copies", [False, True], ids=["epochs", "copies"])
def test_lost_disks_are_noticed_and_the_optimum_reached_all_the_same(copies, job):
    protocol, sites = job(ff.Focus(), copies=copies)
    losses = 0
    while protocol.round < 250:
        if protocol.round in (40, 41, 42, 100):
            sites[1].disk.path.unlink(missing_ok=True)
        for i in range(N):
            receipt = protocol.receive(
                NAMES[i], sites[i].answer(protocol.request(NAMES[i]), grad(i))
            )
            if receipt.status == "lost":
                losses += 1
                assert i == 1
                if copies:  # it is sent what it has lost, in the same round if we like
                    again = sites[i].answer(protocol.request(NAMES[i]), grad(i))
                    assert protocol.receive(NAMES[i], again).applied
            else:
                assert receipt.applied
        protocol.close_round()
    # In round 41 it had nothing to lose: an epoch had just begun.
    assert losses == (4 if copies else 3)
    assert protocol.epoch == (1 if copies else 4)
    assert error(protocol.x) < 1e-12
