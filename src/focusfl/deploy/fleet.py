"""A federation on this machine: SuperLink, superexec and a SuperNode for every site."""

import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from focusfl.core.files import make_folder
from focusfl.deploy import certificates, ownership
from focusfl.deploy.processes import (
    LOOPBACK,
    Failed,
    Process,
    environment,
    free_ports,
    ignore_sigint,
    listens,
    stop,
)
from focusfl.flower.secure.keys import Keys

PATIENCE = 90.0  # seconds for a process to come up, on a machine with much to do
CONNECTION = "fleet"  # what the SuperLink is called in Flower's configuration
# Seconds until a SuperNode looks for work again; Flower's own 1 is much of a round.
POLL = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}


class Fleet:
    """The processes of one federation, and their folders.

    All are started by Flower's own command line. `with` stops exactly what was started,
    however it is left. Every site has a folder for its state.

    Args:
        folder: for databases, keys and logs.
        sites: their names.
        tls: encrypt messages, and let in SuperNodes with known keys alone.
    """

    def __init__(self, folder: Path, sites: Sequence[str], *, tls: bool = False):
        self.folder, self.sites, self.tls = folder.resolve(), list(sites), tls
        keys, self._home = self.folder / "keys", self.folder / "flwr"
        for path in (self.folder, keys, self._home, self.folder / "logs"):
            make_folder(path, private=True)
        self.keys = str(keys) if tls else ""  # the job's setting of this name
        self.sums_key = keys / "sums.key"
        if not self.sums_key.exists():
            Keys.create(self.sums_key)
        self._port, *ports = free_ports(1 + len(sites))
        address = f"{LOOPBACK}:{self._port}"
        trust, serve, connection = ["--insecure"], ["--insecure"], "insecure = true"
        certificates.make_secret(keys)
        if tls:
            certificates.make(keys, ["localhost", LOOPBACK], self.sites)
            trust = ["--root-certificates", f"{keys}/ca.crt"]
            serve = [
                "--enable-supernode-auth", "--ssl-ca-certfile", f"{keys}/ca.crt",
                "--ssl-certfile", f"{keys}/server.crt", "--ssl-keyfile", f"{keys}/server.key",
            ]  # fmt: skip
            connection = f'root-certificates = "{keys}/ca.crt"'
        (self._home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n'
            f'[superlink.{CONNECTION}]\naddress = "{address}"\n{connection}\n'
        )
        secret = ["--superexec-auth-secret-file", str(keys / certificates.SECRET)]
        # "process" and a superexec apart: so the server app outlives a crash of the link.
        self.superlink = self._process(
            "superlink", self._home,
            ["flower-superlink", *serve, *secret, "--isolation", "process"],
            ["--host", LOOPBACK, "--port", str(self._port)],
            ["--database", str(self.folder / "superlink.db")],
            ["--disable-runtime-dependency-installation"],
        )  # fmt: skip
        self.superexec = self._process(
            "superexec", self._home,
            ["flower-superexec", *trust, *secret, "--runtime-api-address", address],
        )  # fmt: skip
        self.nodes = {
            site: self._process(
                site, self._node_home(site),
                ["flower-supernode", *trust, "--superlink", address],
                ["--host", LOOPBACK, "--port", str(port)],
                ["--node-config", self._node_config(number, site)],
                ["--auth-supernode-private-key", f"{keys}/{site}/key"] if tls else [],
            )
            for number, (site, port) in enumerate(zip(sites, ports, strict=True))
        }  # fmt: skip

    def state(self, site: str) -> Path:
        """Give the folder in which a site keeps what it must not lose."""
        return self.folder / "sites" / site / "state"

    def _node_home(self, site: str) -> Path:
        return self.folder / "sites" / site / "flwr"

    def _node_config(self, number: int, site: str) -> str:
        return (
            f"partition-id={number} num-partitions={len(self.sites)} "
            f'site="{site}" state="{self.state(site)}" sums-key="{self.sums_key}"'
        )

    def _process(self, name: str, home: Path, *command: list[str]) -> Process:
        words = [word for part in command for word in part]
        env = environment(home, **POLL)
        return Process(name, words, self.folder / "logs" / f"{name}.log", env)

    @property
    def processes(self) -> list[Process]:
        return [*self.nodes.values(), self.superexec, self.superlink]

    def __enter__(self) -> "Fleet":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):  # stop everything first
                signal.signal(number, signal.default_int_handler)
        try:
            self.start_superlink()
            self.superexec.start()
            if self.tls:
                with ThreadPoolExecutor() as pool:
                    list(pool.map(self._register, self.sites))
            for site in self.sites:
                self.start_node(site)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        with ignore_sigint():
            stop(self.processes)

    def _register(self, site: str) -> None:
        key = self.folder / "keys" / f"{site}.pub"
        self.flwr("supernode", "register", str(key), "--name", site)

    def start_superlink(self) -> None:
        """Start the SuperLink, or start it again, and wait until it listens."""
        self.superlink.start()
        until = time.monotonic() + PATIENCE
        while not listens(self._port):
            if not self.superlink.alive or time.monotonic() > until:
                raise Failed(f"the SuperLink did not start:\n{self.superlink.words()}")
            time.sleep(0.1)

    def start_node(self, site: str) -> None:
        """Start a SuperNode, or start it again."""
        # Flower takes an app for installed as soon as its folder is there: one that
        # was killed while it copied would never have the rest.
        shutil.rmtree(self._node_home(site) / "apps", ignore_errors=True)
        self.nodes[site].start()
        pids = {process.name: process.pid for process in self.processes if process.pid}
        ownership.note(self.folder, pids, str(self._port))  # it is in every command

    def run(self, app: Path, config: Mapping[str, Any] | None = None) -> int:
        """Start an app, with settings on top of its own; give the number of the run."""
        words = [f"{key}={json.dumps(value)}" for key, value in (config or {}).items()]
        more = ["--run-config", " ".join(words)] if words else []
        return int(self.flwr("run", str(app), *more)["run-id"])

    def flwr(self, *command: str) -> dict:
        """Call Flower's own command line; give its answer, as JSON; Failed if it fails."""
        done = self._call(*command, "--format", "json")
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            answer = {}
        if done.returncode or not answer.get("success"):
            why = answer.get("error-message") or done.stderr or done.stdout
            raise Failed(f"flwr {command[0]}: {why.strip()}")
        return answer

    def log(self, run_id: int) -> str:
        """Read the log of a run's server app."""
        return self._call("log", str(run_id), CONNECTION, "--show").stdout

    def _call(self, *command: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["flwr", *command], env=environment(self._home), capture_output=True, text=True,
            timeout=PATIENCE,
        )  # fmt: skip
