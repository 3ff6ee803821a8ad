"""Rounds over Flower's grid that wait for nobody in particular."""

import os
import statistics
import time
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from focusfl.flower import evaluation, events
from focusfl.flower.ending import LEFT_OUT, Ending, budgets_spent, who
from focusfl.flower.job import Job
from focusfl.flower.link import Answer, Link
from focusfl.flower.protocol import ProtocolServer, Wired
from focusfl.flower.protocol.limits import norm
from focusfl.flower.records import from_records, privacy_of, size
from focusfl.flower.secure import SecureServer
from focusfl.simulation.divergence import BLOWN_UP

LOOK = 5  # polls between two looks at who is online
LAST = 10  # rounds that say how long those to come will take
MAX_REASON = 2000  # letters of a site's own words that are kept


class Server:
    """One life of a server app."""

    def __init__(self, job: Job, protocol: ProtocolServer, link: Link):
        self.job, self.protocol, self.link = job, protocol, link
        self.online: list[str] = []
        self._polls = 0
        self._test: evaluation.Evaluation | None = None  # under way
        self._tested: evaluation.Evaluation | None = None  # the last that is over
        self._paces: deque[float] = deque(maxlen=LAST)  # seconds that rounds took
        self._bytes = {"down": 0, "up": 0}  # since the last round
        self._epsilons: dict[str, float] = {}  # since the last round, as sites say
        self._needed: list[str] = []  # whom the warm-up was waiting for last
        self._heard: list[str] = []  # in the warm-up so far
        self.waiting: set[str] = set()  # sites that owe a reply to a plain request

    def request(self, sites: Iterable[str]) -> list[tuple[str, int, Wired]]:
        """Make requests to some sites, each with its round; wait for their replies."""
        sites = list(sites)
        self.waiting.update(sites)
        return [(site, self.protocol.round, self.protocol.request(site)) for site in sites]

    def gather(self) -> None:
        """Give everybody a chance to be there before the first round."""
        until = time.monotonic() + self.job.deadline
        while len(self.online) < self._enough and time.monotonic() < until:
            self.look()
            self.receive()  # which site a node is, where it must be asked
            time.sleep(self.job.poll)

    def play(self) -> None:
        """Ask who is there, count who answers, and close the round."""
        protocol, job, began = self.protocol, self.job, time.monotonic()
        opened = began
        self.say("open", generation=protocol.generation)
        if protocol.round == 0 and not (self._test or self._tested) and self._asks_sites:
            self._begin_test()  # what is learned is seen against where it began
        asked: set[str] = set()
        before = set(self.waiting)  # asked in an earlier round
        while True:
            self.look()
            busy = {*asked, *self.waiting}
            free = [s for s in protocol.free if s in self.online and s not in busy]
            self.ask(self.request(free), "train")
            asked.update(free)
            again = self.receive()  # who lacks its state is sent it at once
            asked -= again
            awaited = asked & set(self.waiting)
            seconds, counted = time.monotonic() - began, len(protocol.counted)
            # Of a warm-up every part is committed: each site is heard but once.
            least = 1 if protocol.warming else job.minimum
            if (
                counted >= least
                and not again
                and (counted >= self._enough or not awaited or seconds >= job.deadline)
            ):
                break
            if budgets_spent(job, protocol):
                return
            if protocol.warming and not awaited:
                self._tell_needed()
            if not awaited and seconds >= job.deadline:
                asked.clear()  # not enough have answered: ask again who has failed
                began = time.monotonic()
            time.sleep(max(job.poll, min(seconds / 20, 1.0)))  # long rounds can wait
        self.close_round(before, opened)

    def begin(self) -> None:
        """Say what begins, with what an operator should know."""
        self.say(
            "begin", pid=os.getpid(), rounds=self.job.rounds,
            everybody=list(self.job.sites), metrics=self.measured(),
        )  # fmt: skip
        for why in self.job.notices():
            self.say("notice", why=why)

    def close_round(self, before: set[str], opened: float) -> Collection[str] | None:
        """Close a round that was opened then; give who was counted, None if it waits.

        Args:
            before: sites that were asked in an earlier round: their answers are late.
            opened: when the round was opened, by `time.monotonic`, in seconds.
        """
        protocol = self.protocol
        number, out = protocol.round, protocol.barred
        part = protocol.counted if protocol.warming else ()
        counted = protocol.close_round()
        for site in set(protocol.barred) - {*out}:
            self.say("left out", site=site, why=LEFT_OUT)
        self._heard += part
        if counted is not None:
            if part:
                counted, self._heard = tuple(self._heard), []
            self._closed(number, counted, before, time.monotonic() - opened)
        if counted is not None and not counted:
            why = f"round {number + 1} counted no site; their last words are above."
            self.say("warning", why=why)
        return counted

    def _closed(
        self, number: int, counted: Collection[str], before: set[str], seconds: float
    ) -> None:
        """Tell of a round that is over."""
        protocol, job = self.protocol, self.job
        facts: dict[str, Any] = {
            "counted": list(counted), "seconds": round(seconds, 3),
            "bytes": self._bytes, "generation": protocol.generation,
        }  # fmt: skip
        facts |= {"epsilon": self._epsilons} if self._epsilons else {}
        self._bytes, self._epsilons = {"down": 0, "up": 0}, {}
        if protocol.round == number:  # that was the one before round 0
            why = "everybody was heard before the first round"
            self.say("warm", why=why, **facts)
            return
        self._paces.append(seconds)
        eta = statistics.median(self._paces) * (job.rounds - protocol.round)
        self.say(
            "round", round=number, rounds=job.rounds, **facts,
            missing=[s for s in job.sites if s not in {*counted, *protocol.gone}],
            late=[site for site in counted if site in before], eta=round(eta, 1),
            gone=list(protocol.gone), barred=list(protocol.barred),
            metrics=self.measured(),
        )  # fmt: skip
        if job.eval_every and protocol.round % job.eval_every == 0:
            self._begin_test()

    def _tell_needed(self) -> None:
        """Say for whom the warm-up waits: once, until something changes."""
        needed = list(self.protocol.free)
        if needed and needed != self._needed:
            why = f"for {who(needed, self.job.sites)}, before the first round"
            self.say("waiting", missing=needed, why=why)
        self._needed = needed

    def finish(self) -> list[str]:
        """Look where the model stands, keep what was found, say the end.

        Give why it was no healthy one.
        """
        self._wait()
        over = self._tested is not None and self._tested.round == self.protocol.round
        if self._asks_sites and not over and not self.diverged:
            self._begin_test()
            self._wait()
        ending = Ending(self.job, self.protocol, self.measured(), self._tested, self.diverged)
        for why in ending.warnings:
            self.say("warning", why=why)
        whole = {"event": "end", **self._now, **ending.facts}
        for words in ending.keep(whole):
            print(words, flush=True)
        self.say(**whole)  # the last: whoever follows may stop everything now
        return ending.why

    @property
    def diverged(self) -> bool:
        """Whether the model is so large, beside the first, that sites cannot go on."""
        limit = BLOWN_UP * max(1.0, norm(self.job.params))
        return not norm(self.protocol.x) <= limit

    @property
    def _asks_sites(self) -> bool:
        """Whether sites are to evaluate, or nobody else gives a grad_norm."""
        knows = "grad_norm" in self.measured() and not self.protocol.gone
        return bool(self.job.eval_every) or not knows

    def _wait(self) -> None:
        """Wait for an evaluation that is under way, as long as for a round."""
        until = time.monotonic() + self.job.deadline
        while self._test is not None and time.monotonic() < until:
            self.look()
            self.receive()
            time.sleep(self.job.poll)
        self._end_test()

    @property
    def _now(self) -> dict[str, Any]:
        return {"round": self.protocol.round, "online": self.online}

    def say(self, event: str, **facts: Any) -> None:
        """Tell whoever watches, here or by `flwr run --stream`."""
        whole = {"event": event, **self._now, **facts}
        events.write(self.job.place, whole)
        if words := events.describe(whole):
            print(words, flush=True)

    @property
    def _enough(self) -> int:
        return self.job.target or len(self.job.sites) - len(self.protocol.gone)

    def measured(self) -> dict[str, float]:
        """What is known of the model without asking anybody."""
        return evaluation.measured(self.job, self.protocol.server)

    def look(self) -> None:
        if self._polls % LOOK == 0:
            self.online = self.link.look()
        self._polls += 1
        for why in self.link.refused():
            self.say("stranger", why=why)

    def ask(self, requests: list[tuple[str, int, Wired]], kind: str) -> None:
        """Send a message each to some sites; those of a round are a group."""
        self.count_sent(wired for _, _, wired in requests)
        group = str(self.protocol.round) if kind == "train" else kind
        self.link.ask(requests, kind, group)

    def count_sent(self, messages: Iterable[Wired]) -> None:
        """Add messages to what the round has sent."""
        self._bytes["down"] += sum(size(wired) for wired in messages)

    def receive(self) -> set[str]:
        """Take what has come; give who lacks its state and must be asked again."""
        again = set()
        for answer in self.link.poll(self.job.patience):
            if answer.pending.kind == "evaluate":
                self._take(answer)
            elif site := self.take_push(answer):
                again.add(site)
        return again

    def _is_due(self, site: str, number: int | None) -> bool:
        """Whether a reply is waited for; else it is a copy, or comes too late."""
        if isinstance(self.protocol, SecureServer):
            return self.protocol.awaits(site, number)
        return site in self.waiting

    def take_push(self, answer: Answer) -> str | None:
        """Count what a site answers to a request; say so where it cannot be.

        Returns:
            The site, if it lacks its state and must be asked again.
        """
        site = answer.site
        if answer.content is None:
            self.say("nothing", site=site, why=answer.why[:MAX_REASON])
            self.waiting.discard(site)
            if isinstance(self.protocol, SecureServer):
                self.protocol.give_up(site)
            return None
        message = from_records(answer.content)
        self._bytes["up"] += size(message)
        self._epsilons |= privacy_of(site, answer.content)
        due = answer.last and self._is_due(site, answer.pending.number)
        receipt = self.protocol.receive(site, message)
        if receipt.status != "applied":
            copy = {} if due else {"copy": True}
            self.say(receipt.status, site=site, why=receipt.why, **copy)
        if answer.last:
            self.waiting.discard(site)
        return site if receipt.status == "missing" else None

    def _begin_test(self) -> None:
        """Have everybody who is online evaluate the model, beside the next rounds."""
        self._end_test()
        protocol, job = self.protocol, self.job
        sites = [site for site in self.online if site not in protocol.gone]
        wired = evaluation.ask(job.job, protocol.x)
        self.ask([(site, protocol.round, wired) for site in sites], "evaluate")
        self._test = evaluation.Evaluation(
            job.job, protocol.round, sites, protocol.x, job.weights, job.per_client
        )

    def _take(self, answer: Answer) -> None:
        test = self._test
        if test is None or answer.pending.number != test.round:  # of an earlier one
            return
        if answer.content is not None:
            self._bytes["up"] += size(from_records(answer.content))
        if why := test.take(answer.site, answer.content):
            self.say("unfit", site=answer.site, why=why)
        if not test.awaited:
            self._end_test()

    def _end_test(self) -> None:
        """End the evaluation that is under way, if one is."""
        test, self._test = self._test, None
        if test is not None:
            self.tell_test(test)

    def tell_test(self, test: evaluation.Evaluation) -> None:
        """Keep an evaluation that is over, and say what it found."""
        self._tested = test
        if metrics := test.results():
            self.say(
                "evaluation", after=test.round, sites=test.answered,
                of=who(test.of, self.job.sites), metrics=metrics,
            )  # fmt: skip
