"""Messages of the protocol inside Flower's."""

import math
from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from focusfl.flower.protocol import Wired

MIN_ARRAY = 1 << 16  # bytes
BYTES = "focusfl.bytes"  # says that an array's data are bytes, as the header has them
SMALL, ARRAYS, PRIVACY = "small", "arrays", "privacy"


def to_records(message: Wired) -> RecordDict:
    """Put a message into records.

    Every array of Flower's costs several requests on its way, but what is in several
    messages is uploaded once: worth it for large ones alone.
    """
    small = {path: blob for path, blob in message.items() if len(blob) < MIN_ARRAY}
    large = {
        path: Array("uint8", (len(blob),), BYTES, blob)
        for path, blob in message.items()
        if len(blob) >= MIN_ARRAY
    }
    records = RecordDict({SMALL: ConfigRecord(small)})  # type: ignore[arg-type]
    if large:
        records[ARRAYS] = ArrayRecord(large)
    return records


def with_privacy(records: RecordDict, summary: Mapping[str, float]) -> RecordDict:
    """The records, and what a site says of what it has given away."""
    if summary:
        records[PRIVACY] = ConfigRecord(dict(summary))
    return records


def privacy_of(site: str, content: RecordDict) -> dict[str, float]:
    """What a site says that it has given away, by its name; nothing if it says none."""
    own: Any = content.config_records.get(PRIVACY) or {}
    epsilon = own.get("epsilon")
    sound = isinstance(epsilon, float) and math.isfinite(epsilon) and epsilon >= 0
    return {site: epsilon} if sound else {}


def from_records(content: RecordDict) -> Wired:
    """Take a message out of records, whatever is in them; who reads it will check."""
    message: dict[str, Any] = {}
    if ARRAYS in content.array_records:
        arrays = content.array_records[ARRAYS]
        message |= {path: array.data for path, array in arrays.items()}
    if SMALL in content.config_records:
        message |= content.config_records[SMALL]
    return message


def size(message: Wired) -> int:
    """The bytes of a message, whatever else a site has put into it."""
    return sum(len(blob) for blob in message.values() if isinstance(blob, bytes))
