"""What noise costs: where it is put, how much of it there is, and what it hides.

    python benchmarks/privacy.py walks       # stored, fresh and correlated noise
    python benchmarks/privacy.py accuracy    # FOCUS, SCAFFOLD and DP-FedAvg, by epsilon
    python benchmarks/privacy.py members     # who can tell that a patient was there
    python benchmarks/privacy.py pushes      # attacks on single pushes of a deployed site
    python benchmarks/privacy.py seconds     # of a gradient of a private site

Delta is 1e-5, one local step, records are the unit; epsilons of `walks` and `pushes` are by RDP.
Hospitals are those of heart disease, all patients, the third hospital online in one
round of 20: FOCUSFL_DATA names the folder of the data.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import focusfl as ff
from focusfl import privacy
from focusfl.core import Batch, tree
from focusfl.flower.protocol import ProtocolServer, Site
from focusfl.flower.protocol.messages import load_flat
from focusfl.privacy import Private
from focusfl.privacy.account import Terms
from focusfl.privacy.clipping import clipped_gradient, contributions, sensitivity
from focusfl.privacy.mechanism import grid, private_gradient, sum_in_steps
from focusfl.problems import Logistic, heart_disease

SEEDS = [0, 1, 2]
SPLITS = range(5)  # of patients into those trained on and those held out
RARE = np.array([0.9, 0.9, 0.05, 0.9])


def normal_rows(clients=8, rows=100, dim=5):
    """Logistic regression on rows of norm 1: a clip of 1 is never active."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(clients, rows, dim)) + rng.normal(size=(clients, 1, dim))
    A /= np.linalg.norm(A, axis=2, keepdims=True)
    b = np.sign(A @ rng.normal(size=dim) * 3 + rng.normal(size=(clients, rows)))
    return Logistic(A, b, penalty=0.1)


def floor(problem, p, lr, scales):
    """The first-order floor of E|x - x*|^2 for noise of these scales that is stored.

    `ff.theory.noise_floor` with a scale for each client and the Hessian at x*.
    """
    trace = np.trace(np.linalg.inv(problem._hessian(problem.optimum)))
    return lr / 2 * trace * np.mean(scales**2 * (2 / p - 1))


