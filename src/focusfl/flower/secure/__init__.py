"""Secure sums: a server that adds up pushes and reads none, nor the tracker, nor the model.

The sites of a job share a key. What they push is masked by one-time key streams, which the sum
modulo 2^64 still holds and the sites take off; all else that the server keeps is sealed.
"""

from focusfl.flower.secure.keys import Keys
from focusfl.flower.secure.policy import Secure
from focusfl.flower.secure.server import SecureServer, open_model
from focusfl.flower.secure.site import SecureSite

__all__ = ["Keys", "Secure", "SecureServer", "SecureSite", "open_model"]
