"""Compiled programs: where they are kept, and how to compile those that run once."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMPILED_BYTES = 1 << 30  # of compiled programs, at most; jax drops those used least recently
SHORTEST_COMPILATION = 0.1  # seconds; what takes less is not worth a file
# For programs that run once: XLA's older way to write loops takes a third of the time, and
# not to optimize them half of that again. Results are the same but for rounding.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def cache_folder() -> Path:
    """Give the folder of the user's cache.

    It is $FOCUSFL_CACHE, or else a folder focusfl in the platform's place for caches:
    $XDG_CACHE_HOME, ~/Library/Caches (macOS) or ~/.cache.
    """
    if named := os.environ.get("FOCUSFL_CACHE"):
        return Path(os.path.expandvars(named)).expanduser()
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "focusfl"
    caches = "Library/Caches" if sys.platform == "darwin" else ".cache"
    return Path.home() / caches / "focusfl"


def use_compilation_cache() -> Path | None:
    """Let jax keep compiled programs in the cache folder, if no other place is configured.

    A configuration of jax is global to the process. It is left alone where the user has
    named a folder or has switched the cache off (JAX_COMPILATION_CACHE_DIR,
    JAX_ENABLE_COMPILATION_CACHE or `jax.config`), and where the folder cannot be written.

    Returns:
        The folder that jax uses, or None if it keeps nothing.
    """
    import jax

    config: Any = jax.config  # whose attributes type checkers do not know
    configured = config.jax_compilation_cache_dir  # "" is a user's way to say none
    if not config.jax_enable_compilation_cache:
        return None
    if configured is not None:
        return Path(configured) if configured else None
    folder = cache_folder() / "jax"
    try:
        # Who can write to the folder can run code in this process: nobody else may.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK | os.X_OK):
        return None
    config.update("jax_compilation_cache_dir", str(folder))
    config.update("jax_compilation_cache_max_size", COMPILED_BYTES)
    config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST_COMPILATION)
    return folder


def run_once(function: Callable, *args: Any) -> Any:
    """Compile a function quickly, for its code is slow, and call it."""
    import jax

    try:
        return jax.jit(function, compiler_options=QUICK)(*args)
    except jax.errors.JaxRuntimeError:  # a version of XLA that has no such option
        return jax.jit(function)(*args)
