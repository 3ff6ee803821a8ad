"""What runs at the server. Numbers are in pyproject.toml."""

from focusfl.flower import Job, server_app

from .task import ALGORITHM, PARAMS


def job(context) -> Job:
    """Say what is learned; settings of the app are taken on top."""
    config = context.run_config
    return Job(
        ALGORITHM,
        PARAMS,
        sites=tuple(config["sites"].split()),
        rounds=config["rounds"],
        lr=config["lr"],
        folder=config["folder"],
    )


app = server_app(job)
