"""Secure sums: the server of a deployment learns the sum of a round's pushes alone.

Bonawitz et al. 2017, https://doi.org/10.1145/3133956.3133982, over the plain protocol
and fixed point numbers. A push counts if and only if it is in a sum that was opened.
"""

from focusfl.flower.secure.policy import Secure
from focusfl.flower.secure.server import SecureServer
from focusfl.flower.secure.session import Failed
from focusfl.flower.secure.site import SecureSite

__all__ = ["Failed", "Secure", "SecureServer", "SecureSite"]
