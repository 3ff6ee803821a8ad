"""How results are written, and what they depend on."""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from focusfl import __version__
from focusfl.data.places import named


def write(path: Path, content: str | bytes) -> Path:
    """Write a file under a temporary name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    if isinstance(content, str):
        content = content.encode()
    try:
        with named(path):
            temporary.write_bytes(content)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


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
