"""Any algorithm in the place of a strategy of Flower's, for users who have a server app already."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from focusfl.flower import events
from focusfl.flower.app import rounds
from focusfl.flower.ending import Unhealthy
from focusfl.flower.job import Job
from focusfl.flower.link import Link
from focusfl.flower.server import Server


class AlgorithmStrategy:
    """A job with the `start` of a strategy of Flower's; clients run our `client_app`.

    `start` gives the model (a flat dict of arrays), the rounds and the timeout; the job gives
    all else. A round waits for everybody who was asked, up to the timeout, and answers that
    come later count in the round that is open then. Events, the model and the curves are
    written to the folder of the job, as `server_app` writes them.

    Args:
        job: what is learned; its `params`, `rounds` and, after all sites were given a chance
            to be there, its `deadline` are not read.
    """

    def __init__(self, job: Job):
        self._job = job

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3,
        timeout: float = 3600, train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:  # fmt: skip
        """Play `num_rounds` rounds, from where an earlier run has stopped.

        Arguments and result are those of Flower's `Strategy.start`; the configurations are
        not read, as a request says all that a site needs.

        Raises:
            ValueError: If the job has secure sums: their server has no model to give.
            Unhealthy: if no site was counted in any round; results are written before.
        """
        if self._job.secure:
            raise ValueError(
                "a strategy gives the model, and a server of secure sums does not have it; "
                "server_app(job) runs such a job."
            )
        result, total = Result(arrays=initial_arrays), 0

        def evaluate(number: int) -> None:
            metrics = evaluate_fn(number, result.arrays) if evaluate_fn else None
            if metrics is not None:
                result.evaluate_metrics_serverapp[number] = metrics

        params = {name: array.numpy() for name, array in initial_arrays.items()}
        job = replace(
            self._job, params=params, deadline=timeout, patience=max(timeout, self._job.patience)
        )
        try:
            with job.open_protocol() as protocol:
                first = protocol.round
                job = replace(job, rounds=first + num_rounds)
                # A round ends when all have answered, even if nothing they said counts:
                # who has written this loop expects that it ends.
                server = Server(job, protocol, Link(grid, job.sites, job.sites_by_key()), True)
                server.begin()
                server.gather(self._job.deadline)
                evaluate(0)
                for counted in rounds(server):
                    number, total = protocol.round - first, total + len(counted)
                    model = {name: Array(np.asarray(leaf)) for name, leaf in protocol.x.items()}
                    result.arrays = ArrayRecord(model)
                    result.train_metrics_clientapp[number] = MetricRecord({"counted": len(counted)})
                    evaluate(number)
                failures = server.finish()
        except (ValueError, ArithmeticError) as error:
            events.write_failure(job.place, error)
            raise
        for event in events.lasting(events.read(job.place)):
            if event["event"] == "evaluation" and event["after"] > first:
                metrics = MetricRecord(event["metrics"])
                result.evaluate_metrics_clientapp[event["after"] - first] = metrics
        if not total:
            why = f"no site was counted in any of {num_rounds} rounds."
            raise Unhealthy(" ".join(failures) or why)
        return result
