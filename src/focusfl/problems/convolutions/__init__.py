"""Convolutions of anybody's model as products of matrices, where those are faster.

XLA's own convolution takes ten and more times as long on a CPU inside a compiled loop,
and with weights of their own for many clients on a GPU too. `fast` rewrites a function
so that its convolutions and pools are made of slices, sums and products, with images
along the last axis; numbers are the same but for rounding.
"""

from focusfl.problems.convolutions.rewrite import Fast, has_convolutions

__all__ = ["Fast", "has_convolutions"]
