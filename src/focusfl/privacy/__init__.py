"""Differential privacy: clipped gradients with noise, and what they give away."""

from focusfl.privacy.accounting import epsilon, epsilons, gradients_within, noise_for
from focusfl.privacy.budgets import BudgetWarning
from focusfl.privacy.noise import Private

__all__ = ["BudgetWarning", "Private", "epsilon", "epsilons", "gradients_within", "noise_for"]
