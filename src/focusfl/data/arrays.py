"""Arrays out of the tables that others bring."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped

from focusfl.core.validation import shown, unknown


def arrays_of(
    dataset: Any, columns: Sequence[str] | Mapping[str, str] | None = None
) -> dict[str, Shaped[np.ndarray, "samples ..."]]:
    """Give columns of a `datasets.Dataset`, such as a partition of flwr-datasets.

    All columns, those named, or as in {"x": "img", "y": "label"} under other names.
    Numbers come in the types the data set has for numpy: float32, mostly.
    """
    known = getattr(dataset, "column_names", None)
    if not isinstance(known, list):
        raise ValueError(
            "dataset must be a datasets.Dataset, one split or partition of it; got "
            f"{type(dataset).__name__}."
        )
    if columns is not None and not isinstance(columns, Mapping | list | tuple):
        raise ValueError(f"columns must be a list of names; got {shown(columns)}.")
    asked = columns or known
    names = asked if isinstance(asked, Mapping) else {name: name for name in asked}
    for name in names.values():
        if name not in known:
            raise ValueError(unknown("column", name, known))
    table = dataset.with_format("numpy", columns=list(names.values()))[:]
    arrays = {ours: table[theirs] for ours, theirs in names.items()}
    for name, array in arrays.items():
        kind = getattr(array, "dtype", np.dtype(object))
        if kind.kind not in "biuf":
            raise ValueError(
                f"column {names[name]!r} must be numbers, of one shape for all; "
                f"got {kind}. Name the others in columns."
            )
    return arrays
