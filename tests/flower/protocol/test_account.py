"""Private sites: their noise is nobody's, and what they give away is written down."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import focusfl as ff
from focusfl.core import Batch, tree
from focusfl.flower.protocol import ProtocolServer, Site
from focusfl.flower.protocol.messages import load_flat
from focusfl.privacy import Private, accounting
from focusfl.privacy.account import Account, BudgetExceeded, Limit, Terms
from focusfl.privacy.mechanism import private_gradient

FOCUS = ff.Focus()
N, DIM, STEPS = 3, 4, 2
NAMES = [f"site-{i}" for i in range(N)]
RNG = np.random.default_rng(3)
LOGISTIC = ff.problems.Logistic(
    RNG.normal(size=(N, 20, DIM)), np.sign(RNG.normal(size=(N, 20))), penalty=0.1
)


def private(noise=20.0, budget=None, **more):
    own = {"clip": 0.5, "noise": noise, "budget": budget}
    return Private(LOGISTIC, **own | more)


class Job:
    """A server and private sites, all of whose messages arrive."""

    def __init__(self, problem, folder, algorithm=FOCUS):
        self.problem, self.folder, self.algorithm = problem, folder, algorithm
        self.sites = [self.site(name) for name in NAMES]
        self.protocol = ProtocolServer(
            algorithm, problem.x0, NAMES, folder, job="job", lr=0.1, local_steps=STEPS
        )

    def site(self, name):
        terms = Terms.of(self.problem)
        return Site(self.algorithm, "job", name, private=terms, folder=self.folder)

    def answer(self, i, request):
        data = tree.map(lambda leaf: leaf[i], self.problem.data)
        return self.sites[i].answer(request, private_gradient(self.problem.objective, data))

    def play(self, ids=range(N)):
        found = []
        for i in ids:
            if NAMES[i] in self.protocol.free:
                reply = self.answer(i, self.protocol.request(NAMES[i]))
                found.append(self.protocol.receive(NAMES[i], reply).status)
        self.protocol.close_round()
        return found

    def told(self, i):
        return self.sites[i].account.summary

    @property
    def gap(self):
        total = sum(state.grad for _, state in self.protocol.states())
        return np.abs(self.protocol.server.y - total).max()


@pytest.fixture
def begun(folder):
    jobs = []

    def begin(*args, **more):
        jobs.append(Job(*args, folder=folder, **more))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.protocol.close()


def test_sites_clip_what_the_simulator_clips(begun):
    job = begun(private(noise=0.0))
    masks = np.array([[1, 1, 1], [0, 1, 0], [1, 0, 1], [1, 1, 0]], bool)
    for who in masks:
        assert set(job.play(np.flatnonzero(who))) == {"applied"}
    alone = ff.loop(
        ff.Focus(), private(noise=0.0), ff.participation.Replay(masks), rounds=4,
        lr=0.1, local_steps=STEPS,
    )  # fmt: skip
    assert np.allclose(job.protocol.x, alone.x, rtol=1e-12)
    unclipped = ff.loop(
        ff.Focus(), LOGISTIC, ff.participation.Replay(masks), rounds=4, lr=0.1,
        local_steps=STEPS,
    )  # fmt: skip
    assert not np.allclose(job.protocol.x, unclipped.x, rtol=1e-3)
    assert job.told(0) == {"gradients": 3.0 * STEPS}  # without noise nothing is bounded


def test_noise_is_as_large_as_it_must_be_and_new_in_every_answer(begun):
    """400 entries: their deviation is within 18 % of its law but once in 10^6."""
    job = begun(private(noise=2.0), algorithm=ff.Focus(memory="last"))
    most = 0.5 / 20  # what a row can change, clipped, of a mean over 20 rows
    data = tree.map(lambda leaf: leaf[0], LOGISTIC.data)
    objective = private(noise=0.0).objective
    exact = objective.grad(LOGISTIC.x0, data, Batch(ff.core.random.stream(0), 0))
    found = []
    for _ in range(100):  # asked again and again, and nothing is ever counted
        reply = job.answer(0, job.protocol.request("site-0"))
        found.append(load_flat(reply["up"])["y"])
        job.sites[0].cache.clear()
    # The second of two local steps, from where it stood: y is still 0.
    noise = np.array(found) - exact
    assert 0.82 < noise.std() / (2.0 * most) < 1.18
    assert len(np.unique(noise)) == noise.size
    assert job.told(0)["gradients"] == 100 * STEPS


def test_an_answer_that_is_asked_for_twice_is_given_and_counted_once(begun):
    job = begun(private())
    request = job.protocol.request("site-0")
    assert job.answer(0, request) == job.answer(0, request)
    told = job.told(0)
    assert told == {
        "gradients": STEPS,
        "epsilon": ff.privacy.epsilon(20.0, STEPS, accountant="rdp"),
    }


def test_a_budget_that_is_spent_stops_a_site_and_its_memory_stays(begun):
    within = ff.privacy.epsilon(20.0, 2 * STEPS, accountant="rdp")
    job = begun(private(budget=1.001 * within))
    assert job.play([0]) == ["applied"]
    assert job.play() == 3 * ["applied"]
    assert job.play() == ["spent", "applied", "applied"]
    assert job.protocol.spent == {"site-0"} and job.protocol.free == (*NAMES[1:],)
    assert job.gap < 1e-14 and job.protocol.pushes["site-0"]
    assert job.play() == 2 * ["spent"] and job.protocol.free == ()
    assert job.told(0)["epsilon"] == pytest.approx(within)
    job.protocol.close()
    again = begun(job.problem)  # who is started anew says so again, and spends nothing
    assert again.play() == 3 * ["spent"] and again.told(0) == job.told(0)
    assert again.gap < 1e-14


def test_the_simulator_lets_a_client_come_as_often_as_a_site_does(begun):
    budget = 1.001 * ff.privacy.epsilon(20.0, 3 * STEPS, accountant="rdp")
    problem = private(budget=budget, accountant="rdp")
    job = begun(problem)
    times = sum(job.play([0]) == ["applied"] for _ in range(6))
    assert times == problem.visits(STEPS) == 3


def test_before_a_warm_start_who_has_spent_its_budget_is_waited_for_by_nobody(begun):
    problem = private(budget=1.001 * ff.privacy.epsilon(20.0, 1 + STEPS, accountant="rdp"))
    job = begun(problem, algorithm=ff.Focus(warm_start=True))
    assert job.play() == job.play() == 3 * ["applied"]
    job.protocol.new_generation()
    assert job.play() == 3 * ["spent"]
    assert job.protocol.gone == tuple(NAMES[:2])  # the last site stays


def test_a_gradient_that_fails_has_spent_what_it_cost(begun):
    job = begun(private())
    request = job.protocol.request("site-0")

    def crash(x, batch):
        raise OSError("the power is gone")

    with pytest.raises(OSError):
        job.sites[0].answer(request, crash)
    assert job.told(0)["gradients"] == STEPS
    assert job.protocol.receive("site-0", job.answer(0, request)).applied
    assert job.told(0)["gradients"] == 2 * STEPS


def test_what_cannot_be_written_down_is_not_computed(begun):
    job = begun(private())
    request, computed = job.protocol.request("site-0"), []
    job.sites[0].account.path.mkdir(parents=True)  # no file can take its place
    with pytest.raises(OSError):
        job.sites[0].answer(request, lambda x, batch: computed.append(batch) or x)
    assert not computed


@pytest.mark.parametrize("how", ["removed", "damaged", "a backup"])
def test_a_site_that_has_lost_its_account_gives_nothing_away(begun, how):
    job = begun(private(budget=5.0))
    job.play([0])
    path = job.sites[0].account.path
    backup = path.read_bytes()
    job.play([0])
    if how == "removed":
        path.unlink()
    else:
        path.write_bytes(backup if how == "a backup" else backup[:-9] + b"xxxxxxxxx")
    assert job.play() == ["spent", "applied", "applied"]
    job.protocol.new_generation()
    assert job.play() == 2 * ["applied"] and job.told(0) == {}


def account(folder, job="job", limit=None, **terms):
    return Account(folder / "site.privacy", job, Terms.of(private(**terms)), limit)


def test_all_jobs_of_a_site_spend_from_one_account(folder):
    """Another name, another noise, another clip: what each reveals adds up."""
    spent = (3 / 20.0**2 + 5 / 10.0**2) / 2
    budget = 1.001 * accounting.rdp_epsilon(spent, 1e-5)
    account(folder, "a", budget=budget).spend(3, 0)
    account(folder, "b", noise=10.0, clip=9.0, budget=budget).spend(5, 0)
    assert account(folder, "c").summary == {
        "gradients": 8, "epsilon": pytest.approx(accounting.rdp_epsilon(spent, 1e-5))
    }  # fmt: skip
    for name in ("a", "b", "a third name"):
        with pytest.raises(BudgetExceeded, match=r"by RDP, at delta 1e-05, for all its jobs"):
            account(folder, name, budget=budget).spend(1, 0)
    assert account(folder).summary["gradients"] == 8


def test_another_name_of_the_job_opens_no_other_account(begun):
    job = begun(private())
    job.play()
    other = Site(FOCUS, "another", "site-0", private=Terms.of(private()), folder=job.folder)
    assert other.account.summary == job.told(0) != {}
    someone = Site(FOCUS, "job", "site-9", private=Terms.of(private()), folder=job.folder)
    assert someone.account.summary == {}


def test_no_job_raises_the_budget_of_a_site_but_the_site_does(folder):
    cost = [1.001 * ff.privacy.epsilon(20.0, k, accountant="rdp") for k in range(5)]
    account(folder, "a", budget=cost[2]).spend(1, 0)
    for later in ({}, {"budget": cost[4]}):
        with pytest.raises(BudgetExceeded):
            account(folder, "b", **later).spend(2, 0)
    mine = Limit(cost[3], 1e-5)
    account(folder, "b", mine, budget=cost[4]).spend(2, 0)
    with pytest.raises(BudgetExceeded):
        account(folder, "b", mine, budget=cost[4]).spend(1, 0)
    # Without noise any budget is exceeded, and without a budget of anybody none is.
    with pytest.raises(BudgetExceeded):
        account(folder, "c", mine, noise=0.0).spend(1, 0)


def test_jobs_at_the_same_time_lose_no_gradient(folder):
    jobs, interval = [account(folder, f"job-{k % 4}") for k in range(200)], sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # without the lock some are lost then
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: one.spend(1, 0), jobs))
    finally:
        sys.setswitchinterval(interval)
    assert account(folder).summary["gradients"] == 200


def test_an_account_of_records_is_not_one_of_clients(folder):
    account(folder).spend(1, 0)
    with pytest.raises(ValueError, match="what gradients reveal of a record; this job protects"):
        account(folder, "b", level="client").spend(1, 0)


def test_a_lost_account_is_lost_to_all_jobs(folder):
    account(folder, "a").spend(1, 0)
    for name, seen in (("a", 2), ("b", 0)):
        with pytest.raises(BudgetExceeded, match="its account is lost"):
            account(folder, name).spend(1, seen)


class Twice(ff.Focus):
    """An algorithm that asks for two gradients in a local step."""

    def step(self, local, grad_fn, batch, rd):
        grad_fn(local.x, batch)
        return super().step(local, grad_fn, batch, rd)


def test_more_gradients_than_are_counted_are_refused(begun):
    job = begun(private(), algorithm=Twice())
    with pytest.raises(ValueError, match="one gradient in a local step"):
        job.answer(0, job.protocol.request("site-0"))
