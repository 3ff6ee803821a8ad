"""Measure what poisoned pushes do to algorithms, with and without defences.

    python experiments/robust/measure.py            # writes ridge.json, digits.json, table.md
    python experiments/robust/measure.py --quick    # two methods, a few rounds; writes nothing

A plain loop calls the algorithms' own functions on NumPy arrays. All clients of several
runs are one array, (runs, clients, numbers of the model). The server sees every push, so
that it has a copy of everybody's state: a deployment has that, unless its sums are secure.

A *claim* is what a push says of its site's gradient, whatever the message is made of: what
the site's state is after it, or for FedAvg the move over minus lr times steps. Attackers
choose claims, and defences judge them.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

import focusfl as ff
from focusfl.core import Algorithm, Round, tree
from focusfl.core import random as keys
from focusfl.core.files import write
from focusfl.participation import schedule
from focusfl.studies.report.table import markdown

HERE = Path(__file__).parent
METHODS: dict[str, Algorithm] = {
    "FOCUS, last": ff.Focus(memory="last"),
    "FOCUS, mean": ff.Focus(),
    "SCAFFOLD": ff.Scaffold(),
    "MIFA": ff.MIFA(),
    "FedAvg": ff.FedAvg(),
}
CLIP = 2.0  # a claim may be so many times as large as the median of all
LIMIT = 2.0  # a claim may be so many times as large as the largest gradient at the start
# A change of a claim may be so many times as large as the largest of the site's last
# ones; before a site has changed so often, it is not judged.
GUARDS = {"guard x10": 10.0, "guard x3": 3.0}
LAST, NEW = 5, 3
TRIM = {"trimmed 10 %": 0.1, "trimmed 30 %": 0.3}  # at either end of every coordinate
DEFENCES = ("none", "limit", "clip", "guard x10", *TRIM, "median")
ATTACKS = (
    "sign flip", "x10", "x100", "noise", "labels", "turncoat", "little", "inner", "adaptive",
)  # fmt: skip
UNKNOWN = 1000.0  # times the usual norm: what attackers claim where nothing is refused
BROKEN = 1e3  # a distance beyond which a run is not worth a number


class Data(NamedTuple):
    """A problem for this loop: grad f_i(x) = curve(x) - offset."""

    curve: Callable[[np.ndarray, np.ndarray], np.ndarray]  # (x (runs, n, d), ids) -> like x
    offset: np.ndarray  # (clients, d)
    flipped: np.ndarray  # the same with wrong labels
    optimum: Callable[[np.ndarray], np.ndarray]  # of the clients in a mask
    # The accuracy of a model on held-out images, and on those that clients have.
    score: Callable[[np.ndarray], tuple[float, float]] | None
    L: float  # the largest curvature of F


def ridge(seed: int, unlike: float = 1.0) -> Data:
    """100 clients with 20 rows of 10 numbers, and a model of their own each."""
    H, h = ridge_problem(seed, unlike).data.values()

    def curve(x, ids):
        return (H[ids] @ x[..., None])[..., 0]

    def optimum(mask):
        return np.linalg.solve(H[mask].mean(0), h[mask].mean(0))

    L = float(np.linalg.eigvalsh(H.mean(0))[-1])
    return Data(curve, h, -h, optimum, None, L)


def ridge_problem(seed: int, unlike: float = 1.0) -> ff.problems.LeastSquares:
    return ff.problems.ridge(
        num_clients=100, dim=10, rows=20, heterogeneity=unlike, seed=seed
    )  # fmt: skip


def digits(seed: int) -> Data:
    """Softmax regression on images shrunk to 4 x 4 pixels, 50 clients, penalty .01 |x|^2 / 2."""
    penalty, classes = 0.01, 10
    images = ff.data.digits()
    test = ff.data.hold_out(images.y, 0.2, seed)
    x = images.x.reshape(-1, 4, 2, 4, 2).mean((2, 4)).reshape(-1, 16)
    x = (x - x[~test].mean(0)) / x[~test].std()
    x = np.c_[x, np.ones(len(x))]
    parts = ff.data.dirichlet_balanced(images.y[~test], 50, 0.3, seed, drop_rest=True)
    X = np.stack([x[~test][part] for part in parts])  # (clients, rows, features)
    labels = np.stack([images.y[~test][part] for part in parts])
    rows, features = X.shape[1:]

    def offsets(labels):
        Y = np.eye(classes)[labels]
        return (X.swapaxes(1, 2) @ Y / rows).reshape(len(X), -1)

    def curve(x, ids):
        W = x.reshape(*x.shape[:2], features, classes)
        scores = X[ids] @ W
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        grad = X[ids].swapaxes(1, 2) @ scores / rows
        return grad.reshape(*grad.shape[:2], -1) + penalty * x

    pooled = X.reshape(-1, features)
    # Of softmax, half the largest curvature of its features, and the penalty.
    L = float(np.linalg.eigvalsh(pooled.T @ pooled / len(pooled))[-1]) / 2 + penalty
    offset = offsets(labels)

    @cache
    def of(ids):
        ids, x = np.array(ids), np.zeros((1, 1, features * classes))
        ahead, momentum = x, (1 - (penalty / L) ** 0.5) / (1 + (penalty / L) ** 0.5)
        for _ in range(1500):  # Nesterov's method
            grad = (curve(ahead, ids) - offset[ids]).mean(1, keepdims=True)
            x, before = ahead - grad / L, x
            ahead = x + momentum * (x - before)
        return x[0, 0]

    def optimum(mask):
        return of(tuple(np.flatnonzero(mask).tolist()))

    def score(w):
        right = (x @ np.nan_to_num(w).reshape(features, classes)).argmax(1) == images.y
        return float(right[test].mean()), float(right[~test].mean())

    return Data(curve, offset, offsets(classes - 1 - labels), optimum, score, L)


class Setting(NamedTuple):
    make: Callable[[int], Data]
    rounds: int
    local_steps: int
    attackers: tuple[int, ...]  # how many of the clients, one run each
    steps: range  # powers of two that are tried, in units of 1/L, or 1/(N L) for sums


SETTINGS = {
    "ridge": Setting(ridge, 300, 3, (1, 5, 10, 20, 30), range(-8, 2)),
    "digits": Setting(digits, 120, 2, (1, 5, 15), range(-5, 5)),
}
SEEDS = (0, 1, 2)


# How an algorithm's messages and claims belong together


def memory(algorithm: Algorithm, clients: Any) -> np.ndarray | None:
    """Give what the server's sum holds of each client; None if it holds nothing."""
    return next(iter(algorithm.tracked(None, clients).values()), None)


