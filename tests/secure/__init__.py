"""Secure sums through faults: kills at every file operation, lost and doubled words."""
