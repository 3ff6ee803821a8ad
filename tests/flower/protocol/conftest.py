"""A job of three sites that arrives soon, and may be interfered with."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from world.world import memory

from focusfl.flower.protocol import ProtocolServer, Site
from focusfl.flower.protocol.limits import norm

N, LR, DIM = 3, 0.2, 4
NAMES = [f"site-{i}" for i in range(N)]
H = np.eye(DIM) * [[[1.0]], [[1.2]], [[0.9]]]  # well conditioned: few rounds will do
B = np.random.default_rng(0).standard_normal((N, DIM))


class Job:
    """A job whose messages all arrive, and whose sites may say what they like."""

    def __init__(self, algorithm, folder, **options):
        options = {"job": "job", "lr": LR, "local_steps": 2, **options}
        params = options.pop("params", np.zeros(DIM))
        self.open = lambda **more: ProtocolServer(
            algorithm, params, NAMES, folder, **{**options, **more}
        )
        self.server = self.open()
        self.sites = [Site(algorithm, options["job"], name) for name in NAMES]
        self.more = np.zeros(N)  # what is added to everybody's gradient
        self.weights = options.get("weights") or dict.fromkeys(NAMES, 1.0)
        self.calls = [0] * N  # gradients each has computed

    def grad(self, i):
        def gradient(x, batch):
            self.calls[i] += 1
            return H[i] @ x - B[i] + self.more[i]

        return gradient

    def reply(self, i):
        return self.sites[i].answer(self.server.request(NAMES[i]), self.grad(i))

    def play(self, rounds=1, ids=range(N)):
        """Rounds of these; what became of their replies."""
        receipts = []
        for _ in range(rounds):
            for i in ids:
                if NAMES[i] in self.server.free:
                    receipts.append(self.server.receive(NAMES[i], self.reply(i)))
            self.server.close_round()
        return receipts

    def restart(self, **options):
        self.server.close()
        self.server = self.open(**options)

    def arrives(self, error=1e-10, ids=range(N), rounds=600):
        for _ in range(rounds // 15):
            self.play(15, ids)
            if self.error(ids) < error:
                return True
        return False

    def error(self, ids=range(N)):
        weights = [self.weights[NAMES[i]] for i in ids]
        A = sum(w * H[i] for w, i in zip(weights, ids, strict=True))
        b = sum(w * B[i] for w, i in zip(weights, ids, strict=True))
        best = np.linalg.solve(A, b)
        return norm(self.server.x - best) / norm(best)

    def gap(self):
        """How far what is tracked is from the states."""
        server = self.server.server
        other = self.server.algorithm.recompute(server, self.server.states())
        return norm([a - b for a, b in zip(server, other, strict=True)][1])


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        yield Path(name)


@pytest.fixture
def begun(folder):
    """A function that begins a job, which ends with the test."""
    jobs = []

    def begin(algorithm, **options):
        jobs.append(Job(algorithm, folder, **options))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.server.close()
