"""TAMUNA without its compression: Scaffnew for those who take part.

Condat, Agarský, Malinovsky, Richtárik. 2023. https://arxiv.org/abs/2302.09832
"""

from dataclasses import dataclass

from focusfl.algorithms.scaffnew import Client, Scaffnew
from focusfl.core import ALGORITHMS, Round, tree
from focusfl.core.validation import check_positive, check_share


@ALGORITHMS.register("tamuna", style=22, invariant="Σ hᵢ = 0; with everybody it is Scaffnew")
@dataclass(frozen=True)
class TAMUNA(Scaffnew):
    """Scaffnew whose corrections are damped, the more so the fewer take part.

    The paper's theorem allows factors of up to N (|S| - 1) / (|S| (N - 1)), which is 1
    with everybody there, Scaffnew then, and more than 1/2 for two and more.

    Left out, as clients here know neither their number nor the axes of the model: the
    masks by which each sends a part of the entries. This is the paper's s = |S|, where
    everybody sends all. And the number of local steps is fixed, not drawn.

    Exact where Scaffnew is: not in blocks that never meet.
    """

    chi: float | None = None  # factor of corrections, in (0, 1]; the largest if None

    def __post_init__(self):
        if self.chi is not None:
            check_positive("chi", self.chi)
            check_share("chi", self.chi)

    def after_update(self, client, down, rd):
        gap = tree.sub(down["dx"], client.dz)
        factor = self.factor(rd) / (rd.lr * rd.local_steps)
        return Client(tree.axpy(factor, gap, client.h), tree.zeros(client.dz))

    def factor(self, rd: Round):
        """Chi. By weights the bound may leave [1/2, 1], where that of numbers lies."""
        if self.chi is not None:
            return self.chi
        alone = rd.num_active <= 1  # then there is nothing to correct
        most = (1 - 1 / (rd.num_active + alone)) / (
            1 - 1 / (rd.num_clients + (rd.num_clients <= 1))
        )
        below, above = (most < 1 / 2) * (1 / 2 - most), (most > 1) * (most - 1)
        return most + below - above
