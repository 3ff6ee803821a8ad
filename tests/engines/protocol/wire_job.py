"""A job of three sites that soon arrives, and may be interfered with."""

import numpy as np
from test_exactness import EXACT

import focusfl as ff
from focusfl.engines.protocol import ProtocolServer, Site
from focusfl.engines.protocol.magnitude import norm

# Those of them that arrive in few rounds.
FAST = [ff.Focus(), ff.Scaffold(), ff.Scaffnew(), ff.FedLT(), ff.TFocus()]
EVERY = [*EXACT, ff.TFocus(), ff.AnchoredFocus(), ff.Focus(warm_start=True)]
N, LR, DIM = 3, 0.2, 4
NAMES = [f"site-{i}" for i in range(N)]
H = np.eye(DIM) * [[[1.0]], [[1.2]], [[0.9]]]  # well conditioned: few rounds will do
B = np.random.default_rng(0).standard_normal((N, DIM))
OPTIMUM = np.linalg.solve(H.sum(0), B.sum(0))


class Job:
    """A job whose messages all arrive, and whose sites may say what they like."""

    def __init__(self, algorithm, folder, **options):
        options = {"job": "job", "lr": LR, "local_steps": 2, **options}
        params = options.pop("params", np.zeros(DIM))
        self.open = lambda: ProtocolServer(algorithm, params, NAMES, folder, **options)
        self.protocol = self.open()
        self.sites = [Site(algorithm, folder, options["job"], name) for name in NAMES]
        self.said = []  # every reply there ever was
        self.more = np.zeros(N)  # what is added to everybody's gradient
        self.shift = np.zeros((N, DIM))  # this too, and it stays

    def grad(self, i):
        return lambda x, batch: H[i] @ x - B[i] + self.shift[i] + self.more[i]

    def gradient(self, x):
        """That of everybody together."""
        return sum(self.grad(i)(x, None) for i in range(N))

    def play(self, rounds=1, ids=range(N)):
        """Rounds of these; what became of their replies."""
        receipts = []
        for _ in range(rounds):
            for i in ids:
                if NAMES[i] in self.protocol.counted:  # a warm start waits for the rest
                    continue
                request = self.protocol.request(NAMES[i])
                reply = self.sites[i].answer(request, self.grad(i))
                self.said.append((NAMES[i], reply))
                receipts.append(self.protocol.receive(NAMES[i], reply))
            self.protocol.close_round()
        return receipts

    def spike(self, i, ids=range(N)):
        """A round in which one site's gradients are far too large."""
        self.more[i] = 1e16
        receipts = self.play(1, ids)
        self.more[i] = 0
        return receipts[i]

    def settles(self, error):
        """Play until the error is so small; give up after a while."""
        for _ in range(40):
            self.play(15)
            if self.error < error:
                return True
        return False

    @property
    def disk(self):
        return self.protocol._path.read_bytes()

    def restart(self, disk=None):
        """Kill the server and start it again, with this on its disk."""
        self.protocol.close()
        if disk == b"":
            for path in self.protocol._path.parent.glob("server.*"):
                path.unlink()
        elif disk is not None:
            self.protocol._path.write_bytes(disk)
        self.protocol = self.open()

    @property
    def error(self):
        return norm(self.protocol.x - OPTIMUM) / norm(OPTIMUM)
