"""A grid that loses, holds back and doubles the replies it has received."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from focusfl.core import random as keys
from focusfl.deploy.faults.chaos import Chaos
from focusfl.flower.protocol.messages import fields_of
from focusfl.flower.records import from_records

LONGEST_DELAY = 3  # rounds


class Lossy(Grid):
    """Another grid, with a chance for every reply, drawn by its round and its site."""

    def __init__(self, grid: Grid, chaos: Chaos):
        self._grid, self._chaos = grid, chaos
        self._round = 0
        self._times: Counter[tuple] = Counter()  # that a stage's reply came
        self._held: list[tuple[int, Message]] = []  # until a round

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        for message in messages:
            if message.metadata.message_type == "train":
                self._round = int(message.metadata.group_id)
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        due = [message for until, message in self._held if until <= self._round]
        # Asked for again, the SuperLink says that a reply is not there any more: so it
        # does of one that is lost, but one that is held back is still on its way.
        here = {message.metadata.reply_to_message_id for _, message in self._held}
        self._held = [kept for kept in self._held if kept[0] > self._round]
        for message in self._grid.pull_messages(set(message_ids) - here):
            due += self._tamper(message)
        return due

    def _tamper(self, message: Message) -> list[Message]:
        if message.has_error():
            return [message]
        fields = fields_of(from_records(message.content))
        if "site" not in fields:  # not of the protocol
            return [message]
        chaos = self._chaos
        which: tuple = fields["round"], fields["site"]
        if "stage" in fields:  # of a secure sum: asked again, it may get through
            which += (fields["stage"], fields["session"])
            self._times[which] += 1
            which += (self._times[which],)
        rng = keys.rng(chaos.seed, "reply", *which)
        chance, wait = rng.random(), int(rng.integers(1, LONGEST_DELAY + 1))
        lost, late = chaos.drop, chaos.drop + chaos.delay
        if lost <= chance < late + chaos.duplicate:
            self._held.append((self._round + wait, message))
        return [message] if chance >= late else []

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        return self._grid.get_nodes()

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        return self._grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self._grid.create_message(*args, **kwargs)

    def send_and_receive(self, messages: Any, *, timeout: Any = None) -> Any:
        raise NotImplementedError("Flower's own waiting cannot be made to lose replies")
