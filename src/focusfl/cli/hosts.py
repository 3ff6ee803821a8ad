"""`focusfl deploy certificates`: what a server and its sites need on several hosts."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from focusfl.cli.options import need_flower


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand, by the function that adds any command."""
    keys = command(
        "certificates", _certificates,
        "write certificates, keys and nginx's configuration, or renew the server's certificate",
        "focusfl deploy certificates keys --hosts fl.example.org --sites paris rome",
    )  # fmt: skip
    keys.add_argument("folder", type=Path, nargs="?", default=Path("keys"))
    keys.add_argument("--hosts", nargs="+", default=[], help="names of the server")
    keys.add_argument("--sites", nargs="+", default=[], help="a name each")
    keys.add_argument(
        "--renew", action="store_true", help="sign another certificate for the server"
    )


def _certificates(options: argparse.Namespace) -> int:
    need_flower()  # it brings what signs
    from focusfl.deploy import certificates
    from focusfl.flower.identity import expiries

    if options.renew:
        files = certificates.renew(options.folder, options.hosts)
    else:
        files = certificates.make(options.folder, options.hosts, options.sites)
    words = expiries(options.folder)
    if options.json:
        print(json.dumps({"files": [str(file) for file in files], "ending": words}))
    else:
        print("\n".join([*(f"written: {file}" for file in files), *words]))
    return 0
