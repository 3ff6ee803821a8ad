"""Who takes part in a round: one file per model, with its marginals."""

from focusfl.participation.bernoulli import Bernoulli
from focusfl.participation.full import Full
from focusfl.participation.model import Marginals, Participation, masks, schedule
from focusfl.participation.replay import Replay
from focusfl.participation.uniform import Uniform
from focusfl.participation.weighted import Weighted

PARTICIPATION: dict[str, type[Participation]] = {
    "full": Full,
    "uniform": Uniform,
    "bernoulli": Bernoulli,
    "weighted": Weighted,
    "replay": Replay,
}

__all__ = [
    "PARTICIPATION",
    "Bernoulli",
    "Full",
    "Marginals",
    "Participation",
    "Replay",
    "Uniform",
    "Weighted",
    "masks",
    "schedule",
]
