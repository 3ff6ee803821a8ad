"""Messages in fewer bits, one file per codec; `ff.Coded` sends an algorithm's so."""

from focusfl.codecs.chain import Chain
from focusfl.codecs.codec import Codec, Load
from focusfl.codecs.fixed_point import FixedPoint
from focusfl.codecs.integers import Integers
from focusfl.codecs.low_rank import LowRank
from focusfl.codecs.random_k import RandomK
from focusfl.codecs.top_k import TopK

CODECS: dict[str, type[Codec]] = {
    "integers": Integers,
    "top_k": TopK,
    "random_k": RandomK,
    "low_rank": LowRank,
    "fixed_point": FixedPoint,
    "chain": Chain,
}

__all__ = [
    "CODECS",
    "Chain",
    "Codec",
    "FixedPoint",
    "Integers",
    "Load",
    "LowRank",
    "RandomK",
    "TopK",
]
