"""Jobs of four sites: the same with secure sums and without."""

from typing import Any

import numpy as np

import focusfl as ff
from focusfl.flower.protocol import ProtocolServer, Site
from focusfl.flower.secure import Keys, Secure, SecureServer, SecureSite

NAMES = ("north", "east", "south", "west")
DIM = 3
KEYS = Keys((bytes(range(32)),))
SECURE = Secure(minimum=2)
H = np.array([1.0, 1.2, 0.9, 1.1])
B = np.random.default_rng(0).standard_normal((len(NAMES), DIM))
OPTIMUM = B.sum(0) / H.sum()


def in_whole_numbers(algorithm: ff.core.Algorithm) -> ff.Compressed:
    """Give an algorithm the compressor of secure sums."""
    return ff.Compressed(algorithm, ff.FixedPoint(bits=50, fraction=44))


ALGORITHM = in_whole_numbers(ff.Focus())


def open_server(folder, secure=SECURE, algorithm=ALGORITHM, **options: Any):
    """Open the server of a job; a plain one where `secure` is None."""
    options = {"job": "job", "lr": 0.23, **options}
    if secure is None:
        return ProtocolServer(algorithm, np.zeros(DIM), NAMES, folder, **options)
    return SecureServer(algorithm, np.zeros(DIM), NAMES, folder, secure=secure, **options)


def open_sites(secure=SECURE, algorithm=ALGORITHM, keys=KEYS) -> dict[str, Site]:
    """Open all sites of a job; plain ones where `secure` is None."""
    if secure is None:
        return {name: Site(algorithm, "job", name) for name in NAMES}
    return {name: SecureSite(algorithm, "job", name, secure=secure, keys=keys) for name in NAMES}


def gradient(name):
    i = NAMES.index(name)
    return lambda x, batch: H[i] * x - B[i]


def answer(site, request):
    return site.answer(request, gradient(site.site))


def play(server, sites, names=NAMES):
    """Play a round of some sites; give their replies."""
    replies = {name: answer(sites[name], server.request(name)) for name in names}
    for name, reply in replies.items():
        receipt = server.receive(name, reply)
        assert receipt.applied, receipt
    server.close_round()
    return replies
