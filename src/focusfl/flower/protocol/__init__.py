"""How server and sites of a deployment stay exact: one truth, one rule.

The rule is in server.py. Nothing here knows Flower.
"""

from focusfl.flower.protocol.messages import Receipt, Refused, Wired
from focusfl.flower.protocol.server import ProtocolServer
from focusfl.flower.protocol.site import Site

__all__ = ["ProtocolServer", "Receipt", "Refused", "Site", "Wired"]
