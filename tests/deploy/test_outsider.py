"""An outsider with the public ca.crt tries everything, on real processes."""

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from outsider import attack, site_of

from focusfl.deploy import apps, certificates
from focusfl.deploy.driver import Driver
from focusfl.deploy.fleet import Fleet
from focusfl.deploy.processes import Process, environment, free_ports, listens, stop

DEPLOY = [sys.executable, "-m", "focusfl.cli", "deploy"]


@contextmanager
def running(folder, port, *command):
    """A process of ours that listens on a port."""
    log, env = folder / f"{port}.log", environment(folder / "flwr")
    process = Process(str(port), command, log, env).start()
    try:
        until = time.monotonic() + 120
        while not listens(port):
            assert process.alive and time.monotonic() < until, process.words()
            time.sleep(0.05)
        yield process
    finally:
        stop([process])


@pytest.mark.slow
def test_what_flower_serves_is_open_to_whoever_reaches_it(tmp_path):
    """The script can succeed: without doors it registers, claims and runs."""
    keys, (port,) = tmp_path / "keys", free_ports(1)
    certificates.make(keys, ["127.0.0.1"], [])
    with running(
        tmp_path, port, "flower-superlink", "--enable-supernode-auth",
        "--ssl-ca-certfile", f"{keys}/ca.crt", "--ssl-certfile", f"{keys}/server.crt",
        "--ssl-keyfile", f"{keys}/server.key", "--isolation", "process",
        "--host", "127.0.0.1", "--port", str(port),
    ):  # fmt: skip
        found = attack(f"127.0.0.1:{port}", keys / "ca.crt")
    done = {what for what, how in found.items() if how == "done"}
    assert {"register a key", "claim a site", "submit a run", "list runs"} <= done


@pytest.mark.needs("nginx")
def test_behind_nginx_sites_are_let_in_and_nobody_else(tmp_path):
    """The arrangement of the template: nginx outside, the SuperLink on loopback."""
    apps.init(tmp_path / "app")
    keys, (outside, inside) = tmp_path / "app" / "keys", free_ports(2)
    certificates.make(keys, ["fl.example.org", "localhost", "127.0.0.1"], ["paris"])
    file = tmp_path / "app" / "nginx.conf"
    text = file.read_text().replace("listen 8000", f"listen 127.0.0.1:{outside}")
    file.write_text(text.replace("127.0.0.1:8001", f"127.0.0.1:{inside}"))
    nginx = ["nginx", "-p", str(file.parent), "-c", file.name, "-g", "daemon off;"]
    if os.getuid() == 0:  # its workers would be somebody else, and not enter here
        nginx[-1] += " user root;"
    roots, here = keys / "ca.crt", f"127.0.0.1:{outside}"
    serve = [*DEPLOY, "superlink", str(keys), "--port", str(inside)]
    with running(tmp_path, inside, *serve), running(tmp_path, outside, *nginx):
        refused = attack(here, roots)
        assert set(refused.values()) <= {401, 403}, refused
        token = (keys / certificates.TOKEN).read_text()
        public = keys / "paris.pub"
        within = attack(f"127.0.0.1:{inside}", roots)
        assert set(within.values()) <= {401, 403}, within
        known = attack(f"127.0.0.1:{inside}", roots, token, public=public)
        assert known["register a key"] == known["list runs"] == "done"
        outside_too = attack(here, roots, token)
        assert outside_too["list runs"] == outside_too["submit a run"] == 403
        assert site_of(here, roots, keys / "paris") == "done"
    assert Path(tmp_path / "app" / "nginx.log").exists()


@pytest.mark.slow
def test_a_site_that_sends_too_much_is_refused_and_holds_nobody_up(tmp_path):
    """Before this, one answer of 600 MB locked the database and ended superexec."""
    apps.init(tmp_path / "app")
    code = tmp_path / "app" / "training" / "client_app.py"
    code.write_text(code.read_text() + LARGE)
    settings = tmp_path / "app" / "pyproject.toml"
    text = settings.read_text().replace("site-0 site-1 site-2 site-3", "paris rome")
    settings.write_text(text.replace("rounds = 30", "rounds = 5"))
    fleet = Fleet(tmp_path / "run", ["paris", "rome"], tls=True, warm=True, largest=1.0)
    server, said = tmp_path / "run" / "server", []
    config = {"folder": str(server), "keys": fleet.keys, "deadline": 10.0}
    with fleet:
        Driver(fleet, tmp_path / "app", config, [], said.append).drive()
        assert all(process.alive for process in fleet.processes)
    words = fleet.superlink.words(10_000)
    assert "to 'rome': its answer is larger than 1 MiB" in words
    assert "locked" not in words
    rounds = [event for event in said if event["event"] == "round"]
    assert len(rounds) == 5 and all("paris" in event["counted"] for event in rounds)
    assert not [event for event in rounds if "rome" in event["counted"]]


LARGE = """
import numpy as np
from flwr.app import Array, ArrayRecord

from focusfl.flower import client, identity

small = client.to_records


def large(message):
    content = small(message)
    content["more"] = ArrayRecord({"x": Array(np.random.default_rng(0).random(2**19))})
    return content


def identify(context):
    who = identity.identify(context)
    client.to_records = large if who.site == "rome" else small
    return who


client.identify = identify
"""
