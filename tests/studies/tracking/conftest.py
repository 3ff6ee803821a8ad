"""A real run to keep, and a watch over the network."""

import os
import socket
import threading

import numpy as np
import pytest

from focusfl.studies import runner, spec

HERE = ("127.0.0.1", "::1", "localhost")
STUDY = """
rounds = 1500
lr = 2e-3
local_steps = 3

[problem]
kind = "ridge"
num_clients = 4
dim = 6
rows = 12

[participation.some]
kind = "uniform"
m = 2

[algorithms.focus]
"""


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    file = tmp_path_factory.mktemp("study") / "study.toml"
    file.write_text(STUDY)
    (one,) = runner.run(spec.load(file))
    return one


@pytest.fixture
def offline(monkeypatch):
    """Whoever calls another machine, from here or from a process, is written down."""
    calls = []

    def refuse(*where):
        calls.append(where)
        raise OSError(f"the network is out of bounds: {where}")

    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def connect_here(self, address):
        local = self.family == socket.AF_UNIX or address[0] in HERE
        return connect(self, address) if local else refuse(address)

    def look_up_here(host, *more, **named):
        return look_up(host, *more, **named) if host in HERE else refuse(host)

    monkeypatch.setattr(socket.socket, "connect", connect_here)
    monkeypatch.setattr(socket, "getaddrinfo", look_up_here)
    with socket.create_server(("127.0.0.1", 0)) as proxy:

        def listen():
            while True:
                try:
                    caller, _ = proxy.accept()
                except OSError:
                    return
                with caller:
                    calls.append(caller.recv(200))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in [name for name in os.environ if name.lower() == "no_proxy"]:
            monkeypatch.delenv(name)
        yield calls
        proxy.shutdown(socket.SHUT_RDWR)
        thread.join(5)
    assert calls == []


@pytest.fixture(scope="session")
def kept(run):
    """The rounds of the run that trackers keep, and the values of its curves there."""
    last = run.row["rounds"]
    rounds = np.unique(np.linspace(0, last, 1000).round().astype(int))
    return rounds.tolist(), {name: run.curves[name][rounds] for name in run.metrics}
