"""Messages in fewer bits, one file per compressor; `ff.Compressed` sends an algorithm's so."""

from focusfl.compression.chain import Chain
from focusfl.compression.compressor import Compressor, Load
from focusfl.compression.fixed_point import FixedPoint
from focusfl.compression.low_rank import LowRank
from focusfl.compression.quantize import Quantize
from focusfl.compression.random_k import RandomK
from focusfl.compression.top_k import TopK

COMPRESSORS: dict[str, type[Compressor]] = {
    "quantize": Quantize,
    "top_k": TopK,
    "random_k": RandomK,
    "low_rank": LowRank,
    "fixed_point": FixedPoint,
    "chain": Chain,
}

__all__ = [
    "COMPRESSORS",
    "Chain",
    "Compressor",
    "FixedPoint",
    "Quantize",
    "Load",
    "LowRank",
    "RandomK",
    "TopK",
]
