"""The server app: a job on Flower, which fails where it did not end well."""

from collections.abc import Callable, Collection

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from focusfl.flower import events
from focusfl.flower.ending import Unhealthy, budgets_spent
from focusfl.flower.job import Job
from focusfl.flower.link import Link
from focusfl.flower.secure import SecureServer
from focusfl.flower.server import Server
from focusfl.flower.sessions import play_securely


class JobApp(ServerApp):
    """A server app whose job can be asked for before it runs."""

    def __init__(self, job: Job | Callable[[Context], Job]):
        super().__init__()
        self._job = job

    def job_of(self, context: Context) -> Job:
        """The job that it would run in a context of Flower's."""
        return self._job if isinstance(self._job, Job) else self._job(context)


def server_app(job: Job | Callable[[Context], Job], *, own: Collection[str] = ()) -> ServerApp:
    """Make a Flower server app of a job, or of a function of Flower's context.

    Numbers and words of a job can be set in the app's configuration too, and so by
    `flwr run --run-config`; what else is set there must be named as the app's `own`.
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
        if failures:  # all that was found is on disk; Flower is to call the run failed
            raise Unhealthy(" ".join(failures))

    return app


def run(grid: Grid, job: Job) -> list[str]:
    """Train until all rounds are done, from where an earlier run has stopped.

    Give why this was no healthy end; nothing if it was.
    """
    link = Link(grid, job.sites, job.known())
    with job.open_protocol() as protocol:
        server = Server(job, protocol, link)
        server.begin()
        server.gather()
        while protocol.round < job.rounds and not server.diverged:
            if budgets_spent(job, protocol):  # of privacy: there is nobody left to ask
                break
            if isinstance(protocol, SecureServer):
                play_securely(server, protocol)
            else:
                server.play()
        return server.finish()
