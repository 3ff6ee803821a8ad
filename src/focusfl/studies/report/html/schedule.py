"""Who took part and how old what they left behind is: pictures of so many bins."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

ROWS, COLUMNS = 200, 400  # of a picture, at most
LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

Events = Int[np.ndarray, " events"]
Counts = Int[np.ndarray, "_"]
Picture = Float[np.ndarray, "rows columns"]


def schedule(
    rounds: Events,
    clients: Events,
    p: Float[np.ndarray, " clients"],
    bins: int,
) -> dict[str, Any]:
    """Bin a schedule: clients in the order of their p, the most frequent first."""
    num_rounds = int(rounds.max(initial=0)) + 1  # of a long study, not all are kept
    rows, columns = min(len(p), ROWS), min(num_rounds, COLUMNS)
    shrink = min(1.0, np.sqrt(bins / (2 * rows * columns)))
    rows, columns = max(1, int(rows * shrink)), max(1, int(columns * shrink))
    order = np.argsort(-p, kind="stable")
    row = np.empty(len(p), int)
    row[order] = np.arange(len(p)) * rows // len(p)
    tall = np.bincount(row, minlength=rows)
    column = np.arange(num_rounds) * columns // num_rounds
    wide = np.bincount(column, minlength=columns)
    share = np.zeros((rows, columns))
    np.add.at(share, (row[clients], column[rounds]), 1)
    seen = share.sum(1) / (tall * num_rounds)
    share /= np.outer(tall, wide)
    age = _ages(rounds, clients, row, column, tall)
    return {
        "clients": len(p), "rounds": num_rounds, "rows": rows, "columns": columns,
        "order": order.tolist() if rows == len(p) else None,  # else a row holds many
        "p": _mean(p, row, tall).round(6).tolist(), "seen": seen.round(6).tolist(),
        "share": _written(share / max(share.max(), 1e-9)), "most": float(share.max()),
        "age": _written(np.log1p(age) / np.log1p(max(age.max(), 1))),
        "oldest": float(max(age.max(), 1)),
    }  # fmt: skip


def _ages(rounds: Events, clients: Events, row: Counts, column: Counts, tall: Counts) -> Picture:
    """Rounds since each client last took part, or since the start, as columns end."""
    last = np.full(len(row), -1)
    out = np.empty((len(tall), int(column[-1]) + 1))
    by_round = np.argsort(rounds, kind="stable")
    rounds, clients = rounds[by_round], clients[by_round]
    ends = np.searchsorted(column, np.arange(out.shape[1]), side="right")
    stops = np.searchsorted(rounds, ends)
    start = 0
    for index, (end, stop) in enumerate(zip(ends, stops, strict=True)):
        last[clients[start:stop]] = rounds[start:stop]  # in order: the latest stays
        out[:, index] = _mean(end - 1 - last, row, tall)
        start = stop
    return out


def _mean(values: np.ndarray, row: Counts, tall: Counts) -> np.ndarray:
    return np.bincount(row, values, len(tall)) / tall


def _written(shares: Picture) -> str:
    """A letter for each bin, row by row."""
    top = len(LEVELS) - 1
    levels = np.ceil(np.clip(shares, 0, 1) * top).astype(int)  # only nothing is 0
    return "".join(np.array(list(LEVELS))[levels.ravel()])
