"""Read by every Python that tests start: most import for longer than they live.

Looking for garbage while they import, and in all of it when they end, is a quarter of
their time."""

import atexit
import gc

gc.set_threshold(1_000_000, 10, 10)
atexit.register(gc.freeze)
