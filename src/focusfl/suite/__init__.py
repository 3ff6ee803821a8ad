"""A public benchmark: federated methods, each at its own best step, cell by cell."""
