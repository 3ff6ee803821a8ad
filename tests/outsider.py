"""Somebody who has found the port and the public ca.crt, with Flower's own clients."""

import ssl
import warnings
from hashlib import sha256

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.cli.build import build_fab_from_files
from flwr.proto import control_pb2 as control
from flwr.proto import fleet_pb2 as fleet
from flwr.proto.fab_pb2 import Fab
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors.http import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.runtime.runtime_http_client import RuntimeHttpClient
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from focusfl.flower.public_keys import canonical

APP = b"""[project]
name = "theirs"
version = "1.0.0"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "they"
[tool.flwr.app.components]
serverapp = "theirs:server"
clientapp = "theirs:client"
"""


def attack(address, roots, token=None, public=None, whose=1):
    """Try everything; give by what was tried "done", or the status that refused it.

    An operator's `token` may be shown, and another's `public` key registered. `whose`
    is a node whose messages are asked for.
    """
    private, own = generate_key_pairs()
    key = public_key_to_bytes(own)
    theirs = canonical(public.read_bytes()) if public else key
    sign, show = NodeAuthHttpInterceptor(private, own), [Show(token)] * bool(token)
    with (
        client(ControlHttpClient, address, roots, *show) as operator,
        client(FleetHttpClient, address, roots, sign) as site,
        client(RuntimeHttpClient, address, roots) as server,
    ):
        return _all(operator, site, server, key, theirs, whose) | {
            "read the docs": _tried(lambda: _docs(address, roots))
        }


def _all(operator, site, server, key, theirs, whose):
    tries = {
        "list runs": lambda: operator.ListRuns(control.ListRunsRequest()),
        "list sites": lambda: operator.ListNodes(control.ListNodesRequest()),
        "register a key": lambda: operator.RegisterNode(
            control.RegisterNodeRequest(public_key=theirs, name="paris")
        ),
        "register as a site does": lambda: site.RegisterNode(
            fleet.RegisterNodeFleetRequest(public_key=key)
        ),
        "claim a site": lambda: site.ActivateNode(
            fleet.ActivateNodeRequest(public_key=key, heartbeat_interval=30)
        ),
        "speak for a site": lambda: site.SendNodeHeartbeat(
            SendNodeHeartbeatRequest(node=Node(node_id=whose), heartbeat_interval=30)
        ),
        "pull another's messages": lambda: site.PullMessages(
            fleet.PullMessagesRequest(node=Node(node_id=whose))
        ),
        "submit a run": lambda: operator.StartRun(control.StartRunRequest(fab=_app())),
        "take the server's work": lambda: server.AcquireTask(
            AcquireTaskRequest(supported_task_types=["flwr-serverapp"])
        ),
    }
    return {what: _tried(call) for what, call in tries.items()}


def site_of(address, roots, file):
    """Be let in as a site does that has a key."""
    private = load_ssh_private_key(file.read_bytes(), None)
    sign = NodeAuthHttpInterceptor(private, private.public_key())
    key = public_key_to_bytes(private.public_key())
    hello = fleet.ActivateNodeRequest(public_key=key, heartbeat_interval=30)
    with client(FleetHttpClient, address, roots, sign) as site:
        return _tried(lambda: site.ActivateNode(hello))


def take_work(address):
    """Ask a SuperNode for what its app is to do, as another user of its host."""
    version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
    ask = AcquireTaskRequest(supported_task_types=["flwr-clientapp"])
    with RuntimeHttpClient.from_server_address(address, True, None, [version]) as node:
        return _tried(lambda: node.AcquireTask(ask))


def client(kind, address, roots, *more):
    version = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
    trusted = roots.read_bytes()
    return kind.from_server_address(address, False, trusted, [version, *more])


def _docs(address, roots):
    trust = ssl.create_default_context(cafile=roots)
    httpx.get(f"https://{address}/openapi.json", verify=trust).raise_for_status()


class Show:
    """Shows a token with every call."""

    def __init__(self, token):
        self.token = token

    def intercept(self, context, call_next):
        context.request.headers["Authorization"] = f"Bearer {self.token}"
        return call_next(context)


def _tried(call):
    try:
        call()
    except httpx.HTTPStatusError as error:
        return error.response.status_code
    return "done"


def _app():
    """An app of theirs, as Flower packs one."""
    files = {"pyproject.toml": APP, "theirs.py": b"server = client = print('theirs')"}
    with warnings.catch_warnings(action="ignore"):  # of Flower, about itself
        whole, _ = build_fab_from_files(files)
    return Fab(hash_str=sha256(whole).hexdigest(), content=whole)
