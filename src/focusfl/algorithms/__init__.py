"""Federated algorithms, one file each: a file registers its classes, and no list names it.

The imports below tell editors and type checkers what there is; nothing else needs them.
"""

from typing import Any

from focusfl.algorithms.amplified_scaffold import AmplifiedScaffold as AmplifiedScaffold
from focusfl.algorithms.anchored_focus import AnchoredFocus as AnchoredFocus
from focusfl.algorithms.client_opt import ClientOpt as ClientOpt
from focusfl.algorithms.compressed import Compressed as Compressed
from focusfl.algorithms.fedadmm import FedADMM as FedADMM
from focusfl.algorithms.fedasync import FedAsync as FedAsync
from focusfl.algorithms.fedau import FedAU as FedAU
from focusfl.algorithms.fedavg import FedAvg as FedAvg
from focusfl.algorithms.fedawe import FedAWE as FedAWE
from focusfl.algorithms.fedbuff import FedBuff as FedBuff
from focusfl.algorithms.feddyn import FedDyn as FedDyn
from focusfl.algorithms.fedlt import FedLT as FedLT
from focusfl.algorithms.fednova import FedNova as FedNova
from focusfl.algorithms.fedopt import FedAdagrad as FedAdagrad
from focusfl.algorithms.fedopt import FedAdam as FedAdam
from focusfl.algorithms.fedopt import FedAvgM as FedAvgM
from focusfl.algorithms.fedopt import FedYogi as FedYogi
from focusfl.algorithms.fedprox import FedProx as FedProx
from focusfl.algorithms.fedvarp import FedVARP as FedVARP
from focusfl.algorithms.focus import Focus as Focus
from focusfl.algorithms.local_sgd import LocalSGD as LocalSGD
from focusfl.algorithms.mifa import MIFA as MIFA
from focusfl.algorithms.proxskip import ProxSkip as ProxSkip
from focusfl.algorithms.scaffnew import Scaffnew as Scaffnew
from focusfl.algorithms.scaffold import Scaffold as Scaffold
from focusfl.algorithms.server_opt import ServerOpt as ServerOpt
from focusfl.algorithms.stale import Stale as Stale
from focusfl.algorithms.t_focus import TFocus as TFocus
from focusfl.algorithms.t_scaffold import TScaffold as TScaffold
from focusfl.algorithms.tamuna import TAMUNA as TAMUNA
from focusfl.core.registry import ALGORITHMS as ALGORITHMS

ALGORITHMS.discover(__name__, __path__)


def __getattr__(name: str) -> Any:
    return ALGORITHMS.attribute(__name__, name)
