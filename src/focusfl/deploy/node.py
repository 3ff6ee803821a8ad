"""A SuperNode that gives its work to its own app alone.

Flower's own hands the messages of a site to whoever calls its port on loopback. Takes
the arguments of flower-supernode, in the same words: python -m focusfl.deploy.node ...
"""

import argparse
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from focusfl.core.files import renamed


def close(start: Callable[[list[str]], Any] = subprocess.Popen) -> None:
    """Have the SuperNode that this becomes ask for a secret; start who knows it, a
    command that `start` is given the words of."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", default="9094")
    options, _ = parser.parse_known_args()
    home = Path(os.environ.get("FLWR_HOME", Path.home() / ".flwr")).resolve()
    file = home / f"node-{options.port}.secret"
    with renamed(file, private=True) as part:
        part.write_text(secrets.token_urlsafe(32))
    secret = ["--superexec-auth-secret-file", str(file)]
    sys.argv += ["--host", options.host, "--port", options.port]
    sys.argv += ["--isolation", "process", *secret]
    start(
        ["flower-superexec", "--insecure", *secret, "--parent-pid", str(os.getpid()),
         "--runtime-api-address", f"{options.host}:{options.port}"]
    )  # fmt: skip


def main() -> None:
    """Run a SuperNode until it is stopped."""
    from flwr.supernode.cli import flower_supernode

    close()
    flower_supernode()


if __name__ == "__main__":
    # Flower starts its own commands by name: they may be in no path but this Python's.
    os.environ["PATH"] += f"{os.pathsep}{Path(sys.executable).parent}"
    main()
