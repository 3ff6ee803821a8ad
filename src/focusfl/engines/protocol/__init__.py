"""The protocol of a deployment: exact through lost messages, crashes and departures.

A server keeps a `Hub`, every participant a `Site`; between them travel dicts of bytes,
by whatever carries them. A site keeps its old memory until the server says that it has
counted the push, so that both agree on what the server holds, whatever got lost. Needs
numpy alone.
"""

from focusfl.engines.protocol.client import Site
from focusfl.engines.protocol.format import Refused, Wired, header
from focusfl.engines.protocol.server import Hub, Verdict
from focusfl.engines.protocol.tracking import tracking_gap

__all__ = ["Hub", "Refused", "Site", "Verdict", "Wired", "header", "tracking_gap"]
