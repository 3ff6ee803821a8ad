"""Who takes part in a round: one file per model, with its marginals."""

from typing import Any

from focusfl.core.registry import PARTICIPATION as PARTICIPATION
from focusfl.participation.adversarial import Adversarial as Adversarial
from focusfl.participation.bernoulli import Bernoulli as Bernoulli
from focusfl.participation.correlated import Correlated as Correlated
from focusfl.participation.cyclic import Cyclic as Cyclic
from focusfl.participation.diurnal import Diurnal as Diurnal
from focusfl.participation.full import Full as Full
from focusfl.participation.latency import LatencyModel as LatencyModel
from focusfl.participation.markov import Markov as Markov
from focusfl.participation.model import Marginals as Marginals
from focusfl.participation.model import Participation as Participation
from focusfl.participation.model import masks as masks
from focusfl.participation.model import schedule as schedule
from focusfl.participation.rarity import by_rarity as by_rarity
from focusfl.participation.rarity import rarity as rarity
from focusfl.participation.replay import Replay as Replay
from focusfl.participation.timed import Async as Async
from focusfl.participation.timed import Sync as Sync
from focusfl.participation.trace import Trace as Trace
from focusfl.participation.trace import from_events as from_events
from focusfl.participation.uniform import Uniform as Uniform
from focusfl.participation.weighted import Weighted as Weighted

PARTICIPATION.discover(__name__, __path__)


def __getattr__(name: str) -> Any:
    return PARTICIPATION.attribute(__name__, name)
