"""A study's clock where it is deployed: what it says of rounds, and what it may be."""

from typing import TYPE_CHECKING, Any

from focusfl.participation import Async, Sync
from focusfl.participation.latency import Pace
from focusfl.participation.timed import Timed

if TYPE_CHECKING:
    from focusfl.deploy.study import Deployed


def set_latency(table: dict[str, Any], timed: bool) -> None:
    """Keep the clock of a study if it is to delay sites; raise if it cannot."""
    if not timed:
        table.pop("latency", None)
    elif "latency" not in table:
        raise ValueError("--latency needs a [latency] in the study; there is none.")
    elif isinstance(table["latency"], dict) and "trace" in table["latency"]:
        raise ValueError(
            "--latency takes no trace: who is away is not asked, and a deployment asks "
            "everybody. Leave trace out of [latency]."
        )


def seconds_by_latency(deployed: "Deployed", target: int | None) -> float:
    """What the simulator says that all rounds take, with so many replies each."""
    latency, many = deployed.latency, len(deployed.sites)
    law: Timed = Async(latency, replies=target) if target else Sync(latency)
    law = law.fitted(deployed.algorithm, deployed.problem.x0, deployed.local_steps)
    spent = law.spent(deployed.algorithm, many, deployed.study.rounds, deployed.seed)
    return float(spent["seconds"].sum())


def check_deadline(deployed: "Deployed", deadline: float) -> None:
    """Raise if the clock has a reply take longer than a round may last."""
    if deployed.latency is None:
        return
    pace = pace_of(deployed, deployed.local_steps)
    takes = pace.travel + pace.compute
    if takes.max() > deadline:
        raise ValueError(
            f"by the clock {deployed.sites[takes.argmax()]} takes {takes.max():.3g} s "
            f"for a reply, and a round closes without it after {deadline:g} s. Use a "
            "longer --deadline, or a faster clock."
        )


def pace_of(deployed: "Deployed", local_steps: int) -> Pace:
    """How long everybody's reply takes by the clock, with so many local steps."""
    law = Sync(deployed.latency)
    law = law.fitted(deployed.algorithm, deployed.problem.x0, local_steps)
    return law.pace(len(deployed.sites))
