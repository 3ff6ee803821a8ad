"""The fast engine: jax, cohorts as a batch axis, rounds compiled in chunks."""
