"""What runs at the server. Numbers are in pyproject.toml."""

from focusfl.flower import Job, server_app
from hospitals.task import ALGORITHM, PARAMS


def job(context):
    config = context.run_config
    names = ("rounds", "lr", "folder")
    sites = tuple(config["sites"].split())
    return Job(ALGORITHM, PARAMS, sites, **{name: config[name] for name in names})


app = server_app(job)
