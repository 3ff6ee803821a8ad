"""A job of four sites with secure sums, that soon arrives."""

import numpy as np

import focusfl as ff
from focusfl.flower.protocol.messages import unpack
from focusfl.flower.secure import Secure, SecureServer, SecureSite
from focusfl.flower.secure.held import read_parts

N, DIM = 4, 3
NAMES = [f"site-{i}" for i in range(N)]
ALGORITHM = ff.Compressed(ff.Focus(), ff.FixedPoint(bits=50, fraction=44))
SECURE = Secure()
H = np.array([1.0, 1.2, 0.9, 1.1])
B = np.random.default_rng(0).standard_normal((N, DIM))
OPTIMUM = B.sum(0) / H.sum()


def open_server(folder, **options):
    """The server of the job, whose steps are near the best."""
    options = {"secure": SECURE, "job": "job", "lr": 0.23, **options}
    algorithm = options.pop("algorithm", ALGORITHM)
    return SecureServer(algorithm, np.zeros(DIM), NAMES, folder, **options)


def open_site(folder, i):
    return SecureSite(ALGORITHM, "job", NAMES[i], folder=folder, secure=SECURE)


def gradient(i):
    return lambda x, batch: H[i] * x - B[i]


def answer(site, message):
    return site.answer(message, gradient(NAMES.index(site.site)))


def error(server):
    return float(np.abs(server.x - OPTIMUM).max())


def gap(server, sites):
    """How far what is tracked is from the states that sites hold of counted pushes."""
    total = -server.server.y
    for row in server._store.sites("here"):
        if row.pushes:
            blob = read_parts(sites[NAMES.index(row.name)].path("state"))[row.version]
            state = unpack(blob, server._like_state)
            total = total + state.inner.grad - state.unsent["y"]
    return float(np.abs(total).max())


def play(server, sites, silent=()):
    """One round of a session; `silent` are (stage, site) that say nothing there."""
    server.begin(NAMES)
    while server.session:
        for name in server.free:
            if (server.session.stage, name) not in silent:
                site = sites[NAMES.index(name)]
                assert server.receive(name, answer(site, server.request(name))).applied
        server.advance()
    return server.close_round()
