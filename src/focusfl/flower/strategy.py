"""Any algorithm as a strategy of Flower's, for users who have a server app already."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from focusfl.flower import evaluation, events
from focusfl.flower.ending import Unhealthy
from focusfl.flower.job import Job
from focusfl.flower.link import Answer, Link, Pending
from focusfl.flower.records import to_records
from focusfl.flower.server import Server

log = logging.getLogger("flwr")  # Flower's own: these lines are among its rounds


class AlgorithmStrategy(Strategy):
    """A job whose rounds are played by Flower's `start`; clients run our `client_app`.

    Flower waits for everybody up to its timeout. Answers that come later are lost, which
    leaves the training as exact as any loss. `start` gives the model (a flat dict of arrays),
    the rounds and the timeout; the job gives all else. Events, the model and the curves are
    written to the folder of the job, as `server_app` writes them.

    Args:
        job: what is learned; its `params` and `rounds` are not read.

    Raises:
        ValueError: If the job has secure sums, whose rounds have four stages.
    """

    def __init__(self, job: Job):
        if job.secure is not None:
            raise ValueError(
                "secure sums take four stages a round, and Flower's start has one; "
                f"run the job by server_app. Got secure={job.secure}."
            )
        self._job = job
        self._server: Server | None = None
        self._until = 0.0  # when we stop waiting for everybody to be there
        self._opened = 0.0  # when the round was opened
        self._asked: set[str] = set()  # sites that owe an answer
        self._counted = 0  # answers, in all rounds

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3,
        timeout: float = 3600, train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:  # fmt: skip
        """Play `num_rounds` rounds, from where an earlier run has stopped.

        Arguments and result are those of Flower's `Strategy.start`.

        Raises:
            Unhealthy: if no site was counted in any round; results are written before.
        """
        params = {name: array.numpy() for name, array in initial_arrays.items()}
        job = replace(self._job, params=params)
        try:
            with job.open_protocol() as protocol:
                job = replace(job, rounds=protocol.round + num_rounds)
                link = Link(grid, job.sites, job.known())
                self._server = Server(job, protocol, link)
                self._until, self._counted = time.monotonic() + job.deadline, 0
                self._server.begin()
                result = super().start(
                    grid, initial_arrays, num_rounds, timeout, train_config,
                    evaluate_config, evaluate_fn,
                )  # fmt: skip
                failures = self._server.finish()
        except (ValueError, ArithmeticError) as error:
            events.write_failure(job.place, error)
            raise
        finally:
            self._server = None
        if not self._counted:
            why = f"no site was counted in any of {num_rounds} rounds."
            raise Unhealthy(" ".join(failures) or why)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        del config  # a request says all a site needs
        server, group = self._started, str(server_round)
        protocol, link = server.protocol, server.link
        server.online = self._online()
        self._opened = time.monotonic()
        server.say("open", generation=protocol.generation)
        free = [site for site in server.online if site in protocol.free]
        requests = server.requests(free)
        server.count_sent(wired for _, _, wired in requests)
        self._asked = set(free)
        return [
            Message(to_records(wired), link.node(site), "train", group_id=group)
            for site, _, wired in requests
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        server = self._started
        protocol = server.protocol
        for reply in replies:
            node = reply.metadata.src_node_id
            if site := server.link.site(node):
                pending = Pending("train", node, site, self._opened)
                server.take_push(Answer.of(pending, reply))
                self._asked.discard(site)
        for site in sorted(self._asked):  # Flower has stopped to listen
            server.say("nothing", site=site, why="no answer")
        counted = server.close_round((), self._opened)
        self._counted += len(counted)
        model = {name: Array(np.asarray(leaf)) for name, leaf in protocol.x.items()}
        return ArrayRecord(model), MetricRecord({"counted": len(counted)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        server, every = self._started, self._job.eval_every
        if not every or server_round % every:
            return []
        content = to_records(evaluation.ask(self._job.job, server.protocol.x))
        group = str(server_round)
        return [
            Message(content, server.link.node(site), "evaluate", group_id=group)
            for site in self._online()
        ]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        server, job, answered = self._started, self._job, list(replies)
        if not answered:
            return None
        protocol = server.protocol
        test = evaluation.Evaluation(job, protocol.round, job.sites, protocol.x)
        for reply in answered:
            site = server.link.site(reply.metadata.src_node_id)
            if why := test.take(site, None if reply.has_error() else reply.content):
                log.warning("\t%s: %s", site, why)
        server.end_test(test)
        metrics = test.results()
        return MetricRecord(dict(metrics)) if metrics else None

    def summary(self) -> None:
        log.info("\t%s, %s sites", self._job.algorithm, len(self._job.sites))

    @property
    def _started(self) -> Server:
        if self._server is None:
            raise RuntimeError("rounds are played by start(), which was not called.")
        return self._server

    def _online(self) -> list[str]:
        """Give the sites that are online, once they are enough.

        The first time, until the deadline, it waits for everybody; later for the minimum.
        """
        link = self._started.link
        while True:
            link.poll(self._job.patience)
            online = link.look()
            late = time.monotonic() > self._until
            if len(online) >= (self._job.minimum if late else len(self._job.sites)):
                self._until = 0.0  # who comes later joins the round that is next then
                return online
            time.sleep(self._job.poll)
