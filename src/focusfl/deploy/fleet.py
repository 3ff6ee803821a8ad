"""A whole federation on this machine: SuperLink, superexec and SuperNodes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from focusfl.core.files import make_folder, renamed
from focusfl.deploy import certificates, status, superlink
from focusfl.deploy.certificates import SECRET, TOKEN
from focusfl.deploy.processes import (
    LOOPBACK,
    Failed,
    Process,
    deaf,
    environment,
    free_ports,
    listens,
    stop,
)

PATIENCE = 90.0  # seconds for a process to come up, on a machine with much to do
CONNECTION = "fleet"  # what the SuperLink is called in Flower's configuration
# Seconds until a SuperNode looks for work again; Flower's own 1 is much of a round.
OFTEN = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}


class Fleet:
    """The processes of one federation, their folders, and what can be done to them.

    `with` stops exactly what was started, however it is left. Every site has a folder
    for its state, keys too with `tls`; `warm` nodes start client apps sooner. An answer
    may have `largest` MiB.
    """

    def __init__(
        self, folder: Path, sites: Sequence[str], *, tls: bool = False,
        warm: bool = False, largest: float | None = None,
    ):  # fmt: skip
        self.folder, self.sites, self.tls = folder.resolve(), list(sites), tls
        keys, self._home = self.folder / "keys", self.folder / "flwr"
        for own in (self.folder, keys, self._home, self.folder / "logs"):
            make_folder(own, private=True)
        self.keys = str(keys) if tls else ""  # of the sites, as a job is told
        self._port, *ports = free_ports(1 + len(sites))
        address = f"{LOOPBACK}:{self._port}"
        trust, connection = ["--insecure"], "insecure = true"
        if tls:
            certificates.make(keys, [LOOPBACK, "localhost"], self.sites)
            trust = ["--root-certificates", f"{keys}/ca.crt"]
            connection = f'root-certificates = "{keys}/ca.crt"'
        certificates.make_secrets(keys)
        (self._home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n'
            f'[superlink.{CONNECTION}]\naddress = "{address}"\n{connection}\n'
        )
        superlink.log_in(self._home, address, (keys / TOKEN).read_text())
        python = [sys.executable, "-m"]
        self.superlink = self._process(
            "superlink", self._home,
            [*python, "focusfl.cli", "deploy", "superlink", str(keys)],
            ["--port", str(self._port), *([] if tls else ["--insecure"])],
            ["--database", str(self.folder / "superlink.db")],
            ["--largest", str(largest)] if largest else [],
        )  # fmt: skip
        # Apart from the SuperLink: so the server app outlives a crash of that.
        self.superexec = self._process(
            "superexec", self._home,
            ["flower-superexec", *trust, "--runtime-api-address", address],
            ["--superexec-auth-secret-file", str(keys / SECRET)],
        )  # fmt: skip
        command = [*python, f"focusfl.deploy.{'warm' if warm else 'node'}"]
        self.nodes = {
            site: self._process(
                site, self._node_home(site),
                command, trust,
                ["--superlink", address, "--host", LOOPBACK, "--port", str(port)],
                ["--node-config", self._node_config(number, site)],
                ["--auth-supernode-private-key", f"{keys}/{site}"] if tls else [],
            )
            for number, (site, port) in enumerate(zip(sites, ports, strict=True))
        }  # fmt: skip

    def state(self, site: str) -> Path:
        """Where a site keeps what it must not lose."""
        return self.folder / "sites" / site / "state"

    def _node_home(self, site: str) -> Path:
        return self.folder / "sites" / site / "flwr"

    def _node_config(self, number: int, site: str) -> str:
        return (
            f"partition-id={number} num-partitions={len(self.sites)} "
            f'site="{site}" state="{self.state(site)}"'
        )

    def _process(self, name: str, home: Path, *command: list[str]) -> Process:
        words = [word for part in command for word in part]
        more = {} if home == self._home else OFTEN
        env = environment(home, **more)
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
        with deaf():
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
        self._note()

    def wipe(self, site: str) -> None:
        """Delete all that a site has on disk."""
        shutil.rmtree(self.state(site), ignore_errors=True)

    def kill_server_app(self, pid: int) -> None:
        """End the server app, if it is one of ours, as a crash would."""
        if self.superexec.owns(pid):
            os.kill(pid, signal.SIGKILL)

    def _note(self) -> None:
        """Write down what runs, for whoever asks."""
        word = str(self._port)  # in every command: another process may have a pid later
        started = {p.name: [p.pid, word] for p in self.processes if p.pid}
        text = json.dumps(started)
        with renamed(self.folder / status.FILE) as part:
            part.write_text(text)

    def run(self, app: Path, config: Mapping[str, Any] | None = None) -> int:
        """Start an app, with settings on top of its own; give the run's number."""
        words = [f"{key}={json.dumps(value)}" for key, value in (config or {}).items()]
        more = ["--run-config", " ".join(words)] if words else []
        return int(self.flwr("run", str(app), *more)["run-id"])

    def stop_run(self, run_id: int) -> None:
        """Have the SuperLink forget a run."""
        self.flwr("stop", str(run_id))

    def flwr(self, *command: str) -> dict:
        """Call Flower's own command line; give what it answers."""
        done = subprocess.run(
            ["flwr", *command, "--format", "json"], env=environment(self._home),
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            answer = {}
        if done.returncode or not answer.get("success"):
            said = answer.get("error-message") or done.stderr or done.stdout
            raise Failed(f"flwr {command[0]}: {said.strip()}")
        return answer

    def words_of(self, run_id: int) -> str:
        """What the server app of a run has said."""
        done = subprocess.run(
            ["flwr", "log", str(run_id), CONNECTION, "--show"],
            env=environment(self._home), capture_output=True, text=True,
            timeout=PATIENCE,
        )  # fmt: skip
        return done.stdout
