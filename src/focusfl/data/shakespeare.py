"""Plays of Shakespeare, by who speaks."""

import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from focusfl.core.validation import check_count, check_share
from focusfl.data.federations import Federation, federation
from focusfl.data.places import Place, find
from focusfl.data.samples import Samples

NAME = re.compile(r"([^\n:]+):(?:\n|$)")  # before a turn


def shakespeare(
    num_clients: int = 30, length: int = 40, test_share: float | int = 0.2, data_dir: Place = None
) -> Federation:
    """Load the parts of Shakespeare's speakers with the longest ones, one client each.

    A part, turn after turn, is cut into pieces: x is `length` characters in a row, and y the
    character after each of them. The last pieces are for tests. The file does not say where
    a play ends, so that all who are called First Citizen are one client.

    Args:
        num_clients: number of speakers: those with the most characters.
        length: number of characters of a piece.
        test_share: share of every speaker's pieces that is for tests.
        data_dir: folder of the data; FOCUSFL_DATA, then the cache, if None.

    Raises:
        ValueError: If data are missing, or too few speakers have two pieces or more.
    """
    check_count("num_clients", num_clients)
    check_count("length", length)
    check_share("test_share", test_share, whole=False)
    (path,) = find("shakespeare", data_dir)
    text, parts = _read(path)
    characters = sorted(set(text))
    if num_clients > len(parts):
        raise ValueError(
            f"num_clients must not exceed the speakers there are, {len(parts)}; got {num_clients}."
        )
    names = sorted(parts, key=lambda name: (-len(parts[name]), name))[:num_clients]
    pieces, client, is_test = [], [], []
    for i, name in enumerate(names):
        codes = np.searchsorted(characters, list(parts[name]))
        count = max(0, len(codes) - 1) // length
        starts = np.arange(count)[:, None] * length
        pieces.append(codes[starts + np.arange(length + 1)])
        client.append(np.full(count, i))
        is_test.append(np.arange(count) >= count - round(test_share * count))
    whole = np.concatenate(pieces).astype(np.int32)
    samples = Samples(whole[:, :-1], whole[:, 1:], np.concatenate(client))
    advice = "Use fewer clients, a shorter length or another test_share."
    return federation(samples, np.concatenate(is_test), names, characters, advice)


def _read(path: Path) -> tuple[str, dict[str, str]]:
    """Read the text, and what each speaker says in it, turn after turn."""
    try:
        text = path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path} as plain text: {error}.") from None
    turns: dict[str, list[str]] = defaultdict(list)
    for block in text.split("\n\n"):
        block = block.strip("\n")
        name = NAME.match(block)
        if name and (words := block[name.end() :]):
            turns[name[1]].append(words)
    if not turns:
        raise ValueError(
            f"{path} must hold turns, each after a line with its speaker's name and a "
            "colon; got none."
        )
    return text, {name: "\n".join(words) + "\n" for name, words in turns.items()}
