"""Handwritten digits, 8 x 8 pixels: Alpaydin and Kaynak 1998, as scikit-learn has them.

https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits
"""

import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Shaped

from focusfl.core.extras import missing

FILE = "datasets/data/digits.csv.gz"  # in the package sklearn


class Samples(NamedTuple):
    x: Shaped[np.ndarray, "samples ..."]
    y: Shaped[np.ndarray, " samples"]  # 0 to classes - 1; numbers in a regression
    client: Shaped[np.ndarray, " samples"] | None = None  # who has each, where known


def digits() -> Samples:
    """Load 1,797 images, (1797, 8, 8, 1) of 0 to 16, from the installed scikit-learn.

    Raises:
        ValueError: If scikit-learn is not installed.
    """
    found = importlib.util.find_spec("sklearn")  # which is slow to import
    folder = found and found.origin and Path(found.origin).parent
    if not folder or not (folder / FILE).is_file():
        raise ValueError(missing("the data set digits needs", "scikit-learn", "digits"))
    table = np.loadtxt(folder / FILE, delimiter=",", dtype=np.uint8)
    return Samples(table[:, :-1].reshape(-1, 8, 8, 1), table[:, -1].astype(np.int32))
