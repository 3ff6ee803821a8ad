"""The proxies of docs/deploy.md, real ones: who gets through to what."""

import contextlib
import os
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from focusfl.deploy import certificates
from focusfl.deploy.processes import LOOPBACK, Process, environment, free_ports, listens, stop

pytestmark = pytest.mark.needs("nginx")
MIB = 2**20


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


def nginx(folder, ports):
    """The command that serves a folder's configuration, with other ports."""
    file = folder / "nginx.conf"
    text = file.read_text()
    for usual, port in ports.items():
        assert f":{usual}" in text or f"listen {usual}" in text
        text = text.replace(f":{usual}", f":{port}").replace(f"listen {usual}", f"listen {port}")
    file.write_text(text)
    more = " user root;" if os.getuid() == 0 else ""  # else its workers could not enter here
    return "nginx", "-p", str(folder), "-c", "nginx.conf", "-g", f"daemon off;{more}"


class Upstream(BaseHTTPRequestHandler):
    """In the SuperLink's place: it answers whatever is asked."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "7")
        self.end_headers()
        self.wfile.write(b"reached")

    do_GET = do_POST

    def log_message(self, *args): ...


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """A server's proxy before a stand-in of the SuperLink, and a site's before that."""
    folder = tmp_path_factory.mktemp("fleet")
    keys, (outside, inside, local) = folder / "keys", free_ports(3)
    certificates.make(keys, [LOOPBACK, "localhost"], ["paris"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "server.crt", keys / "server.key")
    upstream = ThreadingHTTPServer((LOOPBACK, inside), Upstream)
    upstream.socket = context.wrap_socket(upstream.socket, server_side=True)
    with ExitStack() as stack:
        stack.callback(upstream.server_close)
        stack.callback(upstream.shutdown)
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        server = nginx(keys, {8000: outside, 8001: inside})
        stack.enter_context(running(folder, outside, *server))
        site = nginx(keys / "paris", {8080: local, 8000: outside})
        stack.enter_context(running(folder, local, *site))
        yield keys, f"https://localhost:{outside}", f"https://{LOOPBACK}:{local}"


def call(url, context=None, body=b"x", method="POST"):
    """What comes of a request: 200, the status that refused it, or none at all."""
    request = urllib.request.Request(url, data=body, method=method)
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            assert answer.read() == b"reached"
            return answer.status
    except urllib.error.HTTPError as error:
        assert b"reached" not in error.read()
        return error.code
    except (urllib.error.URLError, ConnectionError, ssl.SSLError):
        return None


def shown(keys, certificate=None, key=None):
    """What a caller trusts, and the certificate it shows."""
    context = ssl.create_default_context(cafile=keys / "ca.crt")
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


CALLS = ("/", "/openapi.json", "/v1/fleet/pull-messages", "/v1/control/start-run",
         "/v1/runtime/acquire-task")  # fmt: skip


@pytest.mark.parametrize("path", CALLS)
def test_an_outsider_without_a_certificate_gets_nothing(fleet, path, tmp_path):
    keys, url, _ = fleet
    assert call(url + path, shown(keys)) in (400, None)
    certificates.make(tmp_path, ["localhost"], ["paris"])  # of another authority
    own = shown(keys, tmp_path / "paris/client.crt", tmp_path / "paris/client.key")
    assert call(url + path, own) in (400, None)
    assert call(url.replace("https", "http") + path) in (400, None)


def test_a_site_reaches_the_fleet_and_nothing_else(fleet):
    keys, url, _ = fleet
    paris = shown(keys, keys / "paris/client.crt", keys / "paris/client.key")
    assert call(f"{url}/v1/fleet/pull-messages", paris) == 200
    assert call(f"{url}/v1/fleet/pull-messages", paris, None, "GET") == 403
    around = ("/v1/fleet/../control/start-run", "/v1/fleet/%2e%2e/control/start-run")
    for path in (*(path for path in CALLS if "fleet" not in path), *around):
        assert call(url + path, paris) == 403, path


def test_a_body_that_is_too_large_is_refused_before_it_is_sent_on(fleet):
    keys, url, _ = fleet
    paris = shown(keys, keys / "paris/client.crt", keys / "paris/client.key")
    assert call(f"{url}/v1/fleet/push-object", paris, bytes(6 * MIB)) == 200
    assert call(f"{url}/v1/fleet/push-object", paris, bytes(65 * MIB)) in (413, None)


def test_half_open_connections_are_dropped_and_sites_are_served_meanwhile(fleet):
    """More of them than the connections that nginx has by default."""
    keys, url, local = fleet
    paris = shown(keys, keys / "paris/client.crt", keys / "paris/client.key")
    for address, context in ((url, paris), (local, shown(keys))):
        begin = time.monotonic()
        place = LOOPBACK, int(address.rpartition(":")[2])
        mute = [socket.create_connection(place) for _ in range(600)]
        for each in mute:
            each.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # half a hello
        assert call(f"{address}/v1/fleet/pull-messages", context) == 200
        assert time.monotonic() - begin < 4
        for each in mute:
            each.settimeout(15)
            with contextlib.suppress(ConnectionError):
                assert each.recv(1000) == b""
            each.close()
        assert time.monotonic() - begin < 9


def test_a_supernode_goes_by_the_proxy_of_its_site(fleet):
    keys, _, url = fleet
    assert call(f"{url}/v1/fleet/pull-messages", shown(keys)) == 200
    assert call(f"{url}/v1/control/start-run", shown(keys)) == 404


def test_a_site_that_made_its_key_itself_gets_a_certificate_for_it(tmp_path):
    own = tmp_path / "oslo"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", own], check=True
    )
    pem = ["ssh-keygen", "-q", "-p", "-m", "PEM", "-N", "", "-f"]
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "oslo.pub").write_bytes((tmp_path / "oslo.pub").read_bytes())
    certificates.make(keys, ["localhost"], ["oslo"])
    assert not (keys / "oslo" / "key").exists()
    subprocess.run([*pem, own], check=True)
    shown(keys, keys / "oslo" / "client.crt", own)  # raises if they did not fit


@pytest.mark.slow
def test_a_real_supernode_is_let_in_through_both_proxies(tmp_path):
    """Flower's own commands, as the README of the template has them."""
    keys, (outside, inside, local, port) = tmp_path / "keys", free_ports(4)
    certificates.make(keys, ["localhost", LOOPBACK], ["paris", "rome"])
    env = environment(tmp_path / "flwr")
    (tmp_path / "flwr").mkdir()
    (tmp_path / "flwr" / "config.toml").write_text(
        f'[superlink.ours]\naddress = "{LOOPBACK}:{inside}"\nroot-certificates = "{keys}/ca.crt"\n'
    )
    superlink = (
        "flower-superlink", "--enable-supernode-auth", "--ssl-ca-certfile", f"{keys}/ca.crt",
        "--ssl-certfile", f"{keys}/server.crt", "--ssl-keyfile", f"{keys}/server.key",
        "--isolation", "process", "--host", LOOPBACK, "--port", str(inside),
    )  # fmt: skip

    def node(site):
        return (
            "flower-supernode", "--superlink", f"{LOOPBACK}:{local}",
            "--root-certificates", f"{keys}/{site}/ca.crt",
            "--auth-supernode-private-key", f"{keys}/{site}/key", "--port", str(port),
        )  # fmt: skip

    with (
        running(tmp_path, inside, *superlink),
        running(tmp_path, outside, *nginx(keys, {8000: outside, 8001: inside})),
        running(tmp_path, local, *nginx(keys / "paris", {8080: local, 8000: outside})),
    ):
        register = ["flwr", "supernode", "register", f"{keys}/paris.pub", "ours", "--name", "paris"]
        subprocess.run(register, env=env, check=True)
        with running(tmp_path, port, *node("paris")):
            until = time.monotonic() + 60
            listed = ["flwr", "supernode", "list", "ours", "--format", "json"]
            while '"online"' not in subprocess.check_output(listed, env=env, text=True):
                assert time.monotonic() < until
                time.sleep(0.5)
        rome = Process("rome", node("rome"), tmp_path / "rome.log", env).start()
        until = time.monotonic() + 60
        while rome.alive and time.monotonic() < until:
            time.sleep(0.2)
        assert not rome.alive, "a key that nobody has registered was let in"
