"""The server app: a job on Flower, which fails where it did not end well."""

from collections.abc import Callable, Collection

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from focusfl.engines.flower import events
from focusfl.engines.flower.ending import Unhealthy
from focusfl.engines.flower.job import Job
from focusfl.engines.flower.server import run


def server_app(
    job: Job | Callable[[Context], Job], *, own: Collection[str] = ()
) -> ServerApp:
    """Make a Flower server app of a job, or of a function of Flower's context.

    Numbers and words of a job can be set in the app's configuration too, and so by
    `flwr run --run-config`; what else is set there must be named as the app's `own`.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            mine = job if isinstance(job, Job) else job(context)
            amiss = run(grid, mine.configured(context.run_config, own))
        except (ValueError, ArithmeticError) as error:
            events.fail(context.run_config, error)
            raise
        if amiss:  # all that was found is on disk; Flower is to call the run failed
            raise Unhealthy(" ".join(amiss))

    return app
