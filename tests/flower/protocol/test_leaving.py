"""Whoever leaves, is removed or is left out leaves nothing behind, whatever the algorithm."""

import logging

import numpy as np
import pytest
from test_declarations import EVERY, forgets
from world.job import (
    DEPLOYED,
    NAMES,
    START,
    error_after,
    gradient,
    play_round,
    rounds_without_faults,
    setting,
)

import focusfl as ff
from focusfl.flower.protocol import ProtocolServer, Site
from focusfl.flower.protocol.limits import STRIKES

ALGORITHMS = [
    one for one in {repr(one): one for one in (*DEPLOYED, *EVERY)}.values()
    if not isinstance(one, ff.Stale)
]  # fmt: skip
LEAVER, REST, ALL = 1, (0, 2), (0, 1, 2)
ROUNDS = 400  # in which those that are not exact come to where they end


class Job:
    """A job whose second site may leave, on one machine and without faults."""

    def __init__(self, algorithm, weights, folder):
        # With one local step at this step size FedLT diverges.
        steps = 2 if "FedLT" in repr(algorithm) else 1
        self.job, self.folder = setting(algorithm, steps, weights), folder
        self.sites = [Site(algorithm, "job", name) for name in NAMES]
        self.start()

    def start(self):
        job = self.job
        weights = job.weights and dict(zip(NAMES, job.weights, strict=True))
        self.server = ProtocolServer(
            job.algorithm,
            START,
            NAMES,
            self.folder,
            job="job",
            lr=job.lr,
            local_steps=job.local_steps,
            weights=weights,
        )

    def play(self, rounds, more=0.0):
        """Rounds of everybody; `more` is added to the leaver's gradient."""
        server = self.server
        for _ in range(rounds):
            for i in ALL:
                if NAMES[i] in server.free:
                    request = server.request(NAMES[i])
                    reply = self.sites[i].answer(request, gradient(i, more * (i == LEAVER)))
                    server.receive(NAMES[i], reply)
            server.close_round()

    def leave(self):
        request = self.server.request(NAMES[LEAVER])
        said = self.server.receive(NAMES[LEAVER], self.sites[LEAVER].leave(request))
        assert said.status == "leaving"
        self.play(1)
        return REST

    def remove(self):
        self.server.remove(NAMES[LEAVER])
        return REST

    def strike(self):
        self.play(STRIKES, more=1e30)
        assert self.server.barred == (NAMES[LEAVER],)
        return REST

    def return_(self):
        self.strike()
        self.play(3)
        self.server.close()
        self.start()
        return ALL


def remembers(algorithm):
    """Whether steps depend on the sizes of all before, or on when sites were there.

    Then the two are only near each other; a leaver's part in the model would be .5.
    """
    return any(name in repr(algorithm) for name in ("adam", "Adam", "Adagrad", "Yogi", "FedAU"))


@pytest.mark.parametrize("how", [Job.leave, Job.remove, Job.strike, Job.return_])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
def test_the_model_becomes_that_of_those_who_are_here(algorithm, how, folder, caplog):
    # Weights for two of the four ways, by turns.
    weights = (1.0, 2.0, 0.5) if how in (Job.leave, Job.return_) else None
    job = Job(algorithm, weights, folder)
    with np.errstate(all="ignore"), caplog.at_level(logging.WARNING):
        job.play(7)
        ids = how(job)
        job.play(3)
    server, setting_ = job.server, job.job
    assert server.num_clients == sum(map(setting_.weight, ids))
    assert (server.generation > 1) == ("generation 2: " in caplog.text) == (not forgets(algorithm))
    states = {i: server.state(NAMES[i]) for i in ids}
    if rounds := rounds_without_faults(setting_, ids):
        error, _ = error_after(setting_, server.server, states, server.round, 4 * rounds + 60)
        assert error <= 1e-8
    else:  # it ends where it would if the leaver had never been there
        here = server.server, states
        there, client = algorithm.init(START)
        fresh = there, dict.fromkeys(ids, client)
        for index in range(server.round, server.round + ROUNDS):
            here, fresh = (play_round(setting_, *one, index) for one in (here, fresh))
        assert np.abs(here[0].x - fresh[0].x).max() < (0.1 if remembers(algorithm) else 1e-6)
    server.close()
