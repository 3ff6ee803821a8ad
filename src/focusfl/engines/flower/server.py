"""Rounds over Flower's grid that wait for nobody in particular."""

import os
import statistics
import time
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from focusfl.engines.divergence import BLOWN_UP
from focusfl.engines.flower import evaluation, events
from focusfl.engines.flower.ending import LEFT_OUT, Ending, budgets_spent, who
from focusfl.engines.flower.job import Job
from focusfl.engines.flower.link import Answer, Link
from focusfl.engines.flower.records import from_records, privacy_of, size
from focusfl.engines.protocol import ProtocolServer, Wired
from focusfl.engines.protocol.magnitude import norm

LOOK = 5  # polls between two looks at who is online
LAST = 10  # rounds that say how long those to come will take
LONGEST = 2000  # letters of a site's own words that are kept


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
        self._needed: list[str] = []  # whom a warm start was waiting for last

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
        self.say("open", epoch=protocol.epoch)
        if (
            protocol.round == 0
            and not (self._test or self._tested)
            and self._asks_sites
        ):
            self._begin_test()  # what is learned is seen against where it began
        asked: set[str] = set()
        before = set(protocol.waiting)  # asked in an earlier round
        while True:
            self.look()
            free = [s for s in protocol.free if s in self.online and s not in asked]
            requests = [(s, protocol.request(s)) for s in free]
            numbers = protocol.asked
            self.ask([(s, numbers[s], wired) for s, wired in requests], "train")
            asked.update(free)
            self.receive()
            awaited = asked & set(protocol.waiting)
            seconds = time.monotonic() - began
            if (
                not self._waits(not awaited)
                and len(protocol.counted) >= job.minimum
                and (
                    len(protocol.counted) >= self._enough
                    or not awaited
                    or seconds >= job.deadline
                )
            ):
                break
            if budgets_spent(job, protocol):
                return
            if protocol.restarts and not awaited:  # who is left cannot take part
                protocol.new_epoch(protocol.restarts)
                return
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
        for why in (*self.job.notices(), *filter(None, [self.protocol.notice])):
            self.say("notice", why=why)

    def close_round(self, before: set[str], opened: float) -> Collection[str] | None:
        """Close a round that was opened then; give who was counted, None if it waits.

        Args:
            before: sites that were asked in an earlier round: their answers are late.
            opened: when the round was opened, by `time.monotonic`, in seconds.
        """
        protocol = self.protocol
        number, out = protocol.round, protocol.barred
        counted = protocol.close_round()
        for site in set(protocol.barred) - {*out}:
            self.say("left out", site=site, why=LEFT_OUT)
        if counted is not None:
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
            "bytes": self._bytes, "epoch": protocol.epoch,
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
        if job.evaluate_every and protocol.round % job.evaluate_every == 0:
            self._begin_test()

    def _waits(self, idle: bool) -> bool:
        """Whether somebody must yet be heard before round 0 of a warm start.

        Where nobody else is about to answer, it is said for whom, and what has come
        is saved: once, until something changes.
        """
        protocol = self.protocol
        here = {*protocol.counted, *protocol.gone}
        warm = protocol.ledger.current < 0
        needed = [site for site in self.job.sites if warm and site not in here]
        if idle and needed and needed != self._needed:
            protocol.save()
            why = f"for {who(needed, self.job.sites)}, before the first round"
            self.say("waiting", missing=needed, why=why)
        self._needed = needed if idle else self._needed
        return bool(needed)

    def finish(self) -> list[str]:
        """Look where the model stands, keep what was found, say the end.

        Give why it was no healthy one.
        """
        self._wait()
        over = self._tested is not None and self._tested.round == self.protocol.round
        if self._asks_sites and not over and not self.diverged:
            self._begin_test()
            self._wait()
        ending = Ending(
            self.job, self.protocol, self.measured(), self._tested, self.diverged
        )
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
        return bool(self.job.evaluate_every) or not knows

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

    def receive(self) -> None:
        for answer in self.link.poll(self.job.patience):
            if answer.asked.kind == "evaluate":
                self._take(answer)
            else:
                self.take_push(answer)

    def take_push(self, answer: Answer) -> None:
        """Count what a site answers to a request; say so where it cannot be."""
        site, number = answer.site, answer.asked.number
        if answer.content is None:
            self.say("nothing", site=site, why=answer.why[:LONGEST])
            self.protocol.give_up(site, number)
            return
        message = from_records(answer.content)
        self._bytes["up"] += size(message)
        self._epsilons |= privacy_of(site, answer.content)
        due = answer.last and self.protocol.awaits(site, number)
        receipt = self.protocol.receive(site, message)
        if receipt.status != "applied":
            copy = {} if due else {"copy": True}
            self.say(receipt.status, site=site, why=receipt.why, **copy)
        if receipt.status == "refused" and answer.last:
            self.protocol.give_up(site, number)

    def _begin_test(self) -> None:
        """Have everybody who is online evaluate the model, beside the next rounds."""
        self._end_test()
        protocol, job = self.protocol, self.job
        sites = [site for site in self.online if site not in protocol.gone]
        wired = evaluation.ask(job.job, protocol.x)
        self.ask([(site, protocol.round, wired) for site in sites], "evaluate")
        self._test = evaluation.Evaluation(
            job.job, protocol.round, sites, protocol.x, job.weights, job.metrics
        )

    def _take(self, answer: Answer) -> None:
        test = self._test
        if test is None or answer.asked.number != test.round:  # of an earlier one
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
        if found := test.found():
            self.say(
                "evaluation", after=test.round, sites=test.answered,
                of=who(test.of, self.job.sites), metrics=found,
            )  # fmt: skip
