"""Flower is imported once and quietly: what it imports warns of itself."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import flwr.clientapp
    import flwr.serverapp  # noqa: F401
