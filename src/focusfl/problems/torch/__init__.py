"""Modules of PyTorch as problems: `from_torch` is in problem.py."""
