"""Compressors: messages in fewer bits. See `ff.Compressed` for algorithms."""

from typing import Any

from focusfl.compression.chain import Chain as Chain
from focusfl.compression.compressor import Compressor as Compressor
from focusfl.compression.compressor import Load as Load
from focusfl.compression.low_rank import LowRank as LowRank
from focusfl.compression.rounding import FixedPoint as FixedPoint
from focusfl.compression.rounding import Quantize as Quantize
from focusfl.compression.sparse import RandomK as RandomK
from focusfl.compression.sparse import TopK as TopK
from focusfl.core.registry import COMPRESSORS as COMPRESSORS

COMPRESSORS.discover(__name__, __path__)


def __getattr__(name: str) -> Any:
    return COMPRESSORS.attribute(__name__, name)
