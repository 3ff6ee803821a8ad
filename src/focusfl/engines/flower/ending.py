"""How a training has ended: where the model stands, who took part, what is amiss."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from focusfl.algorithms import focus
from focusfl.algorithms.trackers import TRACKERS
from focusfl.engines.flower import events
from focusfl.engines.flower.evaluation import Evaluation
from focusfl.engines.flower.job import Job
from focusfl.engines.protocol import ProtocolServer
from focusfl.engines.protocol.format import leaves

ROUNDING = 1e4  # a gradient below so many units of rounding, of the largest, is zero


def who(sites: Collection[str], everybody: Sequence[str]) -> str:
    """Name some of the sites, in few words."""
    if len(sites) == len(everybody):
        return f"all {len(everybody)} sites"
    names = f" ({', '.join(sorted(sites))})" if 0 < len(sites) <= events.NAMED else ""
    return f"{len(sites)} of {len(everybody)} sites{names}"


class Ending:
    """What is said at the end of a job, and kept."""

    def __init__(
        self, job: Job, protocol: ProtocolServer, measured: Mapping[str, float],
        test: Evaluation | None, diverged: bool,
    ):  # fmt: skip
        self._job, self._protocol = job, protocol
        self._events = events.read(job.place)
        rounds = [event for event in self._events if event["event"] == "round"]
        times = Counter(site for event in rounds for site in event["counted"])
        self.counted = {site: times[site] for site in job.sites}
        self.facts: dict[str, Any] = {**measured, "counted": self.counted}
        self._of: Collection[str] = job.sites  # whose the gradient is
        if test is not None and test.round == protocol.round:
            found, here = test.found(), set(job.sites) - {*protocol.gone}
            # A server that evaluates knows of everybody; sites of those who answer.
            if "grad_norm" not in measured or protocol.gone or here == {*test.of}:
                self.facts.pop("grad_norm", None)
                self._of = test.of
            self.facts = {**found, **self.facts}
        if "grad_norm" in self.facts:
            self.facts["of"] = who(self._of, job.sites)
        blown_up = f"the training diverged in round {protocol.round}; lower lr."
        amiss = [blown_up] if diverged else [self._missing(), self._false_rest()]
        self.warnings = [words for words in amiss if words]
        self.facts |= {"warnings": self.warnings, "diverged": diverged}

    def _missing(self) -> str:
        """Say who has no part in the model."""
        protocol = self._protocol
        never = [site for site, times in self.counted.items() if not times]
        since = [
            site
            for site, push in protocol.applied.items()
            if not push and site not in {*never, *protocol.gone}
        ]
        found = []
        if never:
            found.append(f"{', '.join(never)} never took part")
        if since:
            found.append(
                f"{', '.join(since)} did not take part since epoch {protocol.epoch} "
                "began"
            )
        if protocol.barred:
            found.append(
                f"{', '.join(protocol.barred)} gave what cannot count and was left out"
            )
        if not found:
            return ""
        times = ", ".join(f"{site} {n}" for site, n in self.counted.items())
        return (
            f"{'; '.join(found)}: the model is that of the others alone. "
            f"Rounds counted, of {protocol.round}: {times}."
        )

    def _false_rest(self) -> str:
        """Say so if a tracker stands still where the gradient does not vanish.

        Only where both are of the same sites: who was never counted is in one alone.
        """
        protocol, facts = self._protocol, self.facts
        counted = {site for site, push in protocol.applied.items() if push} - {
            *protocol.gone
        }
        if not isinstance(protocol.server, TRACKERS) or counted != {*self._of}:
            return ""
        gradient, tracker = facts.get("grad_norm", 0.0), facts["tracker_norm"]
        largest = max(event.get("tracker_norm", 0.0) for event in self._events)
        rounding = max(np.finfo(leaf.dtype).eps for leaf in leaves(protocol.x))
        if (
            gradient <= ROUNDING * rounding * largest
            or tracker > focus.AT_REST * gradient
        ):
            return ""
        limit = self._job.algorithm.exact_below(1.0, max(2, self._job.local_steps))
        return (
            "the tracker is at rest and the gradient is not: lr is too large (eta*L "
            f"near or above {limit:g}). grad_norm {gradient:.3g}, tracker_norm "
            f"{tracker:.3g}."
        )

    def keep(self, end: Mapping[str, Any]) -> list[str]:
        """Write model and curves to the folder of the job; say what could not be."""
        # A look upwards: results have one format, and it is that of studies.
        from focusfl.deploy import record

        return record.keep(self._job, self._protocol.x, [*self._events, end])
