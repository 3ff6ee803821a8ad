"""What became of runs that differ in their seed alone, in words."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from focusfl.studies.report.numbers import sci

MEANING = {
    "exact": "ends within rounding of the optimum",
    "biased": "has settled away from the optimum",
    "falling": "was still falling when the rounds were over",
    "noisy": "stays where the noise of its gradients keeps it",
    "oscillating": "goes up and down, and neither settles nor falls",
    "unclear": "these rounds are too few, or too noisy, to tell",
    "absent": "nobody took part, so nothing happened",
    "diverged": "grew without bound",
    "unfinished": "was still falling when the rounds were over",  # of older folders
}

Rows = Sequence[dict[str, Any]]


def verdict(rows: Rows) -> str:
    """One verdict where all seeds agree; else how many came to which."""
    words = _by_word(rows)
    if len(words) > 1:
        return ", ".join(_share(word, own, rows) for word, own in words.items())
    ((word, own),) = words.items()
    if word == "diverged":
        return f"diverged in round {int(np.median([r['diverged_at'] for r in own])):,}"
    if word == "biased":
        return f"biased at {sci(float(np.median([r['error'] for r in own])))}"
    return word


def reason(rows: Rows) -> str:
    """Why: what the run says that ended in the middle of those with its verdict."""
    words = _by_word(rows)
    if len(words) == 1:
        return _reason(*next(iter(words.items())))
    return "; ".join(
        f"{_share(word, own, rows)}: {_reason(word, own)}" for word, own in words.items()
    )


def kind(rows: Rows) -> str:
    """The word that all seeds agree on, or mixed."""
    words = _by_word(rows)
    return next(iter(words)) if len(words) == 1 else "mixed"


def _by_word(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """Rows by their verdict, the most frequent first."""
    words: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        words.setdefault(row["verdict"], []).append(row)
    return dict(sorted(words.items(), key=lambda item: -len(item[1])))


def _share(word: str, own: Rows, rows: Rows) -> str:
    return f"{word} {len(own)} of {len(rows)}"


def _reason(word: str, rows: Rows) -> str:
    middle = sorted(rows, key=lambda row: row["error"])[len(rows) // 2]
    return str(middle.get("reason") or MEANING.get(word, word)).rstrip(".")
