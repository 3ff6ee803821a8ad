"""Federated algorithms, one file each."""

from focusfl.algorithms.amplified_scaffold import AmplifiedScaffold
from focusfl.algorithms.anchored_focus import AnchoredFocus
from focusfl.algorithms.client_opt import ClientOpt
from focusfl.algorithms.compressed import Compressed
from focusfl.algorithms.fedadmm import FedADMM
from focusfl.algorithms.fedasync import FedAsync
from focusfl.algorithms.fedau import FedAU
from focusfl.algorithms.fedavg import FedAvg
from focusfl.algorithms.fedawe import FedAWE
from focusfl.algorithms.fedbuff import FedBuff
from focusfl.algorithms.feddyn import FedDyn
from focusfl.algorithms.fedlt import FedLT
from focusfl.algorithms.fednova import FedNova
from focusfl.algorithms.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from focusfl.algorithms.fedprox import FedProx
from focusfl.algorithms.fedvarp import FedVARP
from focusfl.algorithms.focus import Focus
from focusfl.algorithms.local_sgd import LocalSGD
from focusfl.algorithms.mifa import MIFA
from focusfl.algorithms.proxskip import ProxSkip
from focusfl.algorithms.scaffnew import Scaffnew
from focusfl.algorithms.scaffold import Scaffold
from focusfl.algorithms.server_opt import ServerOpt
from focusfl.algorithms.stale import Stale
from focusfl.algorithms.t_focus import TFocus
from focusfl.algorithms.t_scaffold import TScaffold
from focusfl.algorithms.tamuna import TAMUNA
from focusfl.core import Algorithm

ALGORITHMS: dict[str, type[Algorithm]] = {
    "focus": Focus,
    "scaffold": Scaffold,
    "amplified_scaffold": AmplifiedScaffold,
    "feddyn": FedDyn,
    "fedlt": FedLT,
    "fedadmm": FedADMM,
    "scaffnew": Scaffnew,
    "tamuna": TAMUNA,
    "proxskip": ProxSkip,
    "mifa": MIFA,
    "fedvarp": FedVARP,
    "fedawe": FedAWE,
    "fedau": FedAU,
    "local_sgd": LocalSGD,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fednova": FedNova,
    "fedbuff": FedBuff,
    "fedasync": FedAsync,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
    "anchored_focus": AnchoredFocus,
    "t_focus": TFocus,
    "t_scaffold": TScaffold,
    "server_opt": ServerOpt,
    "client_opt": ClientOpt,
    "compressed": Compressed,
    "stale": Stale,
}

__all__ = [  # spelled out: editors do not compute it
    "ALGORITHMS",
    "AmplifiedScaffold",
    "AnchoredFocus",
    "ClientOpt",
    "Compressed",
    "FedADMM",
    "FedAU",
    "FedAWE",
    "FedAdagrad",
    "FedAdam",
    "FedAsync",
    "FedAvg",
    "FedAvgM",
    "FedBuff",
    "FedDyn",
    "FedLT",
    "FedNova",
    "FedProx",
    "FedVARP",
    "FedYogi",
    "Focus",
    "Stale",
    "LocalSGD",
    "MIFA",
    "ProxSkip",
    "Scaffnew",
    "Scaffold",
    "ServerOpt",
    "TAMUNA",
    "TFocus",
    "TScaffold",
]
