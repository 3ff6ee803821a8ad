"""A grid of Flower's in one process: apps and messages are Flower's own."""

import json
from itertools import count
from types import SimpleNamespace

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

import focusfl as ff
from focusfl.core import tree
from focusfl.flower import Job, client_app
from focusfl.flower.protocol import ProtocolServer
from focusfl.flower.protocol.limits import norm
from focusfl.flower.secure import Keys

# Outside of Flower's processes a Message can be made in no other way.
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
SITES = tuple(f"site-{i}" for i in range(4))
FOCUS = ff.Focus()
KEYS = Keys((bytes(range(32)),))  # of secure sums
PROBLEM = ff.problems.random_quadratic(num_clients=4, dim=5, L=1.1)


class Node:
    """A SuperNode: an app, its configuration, and how many polls it takes to answer."""

    def __init__(self, app, number, folder, name="", delay=0, key=b"", **config):
        self.app, self.name, self.delay, self.key = app, name, delay, key
        self.config = {"state": str(folder), **config}
        self.state = RecordDict()  # what Flower keeps for the app
        if number is not None:
            self.config["partition-id"] = number

    def __call__(self, message):
        context = Context(1, 2, self.config, self.state, {"job": "test"})
        try:
            return self.app(message, context)
        except Exception as error:
            return Message(Error(2, repr(error)), reply_to=message)


class Loopback(Grid):
    """Nodes by number; `before` a message of a round, something may happen to them."""

    def __init__(self, nodes, before=lambda grid, round: None):
        self.nodes, self.before = nodes, before
        self.replies, self.asked, self.keys = {}, [], count(1)

    def get_node_ids(self):
        return list(self.nodes)

    def get_nodes(self):
        return [
            SimpleNamespace(node_id=k, name=n.name, public_key=n.key) for k, n in self.nodes.items()
        ]

    def push_messages(self, messages):
        keys = []
        for message in messages:
            meta = message.metadata
            if meta.message_type == "train":
                self.before(self, int(meta.group_id))
            keys.append(f"message-{next(self.keys)}")
            meta.__dict__["_message_id"] = keys[-1]
            self.asked.append((meta.message_type, meta.dst_node_id, meta.group_id))
            node = self.nodes.get(meta.dst_node_id)
            if node is not None and node.delay is not None:
                self.replies[keys[-1]] = [node.delay, node(message)]
        return keys

    def pull_messages(self, message_ids):
        due = []
        for key in message_ids:
            if key in self.replies:
                self.replies[key][0] -= 1
                if self.replies[key][0] < 0:
                    due.append(self.replies.pop(key)[1])
        return due

    def set_run(self, run): ...
    def run(self): ...
    def create_message(self): ...
    def send_and_receive(self, messages, *, timeout=None): ...


def nodes(folder, algorithm=FOCUS, work=PROBLEM, **more):
    app = client_app(work, algorithm)
    return {100 + i: Node(app, i, folder / s, **more) for i, s in enumerate(SITES)}


def job(folder, algorithm=FOCUS, **more):
    more = {"rounds": 30, "lr": 0.2, "poll": 0.001, **more}
    evaluate = lambda x: PROBLEM.objective.evaluate(x, PROBLEM.eval_data)  # noqa: E731
    return Job(
        algorithm, PROBLEM.x0, SITES, folder=folder / "server", job="test",
        evaluate=evaluate, **more,
    )  # fmt: skip


def events(folder, kind):
    """Events of a kind, with their metrics beside what else they say."""
    lines = (folder / "server" / "test" / "events.jsonl").read_text().splitlines()
    found = [e for e in map(json.loads, lines) if e["event"] == kind]
    return [{**e.get("metrics", {}), **e} for e in found]


def reopened(folder, algorithm=FOCUS, **more):
    return ProtocolServer(
        algorithm, PROBLEM.x0, SITES, folder / "server", job="test",
        **{"lr": 0.2, **more},
    )  # fmt: skip


def gap_of(protocol):
    """How far what the server tracks is from its sites' states."""
    expected = protocol.algorithm.recompute(protocol.server, protocol.states())
    return norm(tree.sub(protocol.server, expected))


def open_job(protocol):
    """Read what the server of secure sums cannot: its state, and how far its sums are off."""
    server, states = protocol.open_job(KEYS)
    expected = protocol.algorithm.recompute(server, states)
    return server, norm(tree.sub(server, expected))


class LatencyModel:
    """Time that passes while somebody sleeps, and only then."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
