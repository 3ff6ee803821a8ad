"""The health of a job: who takes part, who is late, was refused or never counted.

It follows from events alone, so that whoever reads them knows what the server knows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from focusfl.flower.events import NAMED, lasting, metrics, short

LAST_REFUSALS = 3  # refusals in a row at the end: a site that is not let in
MANY_REFUSALS = 10  # refusals in all, if they are most of a site's answers
OLD_ROUNDS = 10  # rounds at least that a memory is old if it is half the training
STATES = (  # worst first
    "left out", "refused", "offline", "never counted", "late", "spent",
    "on time", "gone",
)  # fmt: skip
AWAY = ("gone", "left out")  # by its own will, or by the server's
NOTICES = 9  # shown at most, and the newest
RECENT = 40  # rounds shown one by one
WORSE_FACTOR = 4.0  # times its best, and above the first: a metric that gets worse
FALLING = ("loss", "grad_norm")  # metrics that are to fall


@dataclass
class SiteHealth:
    """How one site is doing."""

    state: str = "never counted"  # one of STATES
    counted: int = 0  # rounds
    late: int = 0  # of these, answers to an earlier round
    last: int | None = None  # the round it was counted in last
    age: int | None = None  # of its memory, in rounds; None: none in this generation
    refused: int = 0
    unanswered: int = 0
    error: str = ""  # what went wrong last
    recent: str = ""  # the last rounds: x counted, l late, . not
    refused_since: int = 0  # of these, since it was counted last
    epsilon: float | None = None  # given away, as it says; None: it does not say


class Health:
    """A job's health, brought up to date by one event after the other."""

    def __init__(self, events: Iterable[Mapping[str, Any]] = ()):
        self.sites: dict[str, SiteHealth] = {}
        self.state, self.round, self.rounds, self.generation = "not begun", 0, 0, 1
        self.began = self.heard = 0.0  # seconds since 1970
        self.seconds = self.eta = 0.0
        self.bytes = {"down": 0, "up": 0}
        self.metrics: dict[str, float] = {}
        self._values: dict[str, list[float]] = {}  # of metrics that are to fall
        self.strangers = 0  # nodes that were not let in
        self.notices: list[str] = []  # what operators should know, as of certificates
        self.awaited: list[str] = []  # who must be heard before the first round
        self.warnings: list[str] = []
        self.error = ""  # what went wrong last, whoever's fault it was
        self._online: set[str] = set()
        self._why: list[str] | None = None  # what the server said at the end
        for event in lasting(events):
            self.take(event)

    def take(self, event: Mapping[str, Any]) -> None:
        """Bring the health up to date with an event."""
        kind = event["event"]
        self.heard = event.get("time", self.heard)
        self._online = set(event.get("online", self._online))
        if event.get("metrics"):
            self.metrics = {**self.metrics, **metrics(event)}
            for name in FALLING:
                if name in self.metrics:
                    self._values.setdefault(name, []).append(self.metrics[name])
        match kind:
            case "begin":
                self._begin(event)
            case "waiting":
                self.state, self.awaited = "waiting", event["missing"]
            case "warm":
                self._count(event, event["round"] - 1)
            case "round":
                self._round(event)
            case "end":
                self.state, self.round = "ended", event["round"]
                self.warnings, self._why = event["warnings"], event.get("why", [])
            case "failed":
                self.state, self.error = "failed", event["why"]
                self._why = [self.error]
            case "stranger":
                self.strangers, self.error = self.strangers + 1, event["why"]
            case "notice":
                self.notices = [*self.notices[-NOTICES:], event["why"]]
            case _ if event.get("site") in self.sites:
                self._trouble(kind, event)
        # Last: who was counted in the round that began a generation has lost that again.
        if event.get("generation", 1) > self.generation:
            self.generation = event["generation"]
            for site in self.sites.values():
                site.age = None

    def _begin(self, event: Mapping[str, Any]) -> None:
        self.began = self.began or event["time"]
        self.state, self._why, self.awaited, self.notices = "running", None, [], []
        self.round, self.rounds = event["round"], event["rounds"]
        for name in event.get("everybody", ()):
            site = self.sites.setdefault(name, SiteHealth())
            if site.state == "left out":  # it is asked again
                site.state = "late"

    def _round(self, event: Mapping[str, Any]) -> None:
        self.state, self.round, self.awaited = "running", event["round"] + 1, []
        self.rounds, self.seconds, self.eta = (event[name] for name in ("rounds", "seconds", "eta"))
        for name in (*event["counted"], *event["missing"]):
            self.sites.setdefault(name, SiteHealth())
        self._count(event, event["round"])
        counted, late = set(event["counted"]), set(event["late"])
        for name, site in self.sites.items():
            site.counted += name in counted
            site.late += name in late
            mark = "l" if name in late else "x" if name in counted else "."
            site.recent = (site.recent + mark)[-RECENT:]
        for state, who in (("gone", "gone"), ("left out", "barred")):
            for name in event.get(who, ()):
                self.sites[name].state = state

    def _count(self, event: Mapping[str, Any], round: int) -> None:
        """Note bytes and privacy of a round, or of the one before the first, and that the
        sites it counted are on time."""
        for way, size in event.get("bytes", {}).items():
            self.bytes[way] += size
        for name, epsilon in event.get("epsilon", {}).items():
            if name in self.sites:
                self.sites[name].epsilon = epsilon
        for name in event["counted"]:
            site = self.sites[name]
            site.last, site.age, site.refused_since = round, 0, 0
            site.state = "on time"

    def _trouble(self, kind: str, event: Mapping[str, Any]) -> None:
        site = self.sites[event["site"]]
        if kind in ("left out", "spent"):  # what went wrong was another event
            site.state = kind
        if kind in ("left out", "spent", "missing", "leaving"):
            return
        site.error = f"{kind}: {event.get('why', '')}"
        self.error = f"{event['site']}: {site.error}"
        if kind == "refused" and not event.get("late"):
            site.state = "refused"
            site.refused += 1
            site.refused_since += 1
        elif kind == "nothing":
            site.unanswered += 1

    def confirm(self, pushes: Mapping[str, int]) -> None:
        """Take the server's word for whose state is in the model: events may be lost.

        Args:
            pushes: how many of each site were counted in this generation.
        """
        for name, push in pushes.items():
            site = self.sites.setdefault(name, SiteHealth())
            if not push or site.age is None:
                site.age = 0 if push else None

    def _update_states(self) -> None:
        """Derive every site's age and state from what was counted, and who is online."""
        for name, site in self.sites.items():
            if site.state in AWAY:
                continue
            if site.age is not None and site.last is not None:
                site.age = max(0, self.round - site.last - 1)
            if site.state == "spent":
                continue
            if name not in self._online and self.state != "ended":
                site.state = "offline"
            elif site.state in ("on time", "late", "offline", "never counted"):
                late = "never counted" if site.last is None else "late"
                site.state = "on time" if site.age == 0 else late

    def failures(self) -> list[str]:
        """Say why this would be no healthy end, if it were the end; empty if it would."""
        self._update_states()
        reasons = self._absences()
        for name, site in self.sites.items():
            refusals = f"{name} was refused {site.refused} times"
            if site.state == "left out":
                reasons.append(f"{refusals} and left out; {site.error}")
            elif site.state != "gone" and (
                site.refused >= max(MANY_REFUSALS, site.counted)
                or site.refused_since >= LAST_REFUSALS
            ):
                reasons.append(f"{refusals}; {site.error}")
        return reasons

    def _absences(self) -> list[str]:
        """Say which sites have no part in the model, though they were not left out of it."""
        here = {name: site for name, site in self.sites.items() if site.state not in AWAY}
        absent = {name: site for name, site in here.items() if site.age is None}
        never = [name for name, site in absent.items() if site.last is None]
        since = [name for name in absent if name not in never]
        if never and not any(site.counted for site in self.sites.values()):
            words = f"no site was counted in any of {self.round} rounds: the model was not trained."
            return [f"{words} {self.error}".strip()]
        parts = [f"{', '.join(never)} never took part"] if never else []
        if since:
            words = f"did not take part since generation {self.generation} began"
            parts.append(f"{', '.join(since)} {words}")
        if not parts:
            return []
        times = ", ".join(f"{name} {site.counted}" for name, site in self.sites.items())
        return [
            f"{'; '.join(parts)}: the model is that of the others alone. "
            f"Rounds counted, of {self.round}: {times}."
        ]

    def stale_warning(self) -> str:
        """Warn of sites not heard in the last half of the rounds; empty if there are none."""
        self._update_states()
        ages = {
            name: site.age
            for name, site in self.sites.items()
            if site.state not in AWAY and site.age and site.age >= max(OLD_ROUNDS, self.round / 2)
        }
        if not ages:
            return ""
        oldest = sorted(ages, key=lambda name: -ages[name])[:NAMED]
        rounds = [f"{name} in round {self.round - ages[name]}" for name in oldest]
        more = f" and {len(ages) - NAMED} more" if len(ages) > NAMED else ""
        return (
            f"counted last, of {self.round} rounds: {', '.join(rounds)}{more}. The model "
            "still uses what they sent then."
        )

    @property
    def why(self) -> list[str]:
        """Why the job is not healthy: as the server said at the end, or as it would now."""
        return self.failures() if self._why is None else self._why

    @property
    def worsening(self) -> str:
        """Which metrics have grown far above their best and their first value."""
        return ", ".join(
            f"{name} {short(each[-1])}, {short(each[-1] / min(each))} times its best"
            for name, each in self._values.items()
            if min(each) > 0 and not each[-1] < max(WORSE_FACTOR * min(each), each[0])
        )

    def as_dict(self) -> dict[str, Any]:
        """Give all of it as JSON values."""
        self._update_states()
        totals = {
            name: sum(getattr(site, name) for site in self.sites.values())
            for name in ("refused", "unanswered", "late")
        }
        warnings = self.warnings if self.state == "ended" else [self.stale_warning()]
        public = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {
            **public, **totals, "healthy": not self.why, "why": self.why,
            "worse": self.worsening, "warnings": [words for words in warnings if words],
            "bytes": dict(self.bytes), "metrics": dict(self.metrics),
            "sites": {name: dict(vars(site)) for name, site in self.sites.items()},
        }  # fmt: skip
