"""Data sets, how they are dealt out to clients, and in which order these use them."""

from focusfl.data.archives import read_samples
from focusfl.data.arrays import arrays_of
from focusfl.data.cifar import Images, cifar10, download_cifar10
from focusfl.data.digits import Samples, digits
from focusfl.data.hospitals import (
    Hospitals,
    Survival,
    heart_disease,
    standardise,
    tcga_brca,
)
from focusfl.data.partition import (
    SPLITS,
    by_label,
    counts,
    deal,
    dirichlet,
    dirichlet_balanced,
    hold_out,
    iid,
    natural,
    shards,
)
from focusfl.data.places import folder
from focusfl.data.stacked import Stacked, stack
from focusfl.data.streams import (
    STREAMS,
    epochs,
    fixed_order,
    per_epoch,
    with_replacement,
)
from focusfl.data.tables import Table, libsvm, read_libsvm_text

__all__ = [
    "SPLITS",
    "STREAMS",
    "Hospitals",
    "Images",
    "Samples",
    "Stacked",
    "Survival",
    "Table",
    "arrays_of",
    "by_label",
    "cifar10",
    "counts",
    "deal",
    "digits",
    "dirichlet",
    "dirichlet_balanced",
    "download_cifar10",
    "epochs",
    "fixed_order",
    "folder",
    "heart_disease",
    "hold_out",
    "iid",
    "libsvm",
    "natural",
    "per_epoch",
    "read_libsvm_text",
    "read_samples",
    "shards",
    "stack",
    "standardise",
    "tcga_brca",
    "with_replacement",
]
