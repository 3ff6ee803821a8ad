"""From a config to results on disk."""
