"""What can go wrong, made to go wrong: by a seed, so that it can again.

A SPEC is items between commas. Shares of the replies that are lost, held back for one
to three rounds, or given twice:

    drop=0.2,delay=0.1,duplicate=0.1

Events: a SuperNode killed, the SuperLink, the server app; a site's disk deleted, or
full for a while, a SuperNode that stands still for as long; a gradient of 1e16, once;
the server's disk copied, and put back as it was then. So many in rounds drawn at
random, or one in the round named, where need be at a site:

    node=3,superlink=1,server@11,disk:2@14,full:0@20,pause=2,spike=1,
    backup@9,restore@40

With secure sums a SuperNode also dies within a stage, its reply written and not sent:

    keys:0@3,shares:1@5,push:2@7,unmask:3@9

And seed=7. SuperNodes, SuperLink and server app are killed without warning (-9) and
started again.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from focusfl.core import random as keys
from focusfl.core.validation import unknown
from focusfl.flower.secure.messages import STAGES

SHARES = ("drop", "delay", "duplicate")
EVENTS = (
    "node", "superlink", "server", "disk", "full", "pause", "spike", "backup",
    "restore", *STAGES,
)  # fmt: skip
AT_A_SITE = ("node", "disk", "full", "pause", "spike", *STAGES)
ITEM = re.compile(r"([a-z]+)(?:=([0-9.]+)|(?::([0-9]+))?@([0-9]+))")


class Event(NamedTuple):
    round: int
    what: str
    site: int | None

    def __str__(self) -> str:
        at = "" if self.site is None else f":{self.site}"
        return f"{self.what}{at}@{self.round}"


@dataclass(frozen=True)
class Chaos:
    """What is to go wrong."""

    spec: str = ""
    drop: float = 0.0
    delay: float = 0.0
    duplicate: float = 0.0
    seed: int = 0
    drawn: tuple[tuple[str, int], ...] = ()  # kinds of event, and how many of each
    events: tuple[Event, ...] = ()

    @property
    def within(self) -> bool:
        """Whether apps must be such as go wrong by themselves."""
        shares = self.drop + self.delay + self.duplicate
        return shares > 0 or bool({"spike", *STAGES} & self._kinds)

    def check_stages(self, secure: bool) -> None:
        """Raise ValueError if stages are named where sums are not secure."""
        named = sorted(self._kinds & {*STAGES})
        if named and not secure:
            raise ValueError(
                f"chaos: {named[0]} is a stage of secure sums; add --secure, or have "
                "a SuperNode killed by node=1."
            )

    @property
    def _kinds(self) -> set[str]:
        return {event.what for event in self.events} | {what for what, _ in self.drawn}

    def plan(self, rounds: int, clients: int) -> list[Event]:
        """Draw what is left to chance; in order.

        In the middle of the run, so that there is something to lose and time to mend.
        """
        rng = keys.rng(self.seed, "chaos")
        early = min(max(1, rounds // 10), rounds - 1)
        last = max(early + 1, rounds * 2 // 3)
        found = list(self.events)
        for what, count in self.drawn:
            for _ in range(count):
                site = int(rng.integers(clients)) if what in AT_A_SITE else None
                found.append(Event(int(rng.integers(early, last)), what, site))
        for event in found:
            if event.site is not None and event.site >= clients:
                raise ValueError(f"chaos: {event} names one of {clients} sites from 0.")
            if event.round >= rounds:
                raise ValueError(f"chaos: {event} names one of {rounds} rounds from 0.")
        found.sort()
        first = next((e for e in found if e.what in ("backup", "restore")), None)
        if first is not None and first.what == "restore":
            raise ValueError(f"chaos: {first} must come after a backup; there is none.")
        return found


def told_file(state: Path, what: str) -> Path:
    """What tells the site that keeps its state there to do this, once: to be wrong
    ("spike"), or to die in a stage."""
    return state.parent / what


def parse(spec: str) -> Chaos:
    """Read a SPEC; ValueError says which item is wrong and what would do."""
    shares: dict[str, float] = {}
    drawn, events, seed = [], [], 0
    for item in (part.strip() for part in spec.split(",") if part.strip()):
        match = ITEM.fullmatch(item)
        name = match[1] if match else re.split("[=:@]", item)[0]
        if name not in (*SHARES, *EVENTS, "seed"):
            raise ValueError(unknown("chaos", name, (*SHARES, *EVENTS, "seed")))
        try:
            if not match:
                raise ValueError
            _, value, site, number = match.groups()
            if name in SHARES:
                shares[name] = float(value)
            elif name == "seed":
                seed = int(value)
            elif value is not None:
                drawn.append((name, int(value)))
            elif (site is not None) == (name in AT_A_SITE):
                where = None if site is None else int(site)
                events.append(Event(int(number), name, where))
            else:
                raise ValueError
        except (ValueError, TypeError):
            raise ValueError(
                f"chaos: {item!r} must be like drop=0.2, node=3, node:1@5, server@8 or seed=7."
            ) from None
    if not sum(shares.values()) <= 1:
        raise ValueError(f"chaos: shares must add up to at most 1; got {spec!r}.")
    return Chaos(spec, **shares, seed=seed, drawn=tuple(drawn), events=tuple(events))
