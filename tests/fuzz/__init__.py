"""Every parser of bytes from elsewhere, and what random bytes must not do to it."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what Flower imports warns of itself
    import flwr.app  # noqa: F401