def walked(kind, problem, p, lr, rounds, noise, clip, seed):
    """Relative distances, root mean square over the last fifth of FOCUS's rounds.

    `fresh` noise is on every push, a difference that a record changes by up to 2 s;
    `sum` is on y, new in every round, and `tree` on the nodes of a binary tree over
    rounds, both by a trusted server. All cost the most active client the same epsilon.
    """
    rng = np.random.default_rng(seed)
    real = (problem.data["wb"] != 0).sum(1)
    each, s = clip / real, clip / real.min()
    here = rng.random((rounds, problem.num_clients)) < p
    # Of all that the most active client does, as if it were one gradient.
    one = noise / np.sqrt(here.sum(0).max())
    drawn = rng.normal(size=(rounds, problem.A.shape[2]))
    if kind == "fresh":  # the noise of a round's pushes, added up ever after
        own = 2 * noise * np.sqrt((here * each**2).sum(1))
        walk = np.cumsum(own[:, None] * drawn, 0)
    elif kind == "sum":
        walk = one * s * np.sqrt(rounds) * drawn
    else:
        walk = one * 2 * s * np.sqrt(most_nodes(here)) * on_tree(drawn)
    with jax.enable_x64(True):
        end = np.asarray(followed(problem, here, walk, lr, clip))[-rounds // 5 :]
    error = end - problem.optimum
    return np.sqrt((error**2).sum(1).mean()) / np.linalg.norm(problem.optimum)


def followed(problem, here, walk, lr, clip):
    """The models of FOCUS whose sum of clipped gradients is off by `walk`."""
    cut = clipped_gradient

    def one(state, row):
        x, memory = state
        there, off = row
        grads, _ = jax.vmap(lambda data: cut(problem.objective, "record", clip, x, data, None))(
            problem.data
        )
        memory = jnp.where(there[:, None], grads, memory)
        x = x - lr * (memory.sum(0) + off)
        return (x, memory), x

    start = problem.x0, np.zeros((here.shape[1], walk.shape[1]))
    return jax.jit(lambda *rows: jax.lax.scan(one, start, rows)[1])(here, walk)


def on_tree(drawn):
    """Tree aggregation: after round t, the noise of the nodes that t is made of."""
    nodes, sums = {}, np.empty_like(drawn)
    for t, own in enumerate(drawn, 1):
        level = (t & -t).bit_length()
        nodes = {k: v for k, v in nodes.items() if k > level} | {level: own}
        sums[t - 1] = sum(nodes.values())
    return sums


def most_nodes(here):
    """The most nodes of the tree that one client's visits touch."""
    count = np.zeros(here.shape[1], int)
    while True:
        count += here.sum(0)
        if len(here) == 1:
            return int(count.max())
        here = here[: len(here) // 2 * 2]  # what is not complete is no node
        here = here[0::2] | here[1::2]


def stored(problem, p, lr, rounds, noise, clip, seed):
    """The same of what focusfl runs, and the worst client's epsilon."""
    private = Private(problem, clip=clip, noise=noise, accountant="rdp")
    run = ff.simulate(
        ff.Focus(), private, ff.participation.Bernoulli(p), rounds=rounds, lr=lr,
        seed=seed, eval_every=max(1, rounds // 500), options=ff.Options(on_divergence="ignore"),
    )  # fmt: skip
    error = run.metrics["distance"][run.evaluated]
    end = error[-len(error) // 5 :]
    return np.sqrt((end**2).mean()), run.metrics["epsilon"][-1]


def walks(rounds=(500, 5_000, 50_000)):
    """Three federations; the noise is what costs an epsilon in the first rounds."""
    hearts = heart_disease(missing="mean", penalty=0.1)
    coins = np.linspace(0.1, 0.9, 8)
    for name, problem, p, lr, clip, epsilon in (
        ("8 x 100 rows", normal_rows(), coins, 0.02, 1.0, 8.0),
        ("8 x 1,000 rows", normal_rows(rows=1000), coins, 0.02, 1.0, 1.0),
        ("hospitals", hearts, RARE, 0.01, 8.0, 1.0),
    ):
        noise = privacy.noise_for(epsilon, rounds[0])
        counts = (problem.data["wb"] != 0).sum(1)
        expected = np.sqrt(floor(problem, p, lr, noise * clip / counts))
        expected /= np.linalg.norm(problem.optimum)
        print(f"{name}: noise {noise:.1f}, clip {clip:g}; floor {expected:.3g}")
        for total in rounds:
            same = problem, p, lr, total, noise, clip
            found = [stored(*same, seed) for seed in SEEDS]
            line = f"{total:6} epsilon {found[0][1]:7.3f}"
            line += f"  stored {np.mean([e for e, _ in found]):.3g}"
            for kind in ("fresh", "sum", "tree"):
                own = [walked(kind, *same, seed) for seed in SEEDS]
                line += f"  {kind} {np.mean(own):.3g}"
            print(line, flush=True)


def accuracy(rounds=100, clip=2.0):
    """Accuracy on patients held out, of all and of the rare hospital.

    Each at its best step by the loss of those patients, of a grid of powers of 2 that
    grows until the best is within: the search is not counted in epsilon.
    """
    algorithms = {"FOCUS": ff.Focus(), "SCAFFOLD": ff.Scaffold(), "FedAvg": ff.FedAvg()}
    print(f"{rounds} rounds, clip {clip:g}: accuracy of all / of the rare hospital")
    for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0, np.inf):
        noise = 0.0 if epsilon == np.inf else privacy.noise_for(epsilon, rounds)
        print(f"epsilon {epsilon:4g}, noise {noise:6.2f}")
        for name, algorithm in algorithms.items():
            power, found = best(algorithm, noise, rounds, clip)
            mean, spread = found.mean(0), found.std(0)
            print(
                f"    {name:8} {mean[0]:.3f} / {mean[1]:.3f}, deviations of splits "
                f"{spread[0]:.3f} / {spread[1]:.3f}, loss {mean[2]:.3f}, lr 2^{power}",
                flush=True,
            )


def best(algorithm, noise, rounds, clip, low=-11, high=-2):
    """The power of 2 that is the best step, and what it comes to in each split."""
    found = {}
    while True:
        powers = [k for k in range(low, high + 1) if k not in found]
        each = [scores(algorithm, noise, rounds, clip, powers, s) for s in SPLITS]
        found |= dict(zip(powers, np.array(each).swapaxes(0, 1), strict=True))
        least = min(found, key=lambda k: found[k][:, 2].mean())
        if low < least < high:
            return least, found[least]
        low, high = low - 3 * (least == low), high + 3 * (least == high)


def scores(algorithm, noise, rounds, clip, powers, seed):
    """Of each step, in a split: accuracy of all, of the rare hospital, and the loss."""
    train, test = (
        heart_disease(missing="mean", part=part, seed=seed) for part in ("train", "test")
    )
    runs = ff.sweep(
        algorithm, Private(train, clip=clip, noise=noise, accountant="rdp"),
        ff.participation.Bernoulli(RARE), rounds=rounds, lrs=2.0 ** np.array(powers),
        seed=seed, eval_every=rounds, options=ff.Options(on_divergence="ignore"),
    )  # fmt: skip
    return [
        (*right(test, run.x), losses(test, run.x).mean())
        if run.diverged_at is None
        else (0.0, 0.0, np.inf)
        for run in runs
    ]


def right(test, x):
    """The share of patients that are told apart, of all and of the rare hospital."""
    good, real = np.sign(test.A @ x) == test.b, test.b != 0
    return good[real].mean(), good[2][real[2]].mean()


def members(rounds=100, clip=2.0, trials=300):
    """Was one patient, as odd as clipping allows, in a hospital that is often there?

    Two federations differ in that patient; seeds do the rest. Who sees the model of
    every round scores it along the patient's features. Beside it the usual attack: the
    loss of patients in training against those held out.
    """
    train = heart_disease(missing="mean", part="train")
    test = heart_disease(missing="mean", part="test")
    A, b = train.A.copy(), train.b.copy()
    direction = np.linalg.eigh(np.einsum("nri,nrj->ij", A, A))[1][:, 0]
    smallest = min((0, 1, 3), key=lambda i: (b[i] != 0).sum())
    A[smallest, 0], b[smallest, 0] = 20 * direction, 1.0
    there = Logistic(A, b, train.penalty, b != 0)
    gone = b.copy()
    gone[smallest, 0] = 0.0
    # The number of patients is public: the mean is over as many.
    count = (b[smallest] != 0).sum()
    without = Logistic(A, gone, train.penalty, gone != 0)
    without.data["wb"][smallest] *= (count - 1) / count
    who = ff.participation.Bernoulli(RARE)
    for epsilon in (1.0, np.inf):
        noise = 0.0 if epsilon == np.inf else privacy.noise_for(epsilon, rounds)
        scores = []
        for k, problem in enumerate((there, without)):
            runs = ff.sweep(
                ff.Focus(), Private(problem, clip=clip, noise=noise, accountant="rdp"),
                who, rounds=rounds, lrs=[0.05], eval_every=rounds,
                options=ff.Options(record_models=True, on_divergence="ignore"),
                seed=[1000 * k + trial for trial in range(trials)],
            )  # fmt: skip
            scores.append([run.trajectory.mean(0) @ direction for run in runs])
        usual = auc(losses(train, runs[0].x), losses(test, runs[0].x))
        bound = np.tanh(epsilon / 2)
        found = auc(scores[1], scores[0])
        print(f"epsilon {epsilon:4g}: that patient AUC {found:.3f}, advantage "
              f"{advantage(*scores):.2f} (at most {bound:.2f} by epsilon); "
              f"loss of patients AUC {usual:.3f}", flush=True)  # fmt: skip


def losses(problem, x):
    margin = (problem.b * (problem.A @ x))[problem.b != 0]
    return np.logaddexp(0, -margin)


def auc(low, high):
    """The chance that one of the second is above one of the first."""
    above = np.subtract.outer(np.asarray(high), np.asarray(low))
    return ((above > 0) + (above == 0) / 2).mean()


def advantage(one, other):
    """The largest difference of true and false positives over thresholds."""
    cuts = np.concatenate([one, other])
    shares = [np.mean(np.asarray(a)[:, None] > cuts, 0) for a in (one, other)]
    return abs(shares[0] - shares[1]).max()


class Canary:
    """A site, of which an attacker knows all but whether one record is there.

    That record is as unusual as clipping allows. In float64 the gradients are those of NumPy,
    in float32 those of jax.
    """

    def __init__(self, dtype, noise, rows=20, dim=40):
        rng = np.random.default_rng(7)
        A, b = rng.normal(size=(1, rows, dim)), np.sign(rng.normal(size=(1, rows)))
        A[0, 0] *= 20
        if dtype == "float64":
            plain = Logistic(A, b, penalty=0.1)
            without = plain.data | {"wb": plain.data["wb"] * (np.arange(rows) > 0)}
        else:
            samples = [{"a": A[0], "b": b[0]}]
            plain = ff.problems.from_loss(
                margin_loss, np.zeros(dim), samples, eval_data=samples[0], batch_size=None,
                dtype=dtype,
            )  # fmt: skip
            without = tree.map(np.array, plain.data)
            without["samples"]["a"][0, 0] = 0
        self.problem = Private(plain, clip=0.5, noise=noise, accountant="rdp")
        self.data = [tree.map(lambda a: a[0], data) for data in (without, plain.data)]
        exact, x = plain.objective, np.asarray(plain.x0)
        # A batch of all records is the same whatever the key.
        batch = Batch(jax.random.key(0), 0) if exact.stochastic else None
        self.deviation = noise * sensitivity(exact, "record", 0.5, self.data[1])
        given = [(exact, "record", 0.5, x, data, batch) for data in self.data]
        self.gradients = [np.asarray(clipped_gradient(*one)[0]) for one in given]
        steps = grid(noise, self.deviation / noise, x.size)
        self.sums = [steps.spacing * sum_in_steps(contributions(*one), steps) for one in given]

    def pushes(self, there, count):
        """What a server sees of a site's first pushes, (count, dim)."""
        algorithm, x, pushes = ff.Focus(memory="last"), np.asarray(self.problem.x0), []
        stochastic = self.problem.exact.objective.stochastic
        batch_of = partial(Batch, jax.random.key(0)) if stochastic else None
        with tempfile.TemporaryDirectory() as folder:
            options = {"private": Terms.of(self.problem), "folder": folder}
            site = Site(algorithm, "job", "site", **options)
            server = ProtocolServer(
                algorithm, x, ["site"], Path(folder) / "server", job="job", lr=0.1, local_steps=1
            )
            request = server.request("site")
            gradient = private_gradient(self.problem.objective, self.data[there])
            for _ in range(count):
                reply = site.answer(request, gradient, batch_of)
                pushes.append(load_flat(reply["up"])["y"])
                site.cache.clear()  # or it gives the same answer again
            server.close()
        return np.array(pushes)

    def floating(self, there, count, seed=0):
        """What a server would see with the noise of a simulation, (count, dim)."""
        key, x = jax.random.key(seed), np.asarray(self.problem.x0)
        grad = self.problem.objective.grad
        return np.array([grad(x, self.data[there], Batch(key, k)) for k in range(count)])


def margin_loss(x, samples):
    return jnp.logaddexp(0.0, -samples["b"] * (samples["a"] @ x))


def possible(push, gradient, deviation, near=24):
    """Count the entries of a push that are a gradient and noise of `jax.random.normal`.

    It gives sqrt(2) erfinv(u) at 2^23 or 2^52 points u: the nearest ones are tried.
    """
    bits, dtype = (23 if push.dtype == "float32" else 52), push.dtype
    with jax.enable_x64(True):
        z = (push.astype(float) - gradient) / deviation
        near_u = jax.scipy.special.erf(z / np.sqrt(2))
        first = np.floor((np.asarray(near_u) + 1) * 2.0 ** (bits - 1)).astype(np.int64)
        points = first[:, None] + np.arange(-near, near + 1)
        points = np.clip(points, 0, 2**bits - 1)
        values = np.asarray(normals((points / 2.0**bits).astype(dtype)))
    pushed = (gradient[:, None] + deviation * values).astype(dtype)
    return (pushed == push[:, None]).any(1).sum()


@jax.jit
def normals(shares):
    """What `jax.random.normal` makes of random numbers from 0 to 1."""
    low = np.nextafter(np.array(-1, shares.dtype), np.array(0, shares.dtype))
    u = jnp.maximum(low, shares * (1 - low) + low)
    return np.array(np.sqrt(2), shares.dtype) * jax.lax.erf_inv(u)


def low_bits(canary, pushes, rng):
    """Guess by the low bits of each push whether the record is there; a tie is a coin."""
    counts = np.array([
        [possible(push, gradient, canary.deviation) for gradient in canary.gradients]
        for push in pushes
    ])  # fmt: skip
    odds = np.sign(counts[:, 1] - counts[:, 0])
    return np.where(odds == 0, rng.random(len(odds)) < 0.5, odds > 0)


def likelihoods(canary, pushes):
    """The log of the likelihood of each push with the record over that without, for its law."""
    out, there = canary.sums
    return (pushes - (out + there) / 2) @ (there - out) / canary.deviation**2


def least_epsilon(out, there, delta=1e-5, confidence=0.95):
    """A lower bound on the epsilon of scores of pushes without and with the record.

    A threshold is chosen by the first half; on the other, rates have bounds of Clopper and
    Pearson.
    """
    from scipy.stats import beta

    def bound(out, there, cut):
        k, n = (np.sum(there > cut), len(there)), (np.sum(out > cut), len(out))
        share = (1 - confidence) / 2
        low = beta.ppf(share, k[0], k[1] - k[0] + 1) if k[0] else 0.0
        high = beta.ppf(1 - share, n[0] + 1, n[1] - n[0]) if n[0] < n[1] else 1.0
        return np.log(max(low - delta, 1e-300) / high)

    half = len(out) // 2
    cuts = np.quantile(np.concatenate([out[:half], there[:half]]), np.linspace(0.01, 0.99, 99))
    cut = max(cuts, key=lambda cut: bound(out[:half], there[:half], cut))
    return max(0.0, bound(out[half:], there[half:], cut))


def pushes(trials=1000, epsilons=(0.16, 0.0125, 4.0)):
    """Attacks on pushes of a deployed site, and on the noise of a simulation beside it."""
    rng = np.random.default_rng(0)
    for dtype in ("float64", "float32"):
        for epsilon in epsilons:
            canary = Canary(dtype, privacy.noise_for(epsilon, 1, accountant="rdp"))
            sent = [canary.pushes(there, trials) for there in (0, 1)]
            other = [canary.floating(there, trials // 5, seed=there) for there in (0, 1)]
            by_bits = [
                np.mean([low_bits(canary, kind[there], rng) == there for there in (0, 1)])
                for kind in (sent, other)
            ]
            scores = [likelihoods(canary, pushes) for pushes in sent]
            by_law = np.mean([scores[0] < 0, scores[1] > 0])
            print(
                f"{dtype} epsilon {epsilon:6g}: {trials} pushes each; guesses right by low bits "
                f"{by_bits[0]:.3f} (with the noise of a simulation {by_bits[1]:.3f}), by "
                f"likelihood {by_law:.3f}, allowed {1 / (1 + np.exp(-epsilon)):.3f}; audit: "
                f"epsilon at least {least_epsilon(*scores):.3f}", flush=True,
            )  # fmt: skip


def seconds(dims=(100, 550_000), rows=20):
    """Seconds of a gradient, as a site makes it and with the noise of a simulation."""
    for dim in dims:
        rng = np.random.default_rng(0)
        plain = Logistic(rng.normal(size=(1, rows, dim)), np.sign(rng.normal(size=(1, rows))))
        problem, x = Private(plain, clip=1.0, noise=20.0), np.zeros(dim)
        data, key = tree.map(lambda a: a[0], plain.data), jax.random.key(0)
        ways = {
            "deployed": partial(private_gradient(problem.objective, data), x),
            "simulated": lambda k: problem.objective.grad(x, data, Batch(key, k)),  # noqa: B023
        }
        for name, gradient in ways.items():
            gradient(0)
            times = []
            for k in range(1, 6):
                start = time.perf_counter()
                gradient(k)
                times.append(time.perf_counter() - start)
            print(f"d {dim:7}, {rows} rows, {name}: {np.median(times):.4f} s", flush=True)


def main():
    parts = {
        "walks": walks, "accuracy": accuracy, "members": members, "pushes": pushes,
        "seconds": seconds,
    }  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", nargs="*", help=f"of {', '.join(parts)}; default: all")
    parser.add_argument("--quick", action="store_true", help="small: does it run?")
    options = parser.parse_args()
    if unknown := set(options.part) - set(parts):
        parser.error(f"part must be of {', '.join(parts)}; got {', '.join(unknown)}")
    if options.quick:
        pushes(trials=20, epsilons=(0.16,))
        seconds(dims=(100,))
    if not options.part or {*options.part} - {"pushes", "seconds"}:
        try:
            heart_disease(missing="mean")
        except ValueError as error:
            parser.exit(2, f"{error}\n")
    if options.quick:
        return members(rounds=10, trials=20)
    for what in options.part or parts:
        parts[what]()


if __name__ == "__main__":
    main()
