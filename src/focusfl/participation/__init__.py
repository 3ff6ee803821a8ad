"""Who takes part in a round: one file per model, with its marginals."""

from focusfl.participation.adversarial import Adversarial
from focusfl.participation.asynchronous import Async
from focusfl.participation.bernoulli import Bernoulli
from focusfl.participation.correlated import Correlated
from focusfl.participation.cyclic import Cyclic
from focusfl.participation.diurnal import Diurnal
from focusfl.participation.events import from_events
from focusfl.participation.full import Full
from focusfl.participation.latency import LatencyModel
from focusfl.participation.markov import Markov
from focusfl.participation.model import Marginals, Participation, masks, schedule
from focusfl.participation.rarity import by_rarity, rarity
from focusfl.participation.replay import Replay
from focusfl.participation.sync import Sync
from focusfl.participation.trace import Trace
from focusfl.participation.uniform import Uniform
from focusfl.participation.weighted import Weighted

PARTICIPATION: dict[str, type[Participation]] = {
    "full": Full,
    "uniform": Uniform,
    "bernoulli": Bernoulli,
    "weighted": Weighted,
    "markov": Markov,
    "cyclic": Cyclic,
    "diurnal": Diurnal,
    "correlated": Correlated,
    "adversarial": Adversarial,
    "trace": Trace,
    "replay": Replay,
    "sync": Sync,
    "async": Async,
}

__all__ = [
    "PARTICIPATION",
    "Adversarial",
    "Async",
    "Bernoulli",
    "LatencyModel",
    "Correlated",
    "Cyclic",
    "Diurnal",
    "Full",
    "Marginals",
    "Markov",
    "Participation",
    "Replay",
    "Sync",
    "Trace",
    "Uniform",
    "Weighted",
    "by_rarity",
    "from_events",
    "masks",
    "rarity",
    "schedule",
]