def claims(algorithm: Algorithm, up: dict, clients: Any, down: dict, rd: Round) -> np.ndarray:
    """Read off pushes what they say of gradients."""
    said = memory(algorithm, algorithm.state_after(clients, up, down, rd))
    return -up["dx"] / (rd.local_steps * rd.lr) if said is None else said


def messages(algorithm: Algorithm, claim: np.ndarray, clients: Any, down: dict, rd: Round) -> dict:
    """Write the pushes that make these claims, of clients in these states."""
    before = memory(algorithm, clients)
    if before is None:
        return {"dx": -rd.local_steps * rd.lr * claim}
    if isinstance(algorithm, ff.Scaffold):
        return {"dx": -rd.local_steps * rd.lr * (claim + down["c"] - before)}
    return {"dg" if isinstance(algorithm, ff.MIFA) else "y": claim - before}


def trimmed(rows: np.ndarray, mask: np.ndarray, share: float) -> np.ndarray:
    """Average what is left of each coordinate without its extremes.

    Args:
        rows: (runs, clients, d).
        mask: which rows count, (runs, clients).
        share: of these, left out at either end; 0: the mean, .5: the median.

    Returns:
        (runs, 1, d); 0 where no row counts.
    """
    ordered = np.sort(np.where(mask[..., None], rows, np.inf), axis=1)
    many = mask.sum(1)
    out = np.minimum((share * many).astype(int), (np.maximum(many, 1) - 1) // 2)
    place = np.arange(rows.shape[1])
    inner = (place >= out[:, None]) & (place < (many - out)[:, None])
    total = np.where(inner[..., None], ordered, 0).sum(1, keepdims=True)
    return total / np.maximum(inner.sum(1), 1)[:, None, None]


def sizes(rows: np.ndarray) -> np.ndarray:
    return np.sqrt((rows**2).sum(-1))


def typical(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Give the median norm of the rows that count, (runs, 1, 1)."""
    return trimmed(sizes(rows)[..., None], mask, 0.5)


# What attackers claim


class View(NamedTuple):
    """What attackers know: everything. Arrays of all clients, (runs, clients, ...)."""

    claim: np.ndarray  # what honest sites would claim
    others: np.ndarray  # what the server has of everybody once honest pushes are counted
    honest: np.ndarray  # which rows of `others` are there, and honest
    before: np.ndarray | None  # what the server has of each site now
    limit: np.ndarray  # how far a site may move under the guard
    most: float  # norm of a claim that is not over the limit
    towards: np.ndarray  # signs, (d,): a gradient that leads away from the optimum
    late: bool  # the second half has begun
    defence: str
    count: np.ndarray  # of attackers, (runs, 1, 1)
    rng: np.random.Generator


def attack(name: str, view: View) -> np.ndarray:
    """Give what attackers claim, for all rows."""
    claim, others, honest = view.claim, view.others, view.honest
    if name == "labels":
        return claim  # computed from wrong labels
    if name == "sign flip":
        return -claim
    if name in ("x10", "x100"):
        return float(name[1:]) * claim
    if name == "turncoat":
        return -10 * claim if view.late else claim
    many = honest.sum(1)[:, None, None]
    if name == "noise":
        scale = 10 * typical(others, honest) / claim.shape[-1] ** 0.5
        return claim + scale * view.rng.standard_normal(claim.shape)
    if name == "adaptive":
        return _adaptive(view) + 0 * claim
    rows = np.where(honest[..., None], others, 0)
    mean = rows.sum(1, keepdims=True) / np.maximum(many, 1)
    if name == "inner":  # inner-product manipulation: Xie et al. 2019
        return -0.5 * mean + 0 * claim
    spread = np.where(honest[..., None], (others - mean) ** 2, 0).sum(1, keepdims=True)
    # A little is enough (Baruch et al. 2019): as far out as a majority with them allows.
    total = many + view.count
    needed = total // 2 + 1 - view.count
    share = np.clip((many - needed) / np.maximum(many, 1), 0.5, 0.999)
    z = np.vectorize(NormalDist().inv_cdf)(share)
    return mean + view.towards * z * np.sqrt(spread / np.maximum(many, 1)) + 0 * claim


def _adaptive(view: View) -> np.ndarray:
    """Claim the worst that a defence lets through, always in the same direction."""
    if view.defence in ("none", "clip"):  # the latter cuts it to the largest norm it allows
        return UNKNOWN * typical(view.others, view.honest) * view.towards
    if view.defence == "limit":
        return 0.999 * view.most * view.towards / np.linalg.norm(view.towards)
    if view.defence in GUARDS:  # steps that each may pass, towards ten times the reverse
        assert view.before is not None
        way = -10 * view.claim - view.before
        length = np.maximum(sizes(way), 1e-300)
        share = np.minimum(1, 0.99 * view.limit / length)
        first = ~np.isfinite(view.limit)[..., None]  # looks honest until it is judged
        return np.where(first, view.claim, view.before + share[..., None] * way)
    shown = view.honest[..., None]
    low = np.where(shown, view.others, np.inf).min(1, keepdims=True)
    high = np.where(shown, view.others, -np.inf).max(1, keepdims=True)
    edge = np.where(view.towards > 0, high, low)  # of what honest sites claim
    return np.where(np.isfinite(edge), edge, 0)


# One run


class Outcome(NamedTuple):
    x: np.ndarray  # (runs, d)
    refused: float  # share of honest pushes that the guard did not count


def play(
    algorithm: Algorithm, data: Data, lrs: Sequence[float], *, rounds: int, local_steps: int,
    seed: int, defence: str = "none", name: str = "", bad: np.ndarray | None = None,
    stay: bool = True,
) -> Outcome:  # fmt: skip
    """Run an algorithm, several times at once.

    Args:
        lrs: step size of each run.
        seed: of who takes part, and of noise.
        defence: one of DEFENCES.
        name: one of ATTACKS; "removed": they claim ten times their gradient, and leave at
            half time; nothing if there are no attackers.
        bad: who is an attacker, (runs, clients).
        stay: whether attackers take part in every round; else by coins, like all.
    """
    clients, dim = data.offset.shape
    runs = len(lrs)
    bad = np.zeros((runs, clients), bool) if bad is None else bad
    offset = np.where((bad & (name == "labels"))[..., None], data.flipped, data.offset)
    coins = ff.participation.Bernoulli(np.linspace(0.1, 0.9, clients))
    towards = np.sign(data.optimum(np.ones(clients, bool)))
    rng = keys.rng(seed, "attack")
    server, client = algorithm.init(np.zeros((runs, 1, dim)))
    # The server's copies of states, and what sites have themselves: attackers know what
    # they would have if they were honest.
    copies = tree.map(lambda leaf: np.repeat(leaf, clients, 1), client)
    own = copies
    start = data.curve(np.zeros((1, clients, dim)), np.arange(clients)) - data.offset
    most = LIMIT * sizes(start).max() if defence == "limit" else np.inf
    heard = np.zeros((runs, clients), bool)
    changes = np.zeros((runs, clients, LAST))  # the last ones of each site, the newest last
    pushes = np.zeros((runs, clients), int)
    refused = asked = 0
    for r, present in enumerate(schedule(coins, clients, rounds, seed)):
        many = np.full((runs, 1, 1), clients)
        if name == "removed" and 2 * r >= rounds:
            many = many - bad.sum(1)[:, None, None]
            if 2 * r < rounds + 2:  # the first of these rounds
                server = _without(algorithm, server, copies, bad, many)
        active = bad & stay
        active[:, present] = True
        active &= ~bad | (many == clients)[..., 0]
        ids = np.flatnonzero(active.any(0))
        rd = Round(r, np.array(lrs)[:, None, None], local_steps, many, None)
        down = algorithm.broadcast(server)

        def gradient(x, batch, ids=ids):
            x = np.broadcast_to(x, (runs, len(ids), dim))
            return data.curve(x, ids) - offset[:, ids]

        some = tree.map(lambda leaf, ids=ids: leaf[:, ids], own)
        local = algorithm.pull(some, down)
        for _ in range(local_steps):
            local = algorithm.step(local, gradient, None, rd)
        after, up = algorithm.push(some, down, local, rd)
        claim = np.zeros((runs, clients, dim))
        claim[:, ids] = claims(algorithm, up, some, down, rd)
        before = memory(algorithm, copies)
        times = GUARDS.get(defence, np.inf)
        limit = np.where(pushes > NEW, times * np.maximum(changes.max(-1), 1e-300), np.inf)
        if bad.any():
            honest = active & ~bad
            others, there = _population(claim, before, heard, honest)
            view = View(
                claim, others, there & ~bad, before, limit, most, towards,
                2 * r >= rounds, defence, bad.sum(1)[:, None, None], rng,
            )  # fmt: skip
            lies = attack("x10" if name == "removed" else name, view)
            claim = np.where((bad & active)[..., None], lies, claim)
        counted = active & (sizes(claim) <= most)
        if defence == "clip":
            longest = CLIP * typical(*_population(claim, before, heard, active))
            size = np.maximum(sizes(claim)[..., None], 1e-300)
            claim = claim * np.minimum(1, longest / size)
        if defence in GUARDS:
            change = sizes(claim - before)
            counted = active & (change <= limit)
            newer = np.concatenate([changes[..., 1:], change[..., None]], -1)
            # The first change is from nothing, and says nothing of the next ones.
            changes = np.where((counted & (pushes > 0))[..., None], newer, changes)
            pushes += counted
            refused += (active & ~counted & ~bad).sum()
            asked += (active & ~bad).sum()
        sent = messages(algorithm, claim, copies, down, rd)
        total = {
            key: np.where(counted[..., None], leaf, 0).sum(1, keepdims=True)
            for key, leaf in sent.items()
        }
        new = algorithm.state_after(copies, sent, down, rd)
        copies = _chosen(counted, new, copies)
        heard = heard | counted
        rd = rd._replace(num_active=counted.sum(1)[:, None, None])
        server = _update(algorithm, server, total, rd, copies, heard, sent, counted, defence)
        shadow = tree.map(lambda all_, part, ids=ids: _put(all_, ids, part), own, after)
        own = _chosen(bad, _chosen(active, shadow, own), copies)
    return Outcome(server.x[:, 0], refused / max(asked, 1))


def _population(
    claim: np.ndarray, before: np.ndarray | None, heard: np.ndarray, counted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Give the rows that a server can compare, and which of them are there: everybody's
    last claim, or where it keeps nothing those of this round."""
    if before is None:
        return claim, counted
    return np.where(counted[..., None], claim, before), heard | counted


def _update(
    algorithm: Algorithm, server: Any, total: dict, rd: Round, copies: Any, heard: np.ndarray,
    sent: dict, counted: np.ndarray, defence: str,
) -> Any:  # fmt: skip
    """Close a round: put a robust mean in the place of each mean that the server takes."""
    share = {"median": 0.5, **TRIM}.get(defence)
    if share is None:
        return algorithm.update(server, total, rd)
    rows = memory(algorithm, copies)
    if rows is not None:
        ((field, _),) = algorithm.tracked(server, copies).items()
        # Whoever was never heard is not among the rows; its memory is 0 in the sum.
        robust = heard.sum(1)[:, None, None] * trimmed(rows, heard, share)
    if "dx" in total:
        # SCAFFOLD and FedAvg move by the pushes of the round.
        total = {"dx": rd.num_active * trimmed(sent["dx"], counted, share)}
        server = algorithm.update(server, total, rd)
        return server if rows is None else server._replace(**{field: robust / rd.num_clients})
    many = rd.num_clients if algorithm.tracks_mean else 1
    change = {key: robust - many * getattr(server, field) for key in total}
    return algorithm.update(server, change, rd)


def _without(
    algorithm: Algorithm, server: Any, copies: Any, bad: np.ndarray, many: np.ndarray
) -> Any:
    """Let attackers leave, of whom `many` are not; all at once, as their mean."""
    count = bad.sum(1)[:, None, None]
    gone = tree.map(
        lambda leaf: np.where(bad[..., None], leaf, 0).sum(1, keepdims=True) / count, copies
    )
    return algorithm.forget(server, gone, count, many + count)


def _chosen(mask: np.ndarray, new: Any, old: Any) -> Any:
    return tree.map(lambda a, b: np.where(mask[..., None], a, b), new, old)


def _put(all_: np.ndarray, ids: np.ndarray, part: np.ndarray) -> np.ndarray:
    changed = all_.copy()
    changed[:, ids] = part
    return changed


# All runs


def pairs() -> Iterator[tuple[str, str]]:
    """Give methods with their defences.

    A FedAvg server has no history to guard. The limit is on gradients, and a claim is one
    in FOCUS alone, in MIFA and SCAFFOLD about one.
    """
    for method in METHODS:
        for defence in DEFENCES:
            if method == "FedAvg" and defence in GUARDS:
                continue
            if defence != "limit" or method == "FOCUS, mean":
                yield method, defence


class Study:
    """The problems of a setting, for every seed, and who attacks."""

    def __init__(self, name: str, seeds: Sequence[int] = SEEDS, rounds: int | None = None):
        self.setting = SETTINGS[name]
        self.shared: dict[str, Any] = {
            "rounds": rounds or self.setting.rounds, "local_steps": self.setting.local_steps,
        }  # fmt: skip
        self.data = {seed: self.setting.make(seed) for seed in seeds}
        self.bad = {
            seed: attackers(seed, len(data.offset), self.setting.attackers)
            for seed, data in self.data.items()
        }

    def lrs(self, method: str, data: Data) -> list[float]:
        is_sum = isinstance(METHODS[method], ff.Focus)
        unit = data.L * (len(data.offset) if is_sum else 1)
        return [2.0**k / unit for k in self.setting.steps]

    def tune(self, method: str, defence: str) -> int:
        """Return the place of the best step without attackers.

        That is by the mean over seeds of the distance in the end; of digits by the accuracy
        on the clients' own images, because a robust mean may come to rest far away, where
        the accuracy is better than on the way.
        """
        ends = []
        for seed, data in self.data.items():
            lrs = self.lrs(method, data)
            x = play(METHODS[method], data, lrs, seed=seed, defence=defence, **self.shared).x
            optimum = data.optimum(np.ones(len(data.offset), bool))
            far = distances(x, [optimum] * len(lrs))
            ends.append([1 - data.score(one)[1] for one in x] if data.score else far)
        return int(np.argmin(np.mean(ends, 0)))

    def end(self, method: str, defence: str, step: int, name: str = "", **options: Any) -> dict:
        """Run all seeds at one step; give distances and scores by seed, then by run, and the
        largest share of honest pushes that was refused."""
        found: dict[str, Any] = {"distance": [], "score": [], "refused": 0.0}
        for seed, data in self.data.items():
            # Nobody attacks in the one run without an attack.
            bad = self.bad[seed] if name else np.zeros((1, len(data.offset)), bool)
            end = play(
                METHODS[method], data, [self.lrs(method, data)[step]] * len(bad), seed=seed,
                defence=defence, name=name, bad=bad, **self.shared, **options,
            )  # fmt: skip
            far = distances(end.x, [data.optimum(~row) for row in bad])
            found["distance"].append([None if value == np.inf else short(value) for value in far])
            if data.score:
                found["score"].append([short(data.score(x)[0]) for x in end.x])
            found["refused"] = max(found["refused"], short(end.refused))
        return found


def short(value: float) -> float:
    """Round a number to what a table or a test of it needs."""
    return float(f"{value:.6g}")


def distances(x: np.ndarray, optima: Sequence[np.ndarray]) -> list[float]:
    """Give distances from optima, relative to their norms; infinity for a broken run."""
    far = [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(x, optima, strict=True)]
    return [value if value < BROKEN else float("inf") for value in far]


def attackers(seed: int, clients: int, counts: Sequence[int]) -> np.ndarray:
    """Draw who attacks, (runs, clients): few of them are among many."""
    order = keys.rng(seed, "attackers").permutation(clients)
    return np.stack([np.isin(np.arange(clients), order[:count]) for count in counts])


def measure(
    name: str, seeds: Sequence[int] = SEEDS, rounds: int | None = None,
    attacks: Sequence[str] = ATTACKS, only: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:  # fmt: skip
    """Tune every pair without attackers, then attack it at this step."""
    study, rows = Study(name, seeds, rounds), []
    for method, defence in only or pairs():
        began, step = time.monotonic(), study.tune(method, defence)
        row: dict[str, Any] = {
            "method": method, "defence": defence, "step": study.setting.steps[step],
            "alone": study.end(method, defence, step),
        }  # fmt: skip
        row["attacks"] = {one: study.end(method, defence, step, one) for one in attacks}
        if defence == "none":
            row["removed"] = study.end(method, defence, step, "removed")
        if defence in ("none", "trimmed 30 %"):  # attackers that come by coins, like all
            row["coins"] = {
                one: study.end(method, defence, step, one, stay=False)
                for one in attacks
                if one in ("sign flip", "x100", "inner")
            }
        rows.append(row)
        print(
            f"{name} {method}, {defence}: 2^{row['step']}, alone {worst(row['alone'])}; "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )
    return {"attackers": study.setting.attackers, "clients": _clients(study), "rows": rows}


def _clients(study: Study) -> int:
    return len(next(iter(study.data.values())).offset)


UNLIKE = (0.0, 0.1, 0.3, 1.0, 3.0)  # how far clients' models are from the common one


def costs(seeds: Sequence[int] = SEEDS) -> list[dict[str, Any]]:
    """What defences cost FOCUS without attackers, by how unlike clients are: ridge again."""
    rows: list[dict[str, Any]] = []
    for unlike in UNLIKE:

        def make(seed: int, unlike=unlike) -> Data:
            return ridge(seed, unlike)

        study = Study("ridge", seeds)
        study.data = {seed: make(seed) for seed in seeds}
        for defence in (*DEFENCES, "guard x3"):
            step = study.tune("FOCUS, mean", defence)
            end = study.end("FOCUS, mean", defence, step)
            rows.append({"unlike": unlike, "defence": defence, **end})
    return rows


# Tables


def number(value: float) -> str:
    if value < 1e-3:
        return f"{value:.0e}"
    return f"{value:.3f}".removeprefix("0") if value < 10 else f"{value:.0f}"


def worst(end: dict[str, Any], run: int = 0) -> str:
    """The largest distance over seeds; ∞ if a run was broken."""
    far = [one[run] for one in end["distance"]]
    return "∞" if None in far else number(max(far))


def least(end: dict[str, Any], run: int = 0) -> str:
    """The lowest accuracy over seeds."""
    return f"{min(one[run] for one in end['score']):.3f}".removeprefix("0")


def part(
    one: dict[str, Any], count: int, attacks: Sequence[str] = (),
    methods: Sequence[str] = (*METHODS,), defences: Sequence[str] = DEFENCES,
) -> str:  # fmt: skip
    """Write a table of so many attackers: distances, or accuracies where there are some."""
    attacks, run = attacks or (*one["rows"][0]["attacks"],), list(one["attackers"]).index(count)
    value = least if one["rows"][0]["alone"]["score"] else worst
    rows = [
        (
            row["method"], row["defence"], value(row["alone"]),
            *(value(row["attacks"][attack], run) for attack in attacks),
        )
        for row in one["rows"]
        if row["method"] in methods and row["defence"] in defences
    ]  # fmt: skip
    if len(methods) == 1:  # the page names it above the table
        return markdown(("defence", "nobody", *attacks), [row[1:] for row in rows])
    return markdown(("method", "defence", "nobody", *attacks), rows)


def by_coins(one: dict[str, Any]) -> str:
    """Write a table of the most attackers, coming by coins, as everybody does."""
    value = least if one["rows"][0]["alone"]["score"] else worst
    some = [row for row in one["rows"] if "coins" in row]
    rows = [
        (row["method"], row["defence"], *(value(end, -1) for end in row["coins"].values()))
        for row in some
    ]
    return markdown(("method", "defence", *some[0]["coins"]), rows)


def removed(one: dict[str, Any]) -> str:
    """Write a table of attackers that leave at half time, by their number."""
    value = least if one["rows"][0]["alone"]["score"] else worst
    runs = range(len(one["attackers"]))
    rows = [
        (row["method"], *(value(row["removed"], run) for run in runs))
        for row in one["rows"]
        if "removed" in row
    ]
    return markdown(("attackers", *map(str, one["attackers"])), rows)


def cost(one: dict[str, Any]) -> str:
    """Write a table of what defences cost, by how unlike clients are."""
    rows = [
        (defence, *(worst(row) for row in one["costs"] if row["defence"] == defence))
        for defence in dict.fromkeys(row["defence"] for row in one["costs"])
    ]
    return markdown(("models differ by", *(f"{unlike:g}" for unlike in UNLIKE)), rows)


def tables(results: dict[str, dict[str, Any]]) -> str:
    """Write all that was measured, the worst of the seeds."""
    parts = []
    for name, one in results.items():
        for count in one["attackers"]:
            parts.append(f"## {name}, {count} of {one['clients']} attack\n\n" + part(one, count))
        parts += [
            f"## {name}, {one['attackers'][-1]} attack, when their coins say so\n\n"
            + by_coins(one),
            f"## {name}, attackers claim ten times their gradient and leave at half time\n\n"
            + removed(one),
        ]
        if "costs" in one:
            parts.append(f"## {name}, FOCUS with mean memory, nobody attacks\n\n" + cost(one))
    return "\n".join(parts)


def digest(results: dict[str, dict[str, Any]]) -> str:
    """Write the tables that docs/robust.md shows."""
    ridge, digits = results["ridge"], results["digits"]
    focus, few = ("FOCUS, mean",), ("none", "trimmed 30 %")
    shown = tuple(name for name in ATTACKS if name != "x10")
    return "\n".join(
        [
            *(part(ridge, count, shown, focus) for count in (1, 10, 30)),
            *(part(digits, count, shown, focus) for count in (5, 15)),
            part(ridge, 30, ("sign flip", "x10", "labels", "little", "inner"), defences=few),
            by_coins(ridge),
            removed(ridge),
            cost(ridge),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=SETTINGS, help="one of the two problems")
    parser.add_argument("--quick", action="store_true", help="a few rounds; writes nothing")
    asked = parser.parse_args()
    np.seterr(all="ignore")  # broken runs overflow
    if asked.quick:
        only = [("FOCUS, mean", "trimmed 30 %"), ("FOCUS, mean", "none")]
        attacks = ("sign flip", "x100", "adaptive")
        found = measure(asked.only or "ridge", (0,), 40, attacks, only)
        return print(tables({asked.only or "ridge": found}), end="")
    for name in [asked.only] if asked.only else SETTINGS:
        found = measure(name)
        if name == "ridge":
            found["costs"] = costs()
        write(HERE / f"{name}.json", json.dumps(found) + "\n")
    files = {name: HERE / f"{name}.json" for name in SETTINGS}
    if all(file.exists() for file in files.values()):
        results = {name: json.loads(file.read_text()) for name, file in files.items()}
        write(HERE / "table.md", tables(results))


if __name__ == "__main__":
    main()
