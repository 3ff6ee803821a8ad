"""The server app: a job on Flower, from its first round to its end."""

from collections.abc import Callable, Collection, Iterator

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from focusfl.flower import events
from focusfl.flower.ending import Unhealthy, budgets_spent
from focusfl.flower.job import Job
from focusfl.flower.link import Link
from focusfl.flower.server import Server


class JobApp(ServerApp):
    """A server app whose job can be asked for before it runs."""

    def __init__(self, job: Job | Callable[[Context], Job]):
        super().__init__()
        self._job = job

    def job_of(self, context: Context) -> Job:
        """Give the job that the app would run in a context of Flower's."""
        return self._job if isinstance(self._job, Job) else self._job(context)


def server_app(job: Job | Callable[[Context], Job], *, own: Collection[str] = ()) -> ServerApp:
    """Make a Flower server app of a job, or of a function of Flower's context.

    Numbers and words of a job can be set in the app's configuration too, and so by
    `flwr run --run-config`.

    Args:
        job: what is learned; see `Job`.
        own: names of further settings in the configuration, which are the app's own.
            Settings that neither a job nor the app has are refused.

    Returns:
        An app that raises `Unhealthy`, so that Flower calls the run failed, if the job did
        not end well; its results are written before.
    """
    app = JobApp(job)

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            this_job = app.job_of(context).configured(context.run_config, own)
            failures = run(grid, this_job)
        except (ValueError, ArithmeticError) as error:
            events.fail(context.run_config, error)
            raise
        if failures:
            raise Unhealthy(" ".join(failures))

    return app


def run(grid: Grid, job: Job) -> list[str]:
    """Train until all rounds are done, from where an earlier run has stopped.

    Returns:
        Why this was no healthy end; empty if it was.
    """
    link = Link(grid, job.sites, job.sites_by_key())
    with job.open_protocol() as protocol:
        server = Server(job, protocol, link)
        server.begin()
        server.gather(job.deadline)
        for _ in rounds(server):
            pass
        return server.finish()


def rounds(server: Server) -> Iterator[Collection[str]]:
    """Play rounds and give the sites that each has counted, until all rounds are done, the
    training diverges, or too many sites have spent their privacy budgets."""
    job, protocol = server.job, server.protocol
    while protocol.round < job.rounds and not server.diverged and not budgets_spent(job, protocol):
        before = protocol.round
        counted = server.play()
        if protocol.round > before:  # it was no warm-up, and budgets were not spent in it
            yield counted
