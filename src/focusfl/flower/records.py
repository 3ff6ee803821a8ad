"""Messages of the protocol inside Flower's."""

import math
from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from focusfl.flower.protocol import Wired

MIN_ARRAY = 1 << 16  # bytes
BYTES = "focusfl.bytes"  # says that an array's data are bytes, as the header has them
SMALL, ARRAYS, PRIVACY = "small", "arrays", "privacy"


def to_records(message: Wired, privacy: Mapping[str, float] = {}) -> RecordDict:
    """Put a message into records of Flower's: large parts as arrays, the rest as bytes.

    An array costs several requests on its way, but one that is in several messages is
    uploaded once: that is worth it from `MIN_ARRAY` bytes on.

    Args:
        message: of the protocol.
        privacy: what a private site has spent: the `summary` of its account.
    """
    large = {
        path: Array("uint8", (len(blob),), BYTES, blob)
        for path, blob in message.items()
        if len(blob) >= MIN_ARRAY
    }
    small: Any = {path: blob for path, blob in message.items() if path not in large}
    records = RecordDict({SMALL: ConfigRecord(small)})
    if large:
        records[ARRAYS] = ArrayRecord(large)
    if privacy:
        records[PRIVACY] = ConfigRecord(dict(privacy))
    return records


def privacy_of(site: str, content: RecordDict) -> dict[str, float]:
    """Read the epsilon that a site says it has spent, by its name; empty if it says none."""
    summary: Any = content.config_records.get(PRIVACY) or {}
    epsilon = summary.get("epsilon")
    sound = isinstance(epsilon, float) and math.isfinite(epsilon) and epsilon >= 0
    return {site: epsilon} if sound else {}


def from_records(content: RecordDict) -> Wired:
    """Take a message out of records, whatever is in them; `decode` checks it."""
    message: dict[str, Any] = {}
    if ARRAYS in content.array_records:
        arrays = content.array_records[ARRAYS]
        message |= {path: array.data for path, array in arrays.items()}
    if SMALL in content.config_records:
        message |= content.config_records[SMALL]
    return message


def size(message: Wired) -> int:
    """Count the bytes of a message, whatever else a site has put into it."""
    return sum(len(blob) for blob in message.values() if isinstance(blob, bytes))
