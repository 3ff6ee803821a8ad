"""What results depend on beside the study: versions and hardware."""

import os
import platform
from importlib.metadata import version
from typing import Any

from focusfl import __version__


def environment() -> dict[str, Any]:
    """Versions and hardware that a result depends on."""
    import jax

    names = ("jax", "jaxlib", "numpy")
    return {
        "focusfl": __version__,
        **{name: version(name) for name in names},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "device": jax.devices()[0].device_kind,
    }
