"""What can go wrong, made to go wrong: replies in one process, processes on a fleet."""

import os
import signal
from collections import Counter

from flwr.serverapp import Grid
from world.disk import copy_database

from focusfl.core import random as keys
from focusfl.deploy.local import Driver
from focusfl.flower.protocol.messages import fields_of
from focusfl.flower.protocol.server import DATABASE
from focusfl.flower.records import from_records

LONGEST_DELAY = 3  # rounds


def chaotic(plan):
    """A driver that does by rounds what a plan says: {3: "node:0", 5: "server"}.

    All are killed by -9 and started again: node:N, superlink, server. disk:N deletes
    what a site has, and kills it. backup copies the server's database, restore kills the
    server app and puts the copy back.
    """

    left = dict(plan)

    class Chaotic(Driver):
        def handle(self, event):
            super().handle(event)
            if event["event"] == "open" and event["round"] in left:
                what, _, number = left.pop(event["round"]).partition(":")
                super().handle({"event": "chaos", "round": event["round"], "what": what})
                self._hit(what, int(number or 0))

        def _hit(self, what, number):
            fleet, database = self.fleet, self.place / DATABASE
            site = fleet.sites[number]
            match what:
                case "node":
                    fleet.nodes[site].kill()
                case "disk":
                    for file in fleet.state(site).rglob("*"):
                        file.is_file() and file.unlink()
                    fleet.nodes[site].kill()  # with it goes what it has in memory
                case "superlink":
                    fleet.superlink.kill()
                    fleet.start_superlink()
                case "backup":
                    copy_database(database, self.place / "backup")
                case "server" | "restore":
                    assert os.getpgid(self.pid) == fleet.superexec.pid
                    os.kill(self.pid, signal.SIGKILL)
                    fleet.flwr("stop", str(self.run))
                    if what == "restore":
                        copy_database(self.place / "backup", database)
                    self.start()

    return Chaotic


class Lossy(Grid):
    """Another grid, with a chance for every reply, drawn by its round and its site.

    Shares of replies are lost, held back for one to three rounds, or given twice.
    """

    def __init__(self, grid, drop=0.0, delay=0.0, duplicate=0.0, seed=0):
        self._grid, self._seed = grid, seed
        self._drop, self._delay, self._duplicate = drop, delay, duplicate
        self._round, self._times = 0, Counter()  # that a reply of a round and site came
        self._held = []  # with the rounds until which they are held

    def push_messages(self, messages):
        messages = list(messages)
        for message in messages:
            if message.metadata.message_type == "train":
                self._round = int(message.metadata.group_id)
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids):
        due = [message for until, message in self._held if until <= self._round]
        # Asked for again, the SuperLink says that a reply is not there any more: so it
        # does of one that is lost, but one that is held back is still on its way.
        here = {message.metadata.reply_to_message_id for _, message in self._held}
        self._held = [held for held in self._held if held[0] > self._round]
        for message in self._grid.pull_messages(set(message_ids) - here):
            due += self._tamper(message)
        return due

    def _tamper(self, message):
        if message.has_error():
            return [message]
        fields = fields_of(from_records(message.content))
        if "site" not in fields:  # not of the protocol
            return [message]
        which = fields["round"], fields["site"]
        self._times[which] += 1
        if self._times[which] > 1:  # asked again, it may get through
            which += (self._times[which],)
        rng = keys.rng(self._seed, "reply", *which)
        chance, wait = rng.random(), int(rng.integers(1, LONGEST_DELAY + 1))
        late = self._drop + self._delay
        if self._drop <= chance < late + self._duplicate:
            self._held.append((self._round + wait, message))
        return [message] if chance >= late else []

    def get_node_ids(self):
        return self._grid.get_node_ids()

    def get_nodes(self):
        return self._grid.get_nodes()

    def set_run(self, run):
        self._grid.set_run(run)

    @property
    def run(self):
        return self._grid.run

    def create_message(self, *args, **kwargs):
        return self._grid.create_message(*args, **kwargs)

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError("Flower's own waiting cannot be made to lose replies")
