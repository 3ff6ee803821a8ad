"""Replies that take as long as a clock says."""

import time

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from focusfl.core import random as keys
from focusfl.deploy import timed_by
from focusfl.deploy.study import Deployed
from focusfl.flower.identity import identify
from focusfl.flower.protocol.messages import fields_of
from focusfl.flower.records import from_records


class Delays:
    """A mod of Flower's: a reply leaves when its request is as old as the clock says.

    What the work and the way here have really taken is part of it; only where that is
    longer already is the reply later than the clock.
    """

    def __init__(self, deployed: Deployed):
        self._deployed = deployed

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        site = identify(context).number
        if message.metadata.message_type == "train" and site is not None:
            due = message.metadata.created_at + self._seconds(message, site)
            time.sleep(max(0.0, due - time.time()))
        return reply

    def _seconds(self, message: Message, site: int) -> float:
        """What this reply takes, by the number of local steps that are asked for."""
        asked = fields_of(from_records(message.content))
        if "local_steps" not in asked:  # not of the protocol
            return 0.0
        pace = timed_by.pace_of(self._deployed, int(asked["local_steps"]))
        latency = self._deployed.latency
        normal = keys.rng(latency.seed, "delay", site, asked["round"]).standard_normal()
        return float(pace.travel[site] + pace.compute[site] * latency.factor(normal))
