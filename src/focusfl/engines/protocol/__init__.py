"""The protocol of a deployment: exact through lost messages, crashes and departures.

The server's side is a `ProtocolServer`, a participant's a `Site`; between them travel
dicts of bytes, by whatever carries them. A site keeps its old memory until the server
says that it has counted the push, so that both agree on what the server holds, whatever
got lost. Every start of a server has a random name, its incarnation, which is part of
the name of every push: a server from a backup, or without its disk, is told what it
does not know, and begins a new epoch. Needs numpy alone.
"""

from focusfl.deprecated import renamed_names
from focusfl.engines.protocol.format import Refused, Wired, header
from focusfl.engines.protocol.messages import Receipt
from focusfl.engines.protocol.server import ProtocolServer
from focusfl.engines.protocol.site import Site
from focusfl.engines.protocol.tracking import tracking_error

__getattr__ = renamed_names(
    __name__,
    {"Hub": ProtocolServer, "Verdict": Receipt, "tracking_gap": tracking_error},
)

__all__ = [
    "ProtocolServer",
    "Refused",
    "Site",
    "Receipt",
    "Wired",
    "header",
    "tracking_error",
]
