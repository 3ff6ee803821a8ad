"""`focusfl deploy` at the server of several hosts: keys, SuperLink, operators."""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path

from focusfl.cli.options import need_flower

KEYS = Path("keys")


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommands, by the function that adds any command."""
    keys = command(
        "certificates", _certificates,
        "write certificates, keys and tokens, or renew the server's certificate",
        "focusfl deploy certificates keys --hosts fl.example.org --sites paris rome",
    )  # fmt: skip
    keys.add_argument("folder", type=Path, nargs="?", default=KEYS)
    keys.add_argument("--hosts", nargs="+", default=[], help="names of the server")
    keys.add_argument("--sites", nargs="+", default=[], help="a name each")
    keys.add_argument(
        "--renew", action="store_true", help="sign another certificate for the server"
    )
    link = command(
        "superlink", _superlink,
        "serve Flower's SuperLink behind doors: sites, operators, nobody else",
        "focusfl deploy superlink keys --port 8001 --database superlink.db",
    )  # fmt: skip
    link.add_argument("keys", type=Path, nargs="?", default=KEYS)
    link.add_argument("--host", default="127.0.0.1", help="to listen on (127.0.0.1)")
    link.add_argument("--port", type=int, default=8000, help="to listen on (8000)")
    link.add_argument("--database", type=Path, help="file that lasts (none)")
    link.add_argument("--largest", type=float, metavar="MIB", help="that an answer may have (256)")
    link.add_argument(
        "--insecure", action="store_true", help="no encryption: on this machine alone"
    )
    login = command(
        "login", _login, "have Flower's command line show the operators' token",
        "focusfl deploy login 127.0.0.1:8001 keys",
    )  # fmt: skip
    login.add_argument("address", help="of the SuperLink, as in Flower's configuration")
    login.add_argument("keys", type=Path, nargs="?", default=KEYS)


def _certificates(options: argparse.Namespace) -> int:
    need_flower()  # it brings what signs
    from focusfl.deploy import certificates
    from focusfl.flower import public_keys

    if options.renew:
        files = certificates.renew(options.folder, options.hosts)
    else:
        files = certificates.make(options.folder, options.hosts, options.sites)
    words = public_keys.ending(options.folder)
    if options.json:
        print(json.dumps({"files": [str(file) for file in files], "ending": words}))
    else:
        print("\n".join([*(f"written: {file}" for file in files), *words]))
    return 0


def _superlink(options: argparse.Namespace) -> int:
    from focusfl.core.validation import check_positive
    from focusfl.deploy import superlink

    need_flower()
    largest = options.largest
    if largest is not None:
        check_positive("--largest", largest)
        largest = int(largest * 2**20)
    superlink.serve(
        options.keys, options.host, options.port, options.database, largest=largest,
        insecure=options.insecure,
    )  # fmt: skip
    return 0


def _login(options: argparse.Namespace) -> int:
    from focusfl.deploy import certificates, superlink

    need_flower()
    file = options.keys / certificates.TOKEN
    if not file.is_file():
        raise ValueError(f"{options.keys} must have {file.name}; it has none.")
    home = Path(os.environ.get("FLWR_HOME", Path.home() / ".flwr"))
    written = superlink.log_in(home, options.address, file.read_text().strip())
    whole = json.dumps({"files": [str(written)]})
    print(whole if options.json else f"written: {written}")
    return 0
