"""A SuperLink behind doors: Flower's own, with its web app handed to `Doors`."""

import sys
import types
from pathlib import Path
from typing import Any

from focusfl.deploy import certificates
from focusfl.deploy.processes import LOOPBACK


def serve(
    keys: Path, host: str = LOOPBACK, port: int = 8000, database: Path | None = None,
    *, largest: int | None = None, insecure: bool = False,
) -> None:  # fmt: skip
    """Serve until stopped, with the keys and certificates in a folder.

    With `insecure` nothing is encrypted and whoever comes may be a site, on this
    machine alone; operators show their token all the same.
    """
    if insecure and host != LOOPBACK:
        raise ValueError(f"without encryption the host must be {LOOPBACK}; got {host}.")
    names = ["ca.crt", "server.crt", "server.key"] * (not insecure)
    for name in (*names, certificates.TOKEN, certificates.SECRET):
        if not (keys / name).is_file():
            raise ValueError(f"{keys} must have {name}; focusfl deploy certificates writes it.")
    secure = [
        "--enable-supernode-auth", "--ssl-ca-certfile", str(keys / "ca.crt"),
        "--ssl-certfile", str(keys / "server.crt"),
        "--ssl-keyfile", str(keys / "server.key"),
    ]  # fmt: skip
    sys.argv = [
        "flower-superlink", *(["--insecure"] if insecure else secure),
        "--host", host, "--port", str(port), "--isolation", "process",
        "--superexec-auth-secret-file", str(keys / certificates.SECRET),
        "--disable-runtime-dependency-installation",
        *(["--database", str(database)] if database else []),
    ]  # fmt: skip
    _run(keys, insecure, largest)


def _run(keys: Path, insecure: bool, largest: int | None) -> None:
    import uvicorn
    from flwr.superlink.cli.flower_superlink import flower_superlink

    from focusfl.deploy.doors import LARGEST, Doors, Keys

    token = (keys / certificates.TOKEN).read_text().strip()
    sites = None if insecure else Keys(keys)

    def run(app: Any, **how: Any) -> None:
        uvicorn.run(Doors(app, sites, token, largest or LARGEST, say=_say), **how)

    # Flower's start alone sees this server.
    flower_superlink.__globals__["uvicorn"] = types.SimpleNamespace(run=run)
    flower_superlink()


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def log_in(home: Path, address: str, token: str) -> Path:
    """Have Flower's command line show the operators' token to a SuperLink."""
    from flwr.cli import constant
    from flwr.common.constant import AuthnType
    from flwr.supercore.credential_store.file_credential_store import (
        FileCredentialStore,
    )

    file = home / "credentials.yaml"
    store = FileCredentialStore(file)
    for key, value in {
        constant.AUTHN_TYPE_STORE_KEY: AuthnType.OIDC,
        constant.ACCESS_TOKEN_STORE_KEY: token,
        constant.REFRESH_TOKEN_STORE_KEY: "none",
    }.items():
        store.set(key % address, value.encode())
    return file
