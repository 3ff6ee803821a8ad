"""Each client's chance rises and falls with the time of the day."""

from dataclasses import dataclass

import numpy as np

from focusfl.core.registry import PARTICIPATION
from focusfl.core.validation import check_count, check_finite, check_share
from focusfl.participation.bernoulli import mean_reciprocal
from focusfl.participation.model import (
    Marginals,
    Numbers,
    Participation,
    chances,
    check_each,
    ids_of,
    numbers,
    uniforms,
)

ROUNDING = 1e-12  # what a chance may pass 1 by, so that amplitude = 1 / p - 1 will do

TIMES = 4096  # of a period at which shares are averaged


@PARTICIPATION.register("diurnal")
@dataclass(frozen=True, eq=False)
class Diurnal(Participation):
    """Each client tosses a coin whose chance follows a sine over the rounds.

    In round r it is p_i (1 + amplitude sin(2 pi r / period + phase_i)). Phases are in
    radians: one for all, one per client, or "spread" evenly around the period in the
    order of the clients. Rounds may be empty.
    """

    p: Numbers  # mean chance of a round: one for all, or one per client
    amplitude: float | int  # of the sine, as a share of p: 0 to 1
    period: int  # rounds of a day, at least 2
    phase: str | Numbers = "spread"  # "spread", or radians: one, or one per client

    def __post_init__(self):
        object.__setattr__(self, "p", chances("p", self.p))
        check_count("period", self.period)
        if self.period == 1:
            raise ValueError(
                "period must be at least 2 rounds; got 1. "
                "Use Bernoulli for a chance that does not change."
            )
        check_share("amplitude", self.amplitude)
        highest = np.max(np.asarray(self.p))
        if highest * (1 + self.amplitude) > 1 + ROUNDING:
            i = np.argmax(np.asarray(self.p))
            raise ValueError(
                f"client {i} would take part with chance p (1 + amplitude) = "
                f"{highest * (1 + self.amplitude):g} at its best hour; got p = "
                f"{highest:g}, amplitude = {self.amplitude:g}. "
                f"Its amplitude can be {1 / highest - 1:.6g} at most."
            )
        if isinstance(self.phase, str):
            if self.phase != "spread":
                raise ValueError(
                    'phase must be "spread", a number or one per client, in radians; '
                    f"got {self.phase!r}."
                )
        else:
            phase = numbers("phase", self.phase)
            check_finite("phase", phase, ("client",) * phase.ndim)
            object.__setattr__(self, "phase", phase)

    def check(self, num_clients):
        check_each("p", self.p, num_clients)
        check_each("phase", self.phase, num_clients)

    def draw(self, state, rounds, num_clients, rng):
        drawn = []
        for run, coins in uniforms(rng, rounds, num_clients):
            drawn += ids_of(coins < self._chance(np.array(run), num_clients))
        return state, drawn

    def marginals(self, num_clients):
        """Average over a period, or over so many times of a longer one.

        Shares are smooth over the day: for 10^4 clients expected in a round, all times
        of a long period would change no digit.
        """
        self.check(num_clients)
        q = np.zeros(num_clients)
        times = min(self.period, TIMES)
        for k in range(times):  # one by one: a matrix of all may be too large
            now = np.array([k * (self.period / times)])
            (chance,) = self._chance(now, num_clients)
            q += chance * mean_reciprocal(chance) / times
        # A sine over a whole period adds up to 0.
        return Marginals(np.broadcast_to(self.p, num_clients).copy(), q)

    def _chance(self, rounds, num_clients):
        phase = self.phase
        if isinstance(phase, str):
            phase = 2 * np.pi * np.arange(num_clients) / num_clients
        # The round within the day first: large r would cost digits of the sine.
        day = 2 * np.pi * (rounds % self.period)[:, None] / self.period
        p = np.broadcast_to(self.p, num_clients)
        return p * (1 + self.amplitude * np.sin(day + phase))
