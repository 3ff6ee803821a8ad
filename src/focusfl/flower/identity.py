"""Who a client is: a name that outlives node ids, and a folder that is its own."""

from pathlib import Path
from typing import NamedTuple

from flwr.app import Context

FOLDER = "~/.focusfl"


class Identity(NamedTuple):
    site: str
    number: int | None  # its place among the sites, where they share a data set
    folder: Path  # where it keeps its state


def identify(context: Context) -> Identity:
    """Read who this is from the SuperNode's configuration.

    `site` is its name, else that in the file `site-file`, else site-N of
    `partition-id=N`; `state` is a folder that lasts, ~/.focusfl/SITE if not given.
    """
    config = context.node_config
    number = config.get("partition-id")
    if "site" in config:
        site = str(config["site"])
    elif "site-file" in config:
        site = Path(str(config["site-file"])).expanduser().read_text().strip()
    elif number is not None:
        site = f"site-{number}"
    else:
        raise ValueError(
            "a SuperNode must say which site it is: start it with --node-config "
            "'site=\"NAME\"', 'site-file=\"FILE\"' or 'partition-id=NUMBER'."
        )
    folder = Path(str(config.get("state") or Path(FOLDER) / site)).expanduser()
    return Identity(site, None if number is None else int(number), folder)
