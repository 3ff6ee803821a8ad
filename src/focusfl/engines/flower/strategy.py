"""Any algorithm as a strategy of Flower's: the other way in, for whoever has an app.

The rounds of `server_app` are in server.py.
"""

import time
from collections.abc import Iterable
from dataclasses import replace
from logging import INFO, WARNING

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log

from focusfl.engines.flower import evaluation
from focusfl.engines.flower.job import Job
from focusfl.engines.flower.link import Link
from focusfl.engines.flower.records import from_records, to_records
from focusfl.engines.protocol import ProtocolServer


class AlgorithmStrategy(Strategy):
    """A job whose rounds are played by Flower's `start`; clients run our `client_app`.

    Flower waits for everybody up to its timeout, and what comes later is lost, which
    is as exact as any loss. The model, the rounds and the timeout are those that
    `start` is given; a model has a flat dict of arrays here.
    """

    def __init__(self, job: Job):
        if job.secure is not None:
            raise ValueError(
                "secure sums take four stages a round, and Flower's start has one; "
                f"run the job by server_app. Got secure={job.secure}."
            )
        self._job = job
        self._protocol: ProtocolServer | None = None
        self._link: Link | None = None
        self._until = 0.0  # when we stop waiting for everybody to be there

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        del config  # a request says all a site needs
        if self._protocol is None or self._link is None:
            params = {name: array.numpy() for name, array in arrays.items()}
            self._protocol = replace(self._job, params=params).open_protocol()
            self._link = Link(grid, self._job.sites, self._job.known())
            self._until = time.monotonic() + self._job.deadline
        protocol, link, group = self._protocol, self._link, str(server_round)
        free = [site for site in self._online() if site in protocol.free]
        return [
            Message(
                to_records(protocol.request(s)), link.node(s), "train", group_id=group
            )
            for s in free
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        if self._protocol is None or self._link is None:
            raise RuntimeError("no round is open")
        protocol = self._protocol
        for reply in replies:
            site = self._link.site(reply.metadata.src_node_id)
            if site and not reply.has_error():
                protocol.receive(site, from_records(reply.content))
        for site in protocol.waiting:
            protocol.give_up(site)  # Flower has stopped to listen
        counted = protocol.close_round() or ()
        model = {name: Array(np.asarray(leaf)) for name, leaf in protocol.x.items()}
        return ArrayRecord(model), MetricRecord({"counted": len(counted)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        every = self._job.evaluate_every
        if (
            self._protocol is None
            or self._link is None
            or not every
            or server_round % every
        ):
            return []
        content = to_records(evaluation.ask(self._job.job, self._protocol.x))
        group = str(server_round)
        return [
            Message(content, self._link.node(site), "evaluate", group_id=group)
            for site in self._online()
        ]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        if self._protocol is None or self._link is None:
            return None
        test = evaluation.Evaluation(
            self._job.job, server_round, self._job.sites, self._protocol.x,
            self._job.weights, self._job.metrics,
        )  # fmt: skip
        for reply in replies:
            site = self._link.site(reply.metadata.src_node_id)
            if why := test.take(site, None if reply.has_error() else reply.content):
                log(WARNING, "\t%s: %s", site, why)
        found = test.found()
        return MetricRecord(dict(found)) if found else None

    def summary(self) -> None:
        log(INFO, "\t%s, %s sites", self._job.algorithm, len(self._job.sites))

    def _online(self) -> list[str]:
        """Who is there; wait for the minimum, and once a while for everybody."""
        assert self._link is not None
        while True:
            self._link.poll(self._job.patience)
            online = self._link.look()
            late = time.monotonic() > self._until
            if len(online) >= (self._job.minimum if late else len(self._job.sites)):
                self._until = 0.0  # who comes later joins the round that is next then
                return online
            time.sleep(self._job.poll)
