"""The server app of a study on a grid that loses replies: that of `deploy local`."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from focusfl.deploy import study
from focusfl.deploy.faults.chaos import parse
from focusfl.deploy.faults.lossy import Lossy


def study_server(folder: Path) -> ServerApp:
    """The study's own server app, on a lossy grid as its setting `chaos` says."""
    app, plain = ServerApp(), study.study_server(folder, own=["chaos"])

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        chaos = parse(str(context.run_config["chaos"]))
        plain(Lossy(grid, chaos), context)

    return app
