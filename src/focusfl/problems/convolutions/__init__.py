"""Rewrite the convolutions and pools of any jax function as products of matrices.

Inside a compiled loop on a CPU, and with different weights for many clients on a GPU, XLA's
convolution takes ten and more times as long as products do. `Fast` rewrites a function so
that its convolutions and pools are slices, sums and products, with images along the last
axis; results differ by rounding only.
"""

from focusfl.problems.convolutions.rewrite import Fast

__all__ = ["Fast"]
