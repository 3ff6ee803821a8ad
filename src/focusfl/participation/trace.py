"""Who was there in a recorded trace: real phones, real gaps."""

import os
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, is_zipfile

import numpy as np

from focusfl.core.registry import PARTICIPATION
from focusfl.core.validation import check_count, check_flag, check_one_of, numeric
from focusfl.data.flash import flash_availability
from focusfl.participation.model import Marginals, Participation, ids_of

UNKNOWN = ("away", "hold", "error")


@PARTICIPATION.register("trace")
@dataclass(frozen=True, eq=False)
class Trace(Participation):
    """A recorded availability: everybody who was there at that time takes part.

    `avail` is a (times, devices) matrix with 1 there, 0 not and -1 unknown, the path of
    an .npz file that holds one by this name, in which $VARIABLES are replaced, or
    "flash_availability", the data set of real phones, which is fetched if need be. The
    clients are the first devices of the trace; `drop_absent` skips those that are never
    there. Each time lasts `rounds_per_step` rounds, and after the last comes the first.

    `unknown` is what to make of -1: "away", "hold" the last known state (away if there
    is none), or "error".
    """

    avail: str | Path | list | np.ndarray  # (times, devices) or a path
    unknown: str = "away"  # what -1 means: "away", "hold" or "error"
    rounds_per_step: int = 1  # rounds that a time lasts
    wrap: bool = True  # begin again after the last time; else that is an error
    drop_absent: bool = False  # leave out devices that are never there

    def __post_init__(self):
        check_count("rounds_per_step", self.rounds_per_step)
        check_one_of("unknown", self.unknown, UNKNOWN)
        check_flag("wrap", self.wrap)
        check_flag("drop_absent", self.drop_absent)
        avail = numeric("avail", read_avail(self.avail))
        if avail.ndim != 2 or not avail.size or not np.all(np.isin(avail, (-1, 0, 1))):
            raise ValueError(
                "avail must be a (times, devices) matrix of 1 (there), 0 (not) and -1 "
                f"(unknown); got shape {avail.shape} of {avail.dtype}."
            )
        object.__setattr__(self, "avail", avail.astype(np.int8))
        holes = np.argwhere(avail == -1)
        if self.unknown == "error" and len(holes):
            raise ValueError(
                f"avail has {len(holes)} unknown entries; the first is time "
                f'{holes[0, 0]}, device {holes[0, 1]}. Use unknown = "away" or "hold".'
            )

    def check(self, num_clients):
        check_count("num_clients", num_clients)
        there = self._there()
        present = there.any(0)
        devices = present.sum() if self.drop_absent else len(present)
        if devices < num_clients:
            what = "devices that are ever there" if self.drop_absent else "devices"
            raise ValueError(
                f"the trace must have at least one device per client; got {devices} "
                f"{what} for {num_clients} clients."
            )
        absent = np.flatnonzero(~present[:num_clients])
        if len(absent) and not self.drop_absent:
            named = ", ".join(map(str, absent[:8])) + ", ..." * (len(absent) > 8)
            raise ValueError(
                f"{len(absent)} of the first {num_clients} devices are never there: "
                f"{named}. Use drop_absent = true to take the next ones instead."
            )

    def draw(self, state, rounds, num_clients, rng):
        del rng  # deterministic
        there = self._clients(num_clients)
        last = len(there) * self.rounds_per_step
        if not self.wrap and rounds.stop > last:
            raise ValueError(
                f"the trace holds {last} rounds; round {last} was asked for. "
                "Run fewer rounds, raise rounds_per_step or use wrap = true."
            )
        times = np.array(rounds) // self.rounds_per_step % len(there)
        return state, ids_of(there[times])

    def marginals(self, num_clients):
        """Average over the trace."""
        self.check(num_clients)
        there = self._clients(num_clients)
        active = np.maximum(there.sum(1, keepdims=True), 1)
        return Marginals(there.mean(0), (there / active).mean(0))

    def _clients(self, num_clients):
        there = self._there()
        if self.drop_absent:
            there = there[:, there.any(0)]
        return there[:, :num_clients]

    def _there(self):
        avail = np.asarray(self.avail)
        if self.unknown == "hold":
            times = np.arange(len(avail))[:, None]
            last_known = np.maximum.accumulate(np.where(avail >= 0, times, 0))
            avail = np.take_along_axis(avail, last_known, 0)
        return avail == 1


def read_avail(given):
    """Give the matrix itself, that in a file, or that of the phones of FLASH."""
    if not isinstance(given, str | Path):
        return given
    if given == "flash_availability":
        return flash_availability()
    path = os.path.expandvars(given)
    try:
        if not is_zipfile(path):  # or numpy would take it for a pickle, and say so
            open(path, "rb").close()
            raise ValueError("it is no such file; np.savez(path, avail=matrix) makes one")
        with np.load(path) as file:
            return file["avail"]
    except (OSError, EOFError, KeyError, TypeError, ValueError, BadZipFile) as error:
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise ValueError(
            f"cannot read {path} as an .npz file that holds avail: {reason}."
        ) from None
