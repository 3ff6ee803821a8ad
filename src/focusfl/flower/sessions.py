"""Rounds of secure sums over Flower's grid: sessions of four stages."""

import time
from collections import Counter
from typing import TYPE_CHECKING

from focusfl.flower.ending import budgets_spent
from focusfl.flower.secure import Failed, SecureServer

if TYPE_CHECKING:
    from focusfl.flower.server import Server

TRIES = 6  # times that a site is asked in a stage, if nothing comes of it
SLOWEST = 1.0  # seconds between two looks at what has come


def play_securely(server: "Server", protocol: SecureServer) -> None:
    """Have sessions until one comes to a sum, and close the round."""
    opened = time.monotonic()
    server.say("open", generation=protocol.generation)
    while not protocol.counted:
        if budgets_spent(server.job, protocol):
            return
        server.look()
        here = [site for site in protocol.free if site in server.online]
        try:
            protocol.begin(here)
            while protocol.session:
                _stage(server, protocol)
                protocol.advance()
        except Failed as error:
            server.say("session", why=f"it came to no sum: {error}")
            if protocol.restarts:
                protocol.new_generation(protocol.restarts)
                return
            time.sleep(server.job.poll)
    server.close_round(set(), opened)


def _stage(server: "Server", protocol: SecureServer) -> None:
    """Ask everybody in this stage, time and again, until all who can have answered.

    At the deadline it goes on without the rest.
    """
    session, job, began = protocol.session, server.job, time.monotonic()
    asked: Counter[str] = Counter()
    while session is not None:
        server.look()
        left = [site for site in protocol.free if asked[site] < TRIES]
        here = [site for site in left if site in server.online]
        now = [site for site in here if site not in protocol.awaited]
        server.ask([(s, protocol.turn, protocol.request(s)) for s in now], "train")
        asked.update(now)
        server.receive()
        waits = here or [site for site in protocol.awaited if site in protocol.free]
        few = left and len(session.answered) < session.least
        seconds = time.monotonic() - began
        if not (waits or few) or seconds >= job.deadline:
            return
        time.sleep(max(job.poll, min(seconds / 20, SLOWEST)))
